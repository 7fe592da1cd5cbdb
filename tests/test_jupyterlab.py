"""Chapters in JupyterLab, in a browser: the kernel answers every control with dtlib's number, and
nothing is fetched.
"""

from __future__ import annotations

import inspect
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from dtlib.views.catalog import EXPLORERS, PREDICTIONS
from tests import site
from tests.test_browser import move, read
from tests.test_lab import ring

pytestmark = [pytest.mark.browser, pytest.mark.slow]
CHAPTERS = Path(__file__).parent.parent / "chapters"
NAMES = ("index", "one-machine", "barrier", "all-reduce", "hierarchy")
LEARNER = "learner"  # a copy of the all-reduce chapter in which somebody has written the ring


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Iterator[str]:
    """The address of a JupyterLab that serves copies of the chapters, with settings of its own."""
    folder = tmp_path_factory.mktemp("lab")
    for name in NAMES:
        shutil.copy(CHAPTERS / f"{name}.ipynb", folder)
    notebook = nbformat.read(CHAPTERS / "all-reduce.ipynb", as_version=4)
    stub = next(cell for cell in notebook.cells if "def my_ring" in cell.source)
    stub.source = (
        inspect.getsource(ring).replace("def ring", "def my_ring") + "\ncheck_ring(my_ring)"
    )
    nbformat.write(notebook, folder / f"{LEARNER}.ipynb")
    port = free_port()
    environment = os.environ | {
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "DTLIB_HOST": "notebook",
    }
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        "--IdentityProvider.token=",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        f"--ServerApp.root_dir={folder}",
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as server,
    ):
        try:
            address = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + 60
            while True:
                try:
                    urllib.request.urlopen(f"{address}/api", timeout=1).close()
                    break
                except OSError:
                    assert time.monotonic() < deadline and server.poll() is None, (
                        folder / "log"
                    ).read_text()
                    time.sleep(0.2)
            yield address
        finally:
            server.terminate()


@pytest.mark.parametrize("name", NAMES)
def test_a_chapter_runs_in_jupyterlab_and_its_figures_answer(lab, name):
    text = (CHAPTERS / f"{name}.ipynb").read_text(encoding="utf-8")
    shown = [
        explorer
        for explorer in EXPLORERS.values()
        if f'"{explorer.name.replace("-", "_")}"' in text
    ]
    asked = [
        prediction
        for prediction in PREDICTIONS.values()
        if f'"{prediction.name.replace("-", "_")}"' in text
    ]
    assert shown
    with site.browser() as chromium, site.visit(chromium, lab) as visit:
        page = run_all(visit, name)
        for explorer in shown:
            figure = scrolled_to(
                page, page.locator("figure.dt-explorer").filter(has_text=explorer.title)
            )
            assert read(figure) == dict(explorer.at(explorer.start).readouts)
            for position, control in enumerate(explorer.controls):
                for end in (len(control.values) - 1, 0):
                    move(figure, explorer, position, end)
                    page.wait_for_function(
                        """([title, position, end]) => {
                        const figure = [...document.querySelectorAll('figure.dt-explorer')]
                            .find(f => f.querySelector('.dt-title').textContent === title);
                        const inputs = figure.querySelectorAll('.dt-control')[position]
                            .querySelectorAll('input');
                        const at = Number(figure.dataset.at.split(',')[position]);
                        return at === (inputs.length > 1 ? end
                            : Math.min(end, Number(inputs[0].max)));
                    }""",
                        arg=[explorer.title, position, end],
                        timeout=60_000,
                    )
                    at = tuple(map(int, figure.get_attribute("data-at").split(",")))
                    page.wait_for_timeout(50)
                    assert read(figure) == dict(explorer.at(at).readouts), (
                        explorer.name,
                        control.name,
                        at,
                    )
        for prediction in asked:
            box = scrolled_to(
                page, page.locator(".dt-prediction").filter(has_text=prediction.question[:60])
            )
            box.locator("input").fill(repr(prediction.answer))
            box.locator("input").press("Enter")
            assert prediction.because in box.locator(".dt-verdict").inner_text()
        assert page.locator("[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
        assert [
            fault for fault in visit.faults if "asked another host" in fault or "exception" in fault
        ] == []


def test_a_learner_runs_the_ring_on_real_processes_and_kills_a_rank(lab):
    with site.browser() as chromium, site.visit(chromium, lab) as visit:
        page = run_all(visit, LEARNER)
        run = scrolled_to(page, page.locator("button.mod-primary").filter(has_text="Run"))
        says = page.locator("p[role='status']").last
        run.click()
        page.get_by_text("Done. Every process has ended.").wait_for(timeout=60_000)
        assert "my_ring" in page.locator(".dt-table").last.inner_text()
        assert page.locator(".dt-table").last.inner_text().count("1,572,864") == 2, (
            "bytes sent, and by formula"
        )
        page.get_by_role("combobox", name="Payload").select_option("16 MiB")
        run.click()
        page.get_by_text("Started 4 processes.").wait_for(timeout=60_000)
        page.wait_for_timeout(500)
        page.get_by_role("button", name="Kill a rank").click()
        page.get_by_text("was killed by SIGKILL (exit code -9)").wait_for(timeout=60_000)
        assert "every process has ended" in says.inner_text()
        page.get_by_role("combobox", name="Payload").select_option("1 KiB")
        run.click()
        page.get_by_text("Done. Every process has ended.").wait_for(timeout=60_000)


def run_all(visit: site.Visit, name: str):
    """The page of a notebook whose cells have all been started."""
    page = visit.page
    page.goto(
        f"{visit.address}/lab/workspaces/{name}/tree/{name}.ipynb"
    )  # no tab of another test is restored
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=60_000)
    page.locator(".jp-NotebookPanel").wait_for(timeout=60_000)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    return page


def scrolled_to(page, found):
    """What a locator finds, after scrolling through a notebook whose cells are attached as they
    come into view.
    """
    page.mouse.move(650, 500)
    deadline = time.monotonic() + 60
    down = True
    while found.count() == 0:
        assert time.monotonic() < deadline, f"{found} did not appear"
        page.mouse.wheel(0, 600 if down else -600)
        page.wait_for_timeout(100)
        at_end = page.evaluate(
            """down => { const view = document.querySelector('.jp-WindowedPanel-outer');
            return down ? view.scrollTop + view.clientHeight >= view.scrollHeight - 5
                : view.scrollTop <= 5; }""",
            down,
        )
        down = not down if at_end else down
    found.scroll_into_view_if_needed(timeout=60_000)
    return found
