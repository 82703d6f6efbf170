"""Counts how many screens long a report is, part by part: `python -m workflow.page_screens PAGE`.

Opens the page in Chromium or Chrome, in a frame of each size, and shows one part after the other.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from workflow.page_picture import OPTIONS, PAGE, browser

SIZES = ((1280, 800), (390, 844))
"""Width and height in pixels of a laptop's and of a phone's screen."""

_MEASURE = """
addEventListener("load", async () => {
  const rest = () => new Promise((done) => setTimeout(done, 200));
  const parts = [...document.querySelectorAll("main > .part")].map((part) => part.id);
  const heights = {};
  for (const id of parts.length ? parts : [""]) {
    location.hash = id;
    await rest();
    heights[id || "page"] = document.documentElement.scrollHeight;
  }
  heights.wide = document.documentElement.scrollWidth;
  parent.postMessage(JSON.stringify(heights), "*");
});
"""
_FRAME = """<!doctype html><iframe src="page.html" width="{}" height="{}" style="border:0"></iframe>
<script>addEventListener("message", (event) => {{ document.title = event.data; }});</script>"""


def screens(page: Path, width: int, height: int) -> dict[str, float]:
    """Heights of the page's parts, in screens of `width` × `height` pixels, and of all of them.

    Raises FileNotFoundError without a browser, ValueError for a page wider than the screen or one
    that could not be measured.
    """
    digest = base64.b64encode(hashlib.sha256(_MEASURE.encode()).digest()).decode()
    text = page.read_text(encoding="utf-8")
    text = text.replace("script-src ", f"script-src &#39;sha256-{digest}&#39; ", 1)
    with tempfile.TemporaryDirectory() as folder:
        copy, frame = Path(folder, "page.html"), Path(folder, "frame.html")
        copy.write_text(text.replace("</body>", f"<script>{_MEASURE}</script></body>"), "utf-8")
        frame.write_text(_FRAME.format(width, height), "utf-8")
        command = [browser(), *OPTIONS, f"--user-data-dir={folder}/profile", "--dump-dom"]
        command += ["--virtual-time-budget=20000", frame.as_uri()]
        dom = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"<title>(\{.*?\})</title>", dom)
    if not found:
        raise ValueError(f"{page} could not be measured; does it end with </body>?")
    heights = json.loads(html.unescape(found[1]))
    if (wide := heights.pop("wide")) > width:
        raise ValueError(f"{page} is {wide} pixels wide on a screen of {width}")
    return {name: high / height for name, high in {**heights, "all": sum(heights.values())}.items()}


def main(arguments: Sequence[str]) -> int:
    """Print the screens of each page; of the kept page without arguments."""
    for page in map(Path, arguments or [PAGE]):
        print(f"{page}: {page.stat().st_size / 1e6:.2f} MB")
        for width, height in SIZES:
            parts = screens(page.resolve(), width, height).items()
            print(f"  {width} × {height}: " + ", ".join(f"{name} {n:.1f}" for name, n in parts))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
