"""The lab as a panel of Jupyter widgets: choose, run, watch, kill a rank."""

from __future__ import annotations

import random
import threading
from html import escape

import ipywidgets as widgets

from dtlib.deadline import call_within
from dtlib.ranks import Cluster, RankError
from dtlib.ranks.measure import Measurement, in_process, measurements
from dtlib.units import binary
from dtlib.views.lab import HEADINGS, Lab, cells, description
from dtlib.views.table import STYLE, Table

__all__ = ["LabPanel"]

ROUNDS = 5
MAKING_S = 5.0  # for the reader's own function


class LabPanel(widgets.VBox):
    """Runs happen in a thread of their own, so that the kernel stays free for the button that kills
    a rank.
    """

    def __init__(self, lab: Lab) -> None:
        def choose(
            label: str, options: list[tuple[str, object]], value: object
        ) -> widgets.Dropdown:
            return widgets.Dropdown(
                options=options,
                value=value,
                description=label,
                style={"description_width": "5.5em"},
                layout={"width": "min(100%, 28em)"},
            )

        self.lab, self.lines, self.cluster = lab, [], None
        self.running: threading.Thread | None = None
        self.algorithm = choose(
            "Algorithm", [(name, name) for name in lab.algorithms], lab.algorithms[0]
        )
        self.ranks = choose("Ranks", [(str(ranks), ranks) for ranks in lab.ranks], lab.start[1])
        self.payload = choose(
            "Payload", [(binary(size), size) for size in lab.payloads_bytes], lab.start[2]
        )
        self.network = choose(
            "Network",
            [(description(network), number) for number, network in enumerate(lab.networks)],
            0,
        )
        self.start = widgets.Button(description="Run", button_style="primary", icon="play")
        self.kill = widgets.Button(description="Kill a rank", icon="bolt", disabled=True)
        self.progress = widgets.IntProgress(
            max=ROUNDS, description="Rounds", style={"description_width": "5.5em"}
        )
        self.says = widgets.HTML(f"<p>{lab.title}: choose and run.</p>")
        self.table = widgets.HTML()
        self.start.on_click(self._start)
        self.kill.on_click(self._kill)
        super().__init__(
            [
                self.algorithm,
                self.ranks,
                self.payload,
                self.network,
                widgets.HBox([self.start, self.kill]),
                self.progress,
                self.says,
                self.table,
            ]
        )

    def _start(self, _: object) -> None:
        if self.running is not None and self.running.is_alive():
            return
        self.start.disabled, self.progress.value = True, 0
        self.running = threading.Thread(target=self._run, daemon=True)
        self.running.start()

    def _run(self) -> None:
        try:
            self._measure()
        except RankError as error:
            self._say(
                f"The run ended: {str(error).splitlines()[0]}. All ranks were told, and every "
                "process has ended. "
                "The next run starts new ones."
            )
        except Exception as error:  # nobody catches it here: the reader sees it
            self._say(f"{type(error).__name__}: {error}")
        finally:
            self.cluster = None
            self.start.disabled, self.kill.disabled = False, True

    def _measure(self) -> None:
        made = call_within(MAKING_S, self.lab.schedule, self.algorithm.value, self.ranks.value)
        if made.timed_out:
            self._say(
                f"The schedule was not made within {MAKING_S:g} s. Does every loop of your "
                "function come to its end?"
            )
            return
        if made.error is not None:
            said, kind = str(made.error), type(made.error).__name__
            text = (
                said
                if isinstance(made.error, ValueError) and said
                else f"{kind}: {said}"
                if said
                else kind
            )
            self._say(text if text.endswith((".", "?", "!")) else f"{text}.")
            return
        try:
            cluster = Cluster(made.value.ranks)
        except OSError as error:  # no processes here
            self._add(in_process(made.value, self.payload.value))
            self._say(f"Ran on arrays in one process, without a network: {error}")
            return
        done: list[Measurement] = []
        with cluster:
            self.cluster, self.kill.disabled = cluster, False
            self._say(f"Started {cluster.ranks} processes.")
            # The choice is a number, since a Dropdown takes None for no choice.
            network = self.lab.networks[self.network.value]
            for measured in measurements(
                cluster, self.payload.value, made.value, network=network, rounds=ROUNDS
            ):
                done.append(measured)
                self.progress.value = len(done)
        self._add(done[-1])
        self._say("Done. Every process has ended.")

    def _add(self, measured: Measurement) -> None:
        self.lines.append(cells(measured))
        self.table.value = Table("Measured beside predicted", HEADINGS, self.lines).html() + STYLE

    def _kill(self, _: object) -> None:
        cluster = self.cluster
        if cluster is not None:
            victim = random.randrange(cluster.ranks)
            self._say(f"Killing rank {victim}.")
            cluster.kill(victim)

    def _say(self, text: str) -> None:
        self.says.value = f'<p role="status">{escape(text)}</p>'
