"""Photographs the first screen of a report for README.md: `make picture`.

Needs Chromium or Chrome. Run it again when the page's look or its run has changed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "reports/mini/mini/index.html"
FILE = ROOT / "reports/page.png"
SIZE = 1280, 860
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def main(arguments: Sequence[str] = ()) -> int:
    """Write FILE from PAGE, or from the page that is named; 1 without a browser or a picture."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"None of {', '.join(BROWSERS)} is on PATH; install Chromium", file=sys.stderr)
        return 1
    page = Path(arguments[0]).resolve() if arguments else PAGE
    with tempfile.TemporaryDirectory() as profile:
        # No sandbox: containers lack what it needs, and the page is the project's own.
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        options += ["--disable-background-networking", "--disable-component-update"]
        options += ["--hide-scrollbars", f"--user-data-dir={profile}"]
        options += [f"--window-size={SIZE[0]},{SIZE[1]}", "--virtual-time-budget=5000"]
        subprocess.run([browser, *options, f"--screenshot={FILE}", page.as_uri()], check=True)
    print(f"{FILE.relative_to(ROOT)}: {FILE.stat().st_size // 1024} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
