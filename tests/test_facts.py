"""The registry: complete facts, one convention per figure, and incomplete or mislabeled files
refused by name.
"""

from __future__ import annotations

import pickle
import re
import shutil
from datetime import date
from pathlib import Path

import pytest

from dtlib.facts import registry
from dtlib.facts.fact import ConventionError, Fact, FactError
from dtlib.facts.sweeps import read, sweep, sweeps

FOLDER = Path(registry.__file__).parent
FILES = ("constants", "hardware", "models", "runs")


@pytest.fixture
def folder(tmp_path):
    """A copy of the registry's files that a test may damage."""
    for path in FOLDER.glob("*.toml"):
        shutil.copy(path, tmp_path)
    return tmp_path


def edit(folder: Path, file: str, pattern: str, replacement: str) -> None:
    path = folder / file
    text, changed = re.subn(pattern, replacement, path.read_text(encoding="utf-8"), count=1)
    assert changed == 1, f"{pattern} is not in {file}"
    path.write_text(text, encoding="utf-8")


def test_every_fact_is_complete():
    facts = list(registry.all_facts())
    assert len(facts) > 200
    for one in facts:
        assert one.unit and one.direction and one.convention and one.kind
        assert date(2024, 1, 1) < one.checked
        source = registry.source(one.source)
        assert source.title and source.authors and source.url.startswith("https://") and source.read
        assert 1970 < source.year < 2030


def test_every_source_is_used():
    assert {one.key for one in registry.all_sources()} == {
        one.source for one in registry.all_facts()
    }


def test_link_rates_have_a_direction_and_flop_rates_a_convention():
    for one in registry.all_facts():
        if one.unit == "B/s":
            assert (one.direction == "none") == one.key.endswith(".hbm")
        assert (one.unit == "FLOP/s") == (one.convention in ("dense", "sparse"))


def test_figures_from_memory_say_so():
    for key in ("mi300x.nic", "a100-sxm-80gb.nic"):
        assert "from memory" in registry.fact(key).note


def test_an_accelerator_is_its_facts_in_base_units_and_travels_to_a_rank():
    for name in registry.accelerators():
        chip, facts = registry.accelerator(name), f"{name.lower()}."
        assert chip.peak_bf16_FLOPs == registry.fact(f"{facts}peak_bf16").value
        assert chip.memory_B == registry.fact(f"{facts}memory").value
        assert chip.hbm_Bps == registry.fact(f"{facts}hbm").value
        assert chip.scaleup_Bps == registry.fact(f"{facts}scaleup").value
        assert chip.scaleup_domain == registry.fact(f"{facts}scaleup_domain").value
        assert chip.nic_Bps == registry.fact(f"{facts}nic").value
        matmul = chip.facts.get("matmul_bf16")
        assert chip.matmul_bf16_FLOPs == (matmul.value if matmul else None)
        assert pickle.loads(pickle.dumps(chip)) == chip
        assert pickle.loads(pickle.dumps(chip)).facts == chip.facts


def test_a_two_way_or_sparse_figure_is_not_returned_as_a_single_one():
    with pytest.raises(ConventionError, match=r"h100-sxm\.scaleup_printed = 9e\+11 .*sum of both"):
        registry.fact("h100-sxm.scaleup_printed").each_way_Bps  # noqa: B018
    with pytest.raises(
        ConventionError, match=r"h100-sxm\.peak_bf16_printed = 1\.979e\+15 .*sparse"
    ):
        registry.fact("h100-sxm.peak_bf16_printed").dense_FLOPs  # noqa: B018
    with pytest.raises(ConventionError, match="not a plain number in B"):
        registry.fact("h100-sxm.scaleup_printed").number("B/s")
    with pytest.raises(ConventionError):
        registry.fact("h100-sxm.hbm").each_way_Bps  # noqa: B018
    with pytest.raises(ConventionError):
        registry.fact("gpt-2.norm").number("1")


