"""The published book in Chromium, served as static files: every page opens, every control answers
with dtlib's number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from dtlib.views import encode
from dtlib.views.catalog import EXPLORERS, PREDICTIONS
from dtlib.views.explorer import Explorer
from tests import site

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with site.served() as address:
        yield address


@pytest.fixture(scope="module")
def chromium() -> Iterator[object]:
    with site.browser() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def where() -> dict[str, str]:
    """On which page each explorer and prediction is, read from the built pages."""
    found = {}
    for path in site.pages():
        text = (site.SITE / path).read_text(encoding="utf-8")
        found |= {
            name: path for name in re.findall(r'data-(?:explorer|prediction)="([^"]+)"', text)
        }
    return found


def settings(explorer: Explorer) -> list[tuple[int, ...]]:
    """The start, and each control at both of its ends while the others stay at the start."""
    moved = [explorer.start]
    for position, control in enumerate(explorer.controls):
        for end in (0, len(control.values) - 1):
            moved.append(
                explorer.within(
                    [end if i == position else at for i, at in enumerate(explorer.start)]
                )
            )
    return moved


def move(figure: object, explorer: Explorer, position: int, value: int) -> None:
    """Move one control as a reader does."""
    control = explorer.controls[position]
    if control.kind == "choice":
        figure.locator(".dt-control").nth(position).locator("input").nth(value).check(force=True)
        return
    slider = figure.locator(".dt-control").nth(position).locator("input[type=range]")
    slider.focus()
    slider.press("Home" if value == 0 else "End")


def read(figure: object) -> dict[str, str]:
    """What the figure shows."""
    return figure.evaluate("""root => Object.fromEntries(
        [...root.querySelectorAll("[data-readout]")]
            .map(node => [node.dataset.readout, node.textContent]))""")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [site.WIDE, site.NARROW])
def test_every_page_opens_without_a_fault(address, chromium, width, dark):
    for path in site.pages():
        with site.visit(chromium, address, width=width, dark=dark) as visit:
            visit.open(path)
            for name in visit.page.eval_on_selector_all(
                "[data-explorer]", "all => all.map(n => n.dataset.explorer)"
            ):
                visit.explorer(name)
            beyond = visit.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert beyond <= 0, f"{path} is {beyond} px wider than {width} px"
            assert visit.faults == [], path


@pytest.mark.parametrize("name", EXPLORERS)
@pytest.mark.parametrize("width", [site.WIDE, site.NARROW])
def test_every_control_shows_what_dtlib_computes(address, chromium, where, name, width):
    explorer = EXPLORERS[name]
    with site.visit(chromium, address, width=width) as visit:
        visit.open(where[name])
        figure = visit.explorer(name)
        assert read(figure) == dict(explorer.at(explorer.start).readouts)
        for position, control in enumerate(explorer.controls):
            drawings = set()
            for end in (len(control.values) - 1, 0):
                move(figure, explorer, position, end)
                at = tuple(map(int, figure.get_attribute("data-at").split(",")))
                assert at == explorer.within(at) and at[position] == min(
                    end, explorer.counts(at)[position] - 1
                )
                shown = explorer.at(at)
                assert read(figure) == dict(shown.readouts), (control.name, at)
                assert figure.locator(".dt-says").inner_text() == shown.alt_text
                chart = figure.locator(".dt-chart")
                assert (
                    chart.get_attribute("role") == "img"
                    and chart.get_attribute("aria-label") == shown.alt_text
                )
                drawings.add(figure.locator(".dt-chart").inner_html() + str(read(figure)))
            assert len(drawings) == 2, f"{control.name} changes nothing between its ends"
        figure.locator(".dt-reset").click()
        assert read(figure) == dict(explorer.at(explorer.start).readouts)
        assert "NaN" not in figure.inner_html()
        assert visit.faults == []


@pytest.mark.parametrize("name", EXPLORERS)
def test_the_table_holds_the_numbers_of_the_chart(address, chromium, where, name):
    explorer = EXPLORERS[name]
    with site.visit(chromium, address) as visit:
        visit.open(where[name])
        figure = visit.explorer(name)
        figure.locator(".dt-numbers summary").click()
        figure.locator(".dt-tables tbody tr").first.wait_for(timeout=60_000)
        state = encode.shown_state(explorer, explorer.start)
        expected = sum(
            len(next(iter(table.values())))
            for table in state["tables"].values()
            if set(table) & set(explorer.columns)
        )
        assert figure.locator(".dt-tables tbody tr").count() == expected > 0
        headings = {text for text in figure.locator(".dt-tables th").all_inner_texts()}
        assert headings == {column.label for column in explorer.columns.values()}


@pytest.mark.parametrize("name", EXPLORERS)
def test_an_address_restores_the_state(address, chromium, where, name):
    explorer = EXPLORERS[name]
    at = explorer.within([len(control.values) - 1 for control in explorer.controls])
    with site.visit(chromium, address) as visit:
        visit.open(where[name])
        figure = visit.explorer(name)
        for position in range(len(explorer.controls)):
            move(figure, explorer, position, len(explorer.controls[position].values) - 1)
        wanted = {
            f"{name}.{control.name}": control.texts[i]
            for control, i in zip(explorer.controls, at, strict=True)
        }
        visit.page.wait_for_function(
            """wanted => {
            const found = new URLSearchParams(window.location.search);
            return Object.entries(wanted).every(([key, text]) => found.get(key) === text);
        }""",
            arg=wanted,
            timeout=60_000,
        )
        link = visit.page.evaluate("window.location.href")
    with site.visit(chromium, address) as visit:
        visit.open(link.removeprefix(address + "/"))
        assert read(visit.explorer(name)) == dict(explorer.at(at).readouts)
        assert visit.faults == []


@pytest.mark.parametrize(
    "name", [name for name, e in EXPLORERS.items() if any(c.play for c in e.controls)]
)
def test_play_steps_to_the_end_and_stops(address, chromium, where, name):
    explorer = EXPLORERS[name]
    position = next(i for i, control in enumerate(explorer.controls) if control.play)
    with site.visit(chromium, address) as visit:
        visit.page.clock.install()
        visit.open(where[name])
        figure = visit.explorer(name)
        move(figure, explorer, position, 0)
        button = figure.get_by_role("button", name="Play")
        button.click()
        last = explorer.counts(explorer.start)[position] - 1
        for _ in range(last + 2):
            visit.page.clock.run_for(800)
        at = [*explorer.start[:position], last, *explorer.start[position + 1 :]]
        assert read(figure) == dict(explorer.at(explorer.within(at)).readouts)
        assert "Play" in button.inner_text()


@pytest.mark.parametrize("name", EXPLORERS)
def test_a_finger_moves_the_controls(address, chromium, where, name):
    explorer = EXPLORERS[name]
    with site.visit(chromium, address, width=site.NARROW, has_touch=True, is_mobile=True) as visit:
        visit.open(where[name])
        figure = visit.explorer(name)
        for position, control in enumerate(explorer.controls):
            target = figure.locator(".dt-control").nth(position)
            if control.kind == "choice":
                label = target.locator("label").nth(
                    (explorer.start[position] + 1) % len(control.values)
                )
                label.tap()
                assert label.bounding_box()["height"] >= 24
            else:
                slider = target.locator("input[type=range]")
                box = slider.bounding_box()
                assert box["height"] >= 24, "too low for a finger"
                slider.tap(
                    position={
                        "x": box["width"] - 4 if explorer.start[position] == 0 else 4,
                        "y": box["height"] / 2,
                    }
                )
            at = tuple(map(int, figure.get_attribute("data-at").split(",")))
            assert at[position] != explorer.start[position], f"{control.name} did not move"
            assert read(figure) == dict(explorer.at(at).readouts)
            figure.locator(".dt-reset").tap()


@pytest.mark.parametrize("name", PREDICTIONS)
def test_predictions_answer(address, chromium, where, name):
    prediction = PREDICTIONS[name]
    with site.visit(chromium, address, width=site.NARROW) as visit:
        visit.open(where[name])
        box = visit.page.locator(f"[data-prediction='{name}']")
        entry = box.locator("input")

        def answer(text: str) -> str:
            entry.fill(text)
            entry.press("Enter")
            return box.locator(".dt-verdict").inner_text()

        assert prediction.because not in box.inner_text(), (
            "the answer shows before the reader has written one"
        )
        assert "Write a number" in answer("about a hundred")
        assert "Write a number" in answer("")
        thousands = answer("1,234.5")
        assert "You wrote 1,234" in thousands or "You wrote 1,235" in thousands
        assert "Write a number" in answer("1,2345")
        for text in ("1,75", "0,125", "8,1", "8 1", "0x10", "1e999", "nan", "10 apples"):
            assert "Write a number" in answer(text), text
        if "B" in prediction.unit:
            assert "B is a byte, b a bit" in answer(
                f"{prediction.answer!r} {prediction.unit.replace('B', 'b')}"
            )
        assert box.get_attribute("data-outcome") is None
        if prediction.unit == "times":
            assert prediction.because in answer(f"{prediction.answer!r}x")
        for text in (
            repr(prediction.answer),
            f"{prediction.answer!r} {prediction.unit}",
            f" +{prediction.answer!r} ",
        ):
            assert prediction.because in answer(text), text
        assert box.get_attribute("data-outcome") == "right"
        wrong = prediction.answer * 3 + 7
        assert "You had it" not in answer(repr(wrong))
        for wrong, why in prediction.hints:
            assert why in answer(repr(float(wrong))), wrong
        assert visit.faults == []


def test_without_javascript_every_explorer_is_a_picture_with_a_sentence(address, chromium, where):
    with site.visit(chromium, address, java_script_enabled=False) as visit:
        for name, explorer in EXPLORERS.items():
            visit.page.goto(f"{address}/{where[name]}")
            figure = visit.page.locator(f"[data-explorer='{name}']")
            alt_text = explorer.at(explorer.start).alt_text
            assert figure.locator("svg").first.is_visible()
            assert figure.locator(".dt-static").get_attribute("aria-label") == alt_text
            assert figure.locator(".dt-says").inner_text() == alt_text


def test_a_wrong_number_on_the_page_is_noticed(address, chromium, where):
    """A seeded fault: one digit of a baked readout is changed on its way to the browser."""
    name = next(iter(EXPLORERS))
    explorer = EXPLORERS[name]
    right = dict(explorer.at(explorer.start).readouts)

    def falsify(route):
        text = (site.SITE / where[name]).read_text(encoding="utf-8")
        baked = json.dumps(list(right.values()), separators=(",", ":"), ensure_ascii=False)
        assert baked in text
        first = next(c for c in baked if c.isdigit())
        route.fulfill(
            body=text.replace(baked, baked.replace(first, str((int(first) + 1) % 10), 1)),
            content_type="text/html",
        )

    with site.visit(chromium, address) as visit:
        visit.page.route(f"**/{where[name]}", falsify)
        visit.open(where[name])
        assert read(visit.explorer(name)) != right


def test_a_fault_on_a_page_is_noticed(address, chromium):
    """A seeded fault: a script that throws, an image that is missing, another host."""
    body = (
        "<script>throw new Error('seeded')</script><img src='/missing.png'>"
        "<script src='http://127.0.0.2:9/other.js'></script>"
    )
    with site.visit(chromium, address) as visit:
        visit.page.route(
            "**/seeded.html", lambda route: route.fulfill(body=body, content_type="text/html")
        )
        visit.open("seeded.html")
        kinds = " ".join(visit.faults)
        assert "seeded" in kinds and "404" in kinds and "asked another host" in kinds
