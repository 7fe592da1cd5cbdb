"""Find a Chromium for the browser tests, or have Playwright fetch one."""

import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def executable() -> str | None:
    """The path of an installed Chromium or Chrome, or None if only Playwright's can serve."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def main() -> None:
    if path := executable():
        print(f"browser tests use {path}")
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        if Path(play.chromium.executable_path).exists():
            return
    if subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"]).returncode:
        sys.exit(
            "the browser tests need Chromium: install it (Debian: apt install chromium) and run "
            "again"
        )


if __name__ == "__main__":
    main()
