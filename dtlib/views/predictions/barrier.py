"""The predictions of *A step is a barrier*."""

from __future__ import annotations

import math

from dtlib.facts.registry import training_run
from dtlib.formulas.barrier import (
    expected_maximum_s,
    probability_of_straggler,
    slowdown_of_lower_rate,
    step_time_s,
)
from dtlib.formulas.jitter import jitter
from dtlib.views.prediction import Prediction

__all__ = ["defect_in_a_job", "jitter_of_many", "nine_tenths"]

GPUS = training_run("Llama-3-405B")["gpus"].value

nine_tenths = Prediction(
    name="nine-tenths",
    question=(
        "A step takes 10 s on each of 16,384 GPUs. One GPU now runs at 0.9 of its speed. How "
        "long does the step take?"
    ),
    unit="s",
    answer=step_time_s([10.0] * (GPUS - 1) + [10.0 * slowdown_of_lower_rate(0.9)]),
    because="The same work at 0.9 of the speed takes 10 / 0.9 s, and all the others wait for it.",
    hints=(
        (11.0, "11 s is for a GPU that takes 10% longer. This one has 0.9 of the speed."),
        (10.0, "That is the mean of all GPUs, to four digits. The step ends with its last GPU."),
        (9.0, "A slower GPU cannot make the step shorter: divide by the speed."),
    ),
)

jitter_of_many = Prediction(
    name="jitter-of-many",
    question="No GPU is broken. Their step times vary at random, independently, around a mean of "
    "10 s: a normal "
    "distribution with a standard deviation of 0.2 s. How long does a step on 16,384 of them take, "
    "on average?",
    unit="s",
    answer=expected_maximum_s(jitter("normal", 10.0, 0.2), GPUS),
    because=(
        "The largest of 16,384 normal draws lies almost four standard deviations above the mean."
    ),
    hints=(
        (10.0, "That is the mean of one GPU. The step takes as long as the slowest of 16,384."),
        (10.2, "One standard deviation above the mean: one draw in six is beyond it."),
        (10.4, "Two standard deviations: one draw in 44 is beyond them, so hundreds of GPUs are."),
        (10.6, "Three standard deviations: one draw in 741 is beyond them, so about 22 GPUs are."),
        (
            10 + 0.2 * math.sqrt(2 * math.log(GPUS)),
            "That is the rule with the square root: right for very many ranks, a little high here.",
        ),
    ),
)

defect_in_a_job = Prediction(
    name="defect-in-a-job",
    question=(
        "One GPU in 10,000 has a defect that slows it down. What percentage of jobs on 16,384 "
        "GPUs get at least one?"
    ),
    unit="%",
    answer=100 * probability_of_straggler(1e-4, GPUS),
    because="A job is spared with probability 0.9999 to the power of 16,384, which is 19.4%.",
    hints=(
        (
            163.84,
            "That is 100 n q, and a percentage ends at 100. A job has 1.64 such GPUs on average, "
            "but some have none.",
        ),
        (100.0, "Some jobs are lucky: each GPU is fine with probability 0.9999."),
        (0.01, "That is the chance for one GPU. The job draws 16,384 of them."),
        (19.4, "That is the share of jobs that are spared."),
    ),
)