def test_nobody_changes_what_everybody_reads():
    chip, group = registry.accelerator("H100-SXM"), registry.model("GPT-2")
    for facts in (chip.facts, group, registry.training_run("Llama-3-405B")):
        with pytest.raises(TypeError):
            facts["layers"] = facts["memory"] if facts is chip.facts else group["hidden"]
        with pytest.raises(TypeError):
            del facts["layers"]
    for frozen, name in ((chip, "memory_B"), (group["layers"], "value")):
        with pytest.raises(AttributeError):
            setattr(frozen, name, 5)
    for key in sweeps():
        for column in (sweep(key).payload_bytes, sweep(key).time_s):
            with pytest.raises(ValueError, match="read-only"):
                column[0] = 5


@pytest.mark.parametrize("bad", ["H100", "", 8, None, True, ["H100-SXM"], float("nan")])
@pytest.mark.parametrize(
    "lookup",
    [registry.accelerator, registry.model, registry.training_run, registry.source, registry.fact],
)
def test_unknown_names_are_refused_with_the_known_ones(lookup, bad):
    with pytest.raises((TypeError, ValueError), match="must be one of") as error:
        lookup(bad)
    assert repr(bad) in str(error.value)
    assert str(error.value).startswith(lookup.__name__)


def test_an_unknown_accelerator_lists_the_known_ones():
    with pytest.raises(ValueError) as error:
        registry.accelerator("H100")
    assert all(name in str(error.value) for name in registry.accelerators())


def test_an_unknown_fact_lists_its_siblings():
    with pytest.raises(ValueError, match=r"h100-sxm\.nic.*got 'h100-sxm\.network'"):
        registry.fact("h100-sxm.network")


# Seeded faults: each damage to a file is refused by a message that names file, fact and field.


def test_the_undamaged_copy_loads(folder):
    assert len(registry.Registry(folder).facts) == len(list(registry.all_facts()))


def test_a_folder_that_is_not_there_is_named(tmp_path):
    for folder in (tmp_path / "nope", str(tmp_path / "nope")):
        with pytest.raises(
            FactError, match=r"folder must hold sources\.toml, .*nope', which is no"
        ):
            registry.Registry(folder)
    with pytest.raises(FactError, match=r"nope\.toml: No such file"):
        read(tmp_path / "nope.toml")


@pytest.mark.parametrize("file", ["sources.toml", "constants.toml", "runs.toml"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"# nothing\n", "the file is empty"),
        (b"[a]\nb = \n", r"line 2"),
        (b"\xff", "can't decode byte 0xff"),
        (b"gpus = 3\n", "gpus must be a table, got 3"),
    ],
)
def test_a_broken_file_is_named(folder, file, content, message):
    (folder / file).write_bytes(content)
    for load, path in ((registry.Registry, folder), (read, folder / file)):
        with pytest.raises(FactError, match=rf"{re.escape(file)}: .*{message}"):
            load(path)


def test_a_file_that_is_not_there_is_named(folder):
    (folder / "runs.toml").unlink()
    with pytest.raises(FactError, match=r"constants\.toml.*, without runs\.toml$"):
        registry.Registry(folder)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("field", ["unit", "direction", "convention", "kind", "source", "checked"])
def test_a_dropped_field_is_named(folder, file, field):
    """Dropping a field everywhere in a file leaves a fact without it, whichever comes first."""
    path = folder / f"{file}.toml"
    value = r'("[^"]*"|[\d-]+)'
    text = re.sub(rf", {field} = {value}", "", path.read_text(encoding="utf-8"))
    path.write_text(re.sub(rf"\{{{field} = {value}, ", "{", text), encoding="utf-8")
    with pytest.raises(
        FactError, match=rf"^{file}\.toml: [\w.-]+\.\w+: field '{field}' is missing"
    ):
        registry.Registry(folder)


