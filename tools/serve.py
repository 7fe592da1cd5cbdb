"""Serve the built book on 127.0.0.1."""

import argparse
import functools
import http.server
import sys
from pathlib import Path

SITE = Path(__file__).resolve().parent.parent / "_build" / "html"


def server(port: int) -> http.server.ThreadingHTTPServer:
    """A server of the site on this port, or on a free one if the port is taken."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(SITE))
    try:
        return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError:
        print(f"Port {port} is taken; using a free one.")
        return http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)


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
