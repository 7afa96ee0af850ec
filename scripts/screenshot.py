"""Take the picture of a report that docs/guide/report.md shows: the frontier, its slider, and one model.

make demo
.venv/bin/python scripts/screenshot.py demo/report.html docs/report.png
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

ABOVE, HEIGHT = 30, 1050

page_path, picture = map(Path, sys.argv[1:])
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 1280, "height": 1500}, color_scheme="light")
    page.goto(page_path.resolve().as_uri())
    page.locator("svg").first.wait_for()
    heading = page.get_by_role("heading", name="Accuracy against fairness").bounding_box()
    top = heading["y"] - ABOVE
    page.screenshot(path=picture, clip={"x": 0, "y": top, "width": 1280, "height": HEIGHT}, full_page=True)
    browser.close()
