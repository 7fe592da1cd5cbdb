"""Serve the built book on 127.0.0.1."""

import argparse
import functools
import http.server
import sys
from pathlib import Path

SITE = Path(__file__).resolve().parent.parent / "_build" / "html"


class Server(http.server.ThreadingHTTPServer):
    # On Windows address reuse would let two servers share a port; elsewhere it only lets a server
    # start again at once after it was stopped.
    allow_reuse_address = sys.platform != "win32"


def server(port: int) -> http.server.ThreadingHTTPServer:
    """A server of the site on this port, or on any free one for 0.

    A port that is taken ends the program: on another one, a reader who opens the usual address sees
    somebody else's page.
    """
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(SITE))
    try:
        return Server(("127.0.0.1", port), handler)
    except OSError as error:
        sys.exit(
            f"port {port} cannot be used ({error.strerror}): stop what listens there, or choose "
            "another, as in `make serve PORT=8123`"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    port = parser.parse_args().port
    if not 0 <= port <= 65535:
        sys.exit(f"port must be 0 to 65535, got {port}")
    if not (SITE / "index.html").exists():
        sys.exit(f"{SITE} holds no book: run `make book` first")
    with server(port) as site:
        print(f"The book is at http://127.0.0.1:{site.server_port}/ (Ctrl-C stops)", flush=True)
        try:
            site.serve_forever()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    main()
