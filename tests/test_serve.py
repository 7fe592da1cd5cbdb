"""What ``make serve`` says when it cannot serve, and that it serves."""

from __future__ import annotations

import socket
import sys
import threading
from urllib.request import urlopen

import pytest

from tools import serve


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A built book of one page."""
    (tmp_path / "index.html").write_text("<p>A page</p>", encoding="utf-8")
    monkeypatch.setattr(serve, "SITE", tmp_path)
    return tmp_path


def test_the_book_is_served(site):
    with serve.server(0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with urlopen(f"http://127.0.0.1:{server.server_port}/", timeout=10) as answer:
            assert answer.read() == b"<p>A page</p>"
        server.shutdown()


def test_a_port_that_is_taken_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit, match=rf"^port {port} cannot be used \(.*\): .* PORT="):
            serve.server(port)


@pytest.mark.parametrize(
    ("port", "built", "message"),
    [("65536", True, "port must be 0 to 65535, got 65536"), ("0", False, "run `make book` first")],
)
def test_what_cannot_be_served_is_said(site, monkeypatch, port, built, message):
    if not built:
        (site / "index.html").unlink()
    monkeypatch.setattr(sys, "argv", ["serve.py", "--port", port])
    with pytest.raises(SystemExit, match=message):
        serve.main()