@pytest.mark.parametrize(
    ("file", "pattern", "replacement", "message"),
    [
        (
            "hardware.toml",
            r"memory = \{value = 80e9, ",
            "memory = {",
            r"a100-sxm-80gb\.memory: field 'value' is missing",
        ),
        (
            "hardware.toml",
            r'(scaleup = .*), direction = "each way"',
            r"\1",
            r"scaleup: field 'direction' is missing: a",
        ),
        (
            "hardware.toml",
            r'(peak_bf16 = .*), convention = "dense"',
            r"\1",
            r"peak_bf16: field 'convention' is missing",
        ),
        (
            "hardware.toml",
            r'unit = "B"',
            'unit = "GB"',
            r"a100-sxm-80gb\.memory: unit must be one of .*got 'GB'",
        ),
        (
            "hardware.toml",
            r'"each way"',
            '"one way"',
            r"scaleup: direction must be one of .*got 'one way'",
        ),
        (
            "hardware.toml",
            r'"measured"',
            '"guessed"',
            r"matmul_bf16: kind must be one of .*got 'guessed'",
        ),
        (
            "hardware.toml",
            r"value = 80e9",
            "value = nan",
            r"memory: value must be a finite number .*got nan",
        ),
        (
            "hardware.toml",
            r"value = 80e9",
            "value = -80e9",
            r"memory: value must be a finite number .*got -8",
        ),
        (
            "hardware.toml",
            r"value = 80e9",
            'value = "80"',
            r"memory: value must be a number in B, got '80'",
        ),
        (
            "hardware.toml",
            r"2026-11-29",
            '"yesterday"',
            r"memory: checked must be a date .*got 'yesterday'",
        ),
        ("hardware.toml", r"note = ", "notes = ", r"hbm: unknown field 'notes'"),
        ("hardware.toml", r"defaults = .*", "defaults = 3", r"80gb: defaults must be a table"),
        ("hardware.toml", r'name = "H100-SXM"\n', "", r"h100-sxm: field 'name' is missing"),
        (
            "hardware.toml",
            r'name = "H100-SXM"',
            'name = "H100"',
            r"h100-sxm: name must be .*got 'H100'",
        ),
        (
            "runs.toml",
            r'source = "opt"',
            'source = "a blog"',
            r"opt-175b\.gpus: source 'a blog' is not in sources\.toml",
        ),
        (
            "runs.toml",
            r"\[opt-175b\]\nname = .*",
            '[gpt-2]\nname = "GPT-2"\nlayers = 1',
            r"gpt-2\.layers: already given",
        ),
        ("sources.toml", r"year = 2020\n", "", r"sources\.toml: zero: field 'year' is missing"),
        (
            "sources.toml",
            r"year = 2020\n",
            "year = 2020\npages = 3\n",
            r"sources\.toml: zero: unknown field 'pages'",
        ),
    ],
)
def test_damage_is_refused_by_name(folder, file, pattern, replacement, message):
    edit(folder, file, pattern, replacement)
    with pytest.raises(FactError, match=message):
        registry.Registry(folder)


def test_a_two_way_bandwidth_labeled_each_way_is_caught(folder):
    """The classic: 900 GB/s written down as what moves in one direction."""
    edit(folder, "hardware.toml", r"scaleup = \{value = 450e9", "scaleup = {value = 900e9")
    with pytest.raises(
        FactError, match=r"h100-sxm\.scaleup_printed .* must be twice h100-sxm\.scaleup = 9e\+11"
    ):
        registry.Registry(folder)


def test_a_sparse_peak_labeled_dense_is_caught(folder):
    edit(folder, "hardware.toml", r"peak_bf16 = \{value = 989e12", "peak_bf16 = {value = 1979e12")
    with pytest.raises(FactError, match=r"h100-sxm\.peak_bf16_printed .* must be twice"):
        registry.Registry(folder)


def test_a_bandwidth_marked_two_way_is_not_used_as_each_way(folder):
    edit(
        folder, "hardware.toml", r'(nic = .*)direction = "each way"', r'\1direction = "sum of both"'
    )
    with pytest.raises(ConventionError, match=r"a100-sxm-80gb\.nic"):
        registry.Registry(folder).accelerator("A100-SXM-80GB")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"convention": "none"}, "convention must be 'dense' or 'sparse' for FLOP/s"),
        ({"direction": "each way"}, "direction must be 'none' for FLOP/s"),
        ({"source": 3}, "source must be text"),
        ({"value": True}, "value must be a number in FLOP/s"),
    ],
)
def test_a_fact_checks_itself(change, message):
    good = dict(
        key="a.b",
        value=1e12,
        unit="FLOP/s",
        direction="none",
        convention="dense",
        kind="nominal",
        source="zero",
        checked=date(2026, 11, 29),
    )
    assert Fact(**good).dense_FLOPs == 1e12
    with pytest.raises(FactError, match=message):
        Fact(**{**good, **change})
