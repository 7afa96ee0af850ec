"""Take the picture of a report that README.md shows.

python scripts/screenshot.py results/reproduction/report.html docs/report.png
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

page_path, picture = map(Path, sys.argv[1:])
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 1280, "height": 1500}, color_scheme="light")
    page.goto(page_path.resolve().as_uri())
    page.locator("svg").first.wait_for()
    page.screenshot(path=picture, clip={"x": 0, "y": 760, "width": 1280, "height": 1480}, full_page=True)
    browser.close()
