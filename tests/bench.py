"""How fast and how heavy the course is: `make bench`. Prints each figure beside its bar; nothing
here is a test.

`python -m tests.bench --cold` also clones the repository and times both commands of the README from
nothing.
"""

from __future__ import annotations

import argparse
import gzip
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dtlib.network import Network
from dtlib.simulators.clock import time_s
from dtlib.simulators.collectives import make
from dtlib.views import encode, front_end
from dtlib.views.catalog import EXPLORERS
from tests import bench_ranks, site
from tests.bench_report import row

# Every position of every control, forth and back; a change is timed from the event to the end of
# the drawing, and to the frame that shows it.
_ANSWER = """async root => {
  const frame = () => new Promise(requestAnimationFrame);
  const drawn = [], shown = [];
  for (const input of root.querySelectorAll("input[type=range]")) {
    const last = Number(input.max);
    const stops = [...Array(last + 1).keys()].slice(0, 40);
    for (const value of [...stops, ...stops.toReversed()]) {
      if (Number(input.value) === value) continue;
      await frame();
      const start = performance.now();
      input.value = value;
      input.dispatchEvent(new Event("input"));
      root.getBoundingClientRect();
      drawn.push(performance.now() - start);
      await frame();
      shown.push(performance.now() - start);
    }
  }
  return { drawn, shown };
}"""


def zipped_kB(text: str) -> float:
    """The size on the wire, in kB."""
    return len(gzip.compress(text.encode(), 9)) / 1000


def places() -> Iterator[tuple[str, str]]:
    """Each explorer's name and page."""
    for path in site.pages():
        for name in re.findall(
            r'data-explorer="([^"]+)"', (site.SITE / path).read_text(encoding="utf-8")
        ):
            yield name, path


def answers() -> None:
    """An explorer answers within a frame, and is ready soon after it comes into view."""
    print(
        "\nExplorers in Chromium: median (and 9th decile) of every move; ready: first in a fresh "
        "window"
    )
    with site.served() as address, site.browser() as chromium:
        for name, path in places():
            with site.visit(chromium, address) as visit:
                visit.open(path)
                start = time.perf_counter()
                figure = visit.explorer(name)
                ready_s = time.perf_counter() - start
                times = figure.evaluate(_ANSWER)
            if not times["drawn"]:
                continue
            median, decile = (
                statistics.median(times["drawn"]),
                statistics.quantiles(times["drawn"], n=10)[-1],
            )
            row(f"  {name}: drawn", f"{median:.1f} ({decile:.1f}) ms", "<= 17 ms", median <= 17)
            row(f"  {name}: frame that shows it", f"{statistics.median(times['shown']):.1f} ms", "")
            row(
                f"  {name}: ready after coming into view",
                f"{ready_s * 1000:.0f} ms",
                "<= 1000 ms",
                ready_s <= 1,
            )


def weights() -> None:
    """What a reader downloads."""
    print("\nSizes, gzipped")
    chart = zipped_kB(front_end.page_file("explorers.js"))
    row("  chart code, once a site", f"{chart:.0f} kB", "<= 350 kB", chart <= 350)
    ours = zipped_kB(front_end.page_file("page.js")) + zipped_kB(front_end.page_file("dtlib.css"))
    bare = zipped_kB((site.SITE / "genindex.html").read_text(encoding="utf-8"))
    states = re.compile(
        r'<figure class="dt-explorer".*?data-explorer="([^"]+)".*?'
        r'(<script type="application/json">.*?</script>)',
        re.S,
    )
    for path in site.pages():
        text = (site.SITE / path).read_text(encoding="utf-8")
        for name, data in states.findall(text):
            size = zipped_kB(data)
            row(
                f"  {name}: {len(list(EXPLORERS[name].states()))} states",
                f"{size:.0f} kB",
                "<= 150 kB",
                size <= 150,
            )
            text = text.replace(data, "")
        size = zipped_kB(text) + ours - bare
        row(
            f"  {path} beyond the bare theme, without states",
            f"{size:.0f} kB",
            "<= 100 kB",
            size <= 100,
        )


def sweeps() -> None:
    """Every state of every explorer, as it is baked into a page."""
    print("\nAll states of an explorer")
    for name, explorer in EXPLORERS.items():
        taken = timed(lambda e=explorer: encode.baked(e))
        row(f"  {name}", f"{taken:.2f} s", "< 2 s", taken < 2)


def simulation() -> None:
    """A ring of 1,024 ranks, made and timed."""
    print("\nSimulation")

    def ring() -> None:
        time_s(
            make("all_reduce", "ring", 1024),
            Network.flat(bandwidth_Bps=50e9, latency_s=1e-6),
            2**30,
        )

    taken = sorted(timed(ring) for _ in range(3))[1]
    row("  ring of 1,024 ranks on the clock", f"{taken:.2f} s", "< 2 s", taken < 2)


def timed(work: Callable[[], object]) -> float:
    """Seconds that ``work`` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def cold() -> None:
    """Both commands on a fresh clone; packages come from pip's cache if it has them."""
    print("\nFrom nothing")
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "course"
        subprocess.run(
            ["git", "clone", "--quiet", str(Path(__file__).parent.parent), str(clone)], check=True
        )
        for target, bar_s, what in (
            ("book", 300, "make serve, to the first page"),
            ("test", 600, "make test after it"),
        ):
            command = ["make", target]
            taken = timed(
                lambda c=command: subprocess.run(
                    c, cwd=clone, check=True, stdout=subprocess.DEVNULL
                )
            )
            row(f"  {what}", f"{taken:.0f} s", f"< {bar_s} s", taken < bar_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cold", action="store_true", help="also time both commands on a fresh clone"
    )
    asked = parser.parse_args()
    print(f"Python {sys.version.split()[0]}")
    weights()
    sweeps()
    simulation()
    answers()
    bench_ranks.report()
    if asked.cold:
        cold()


if __name__ == "__main__":
    main()
