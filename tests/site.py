"""The built book in a real browser: what the browser tests and the benchmark share."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tools.browser import executable

SITE = Path(__file__).parent.parent / "_build" / "html"
WIDE, NARROW = 1300, 375
# Chromium's own calls home would be refused without a network, and as root it needs no sandbox.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Requests are not printed."""


@contextmanager
def served(folder: Path = SITE) -> Iterator[str]:
    """The address at which ``folder`` is served as static files."""
    if not (folder / "index.html").exists():
        raise FileNotFoundError(f"{folder} holds no book: run `make book` first")
    handler = functools.partial(_Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=executable(), args=FLAGS)
        yield chromium
        chromium.close()


def pages() -> list[str]:
    """Every page of the site, by its path."""
    return sorted(
        str(page.relative_to(SITE).as_posix())
        for page in SITE.rglob("*.html")
        if "_static" not in page.parts
    )


@dataclass
class Visit:
    """A page that is open, and what went wrong on it so far."""

    page: Page
    address: str
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        page = self.page
        page.on("pageerror", lambda error: self.faults.append(f"exception: {error}"))
        page.on(
            "console",
            lambda message: (
                message.type in ("error", "warning")
                and self.faults.append(f"console {message.type}: {message.text}")
            ),
        )
        page.on(
            "requestfailed", lambda request: self.faults.append(f"request failed: {request.url}")
        )
        page.on(
            "response",
            lambda answer: (
                answer.status >= 400 and self.faults.append(f"{answer.status}: {answer.url}")
            ),
        )
        page.on(
            "request",
            lambda request: (
                not request.url.startswith((self.address, "data:", "blob:"))
                and self.faults.append(f"asked another host: {request.url}")
            ),
        )

    def open(self, path: str) -> None:
        """Go to a page and wait until it asks for nothing more."""
        self.page.goto(f"{self.address}/{path}", wait_until="networkidle", timeout=60_000)

    def explorer(self, name: str) -> Any:
        """The figure of an explorer, scrolled into view and ready."""
        figure = self.page.locator(f"[data-explorer='{name}']")
        figure.scroll_into_view_if_needed(timeout=60_000)
        self.page.wait_for_selector(f"[data-explorer='{name}'][data-at]", timeout=60_000)
        return figure


@contextmanager
def visit(
    chromium: Browser, address: str, *, width: int = WIDE, dark: bool = False, **context: Any
) -> Iterator[Visit]:
    """A fresh window of this width."""
    window = chromium.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if dark else "light",
        **context,
    )
    yield Visit(window.new_page(), address)
    window.close()
