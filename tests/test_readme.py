"""What the README shows, runs."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_example_runs_and_the_gap_narrows():
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    gaps = [float(gap) for gap in re.findall(r"DCA = (\S+) points", done.stdout)]
    assert len(gaps) == 5
    assert gaps[-1] < gaps[0] / 2
    assert "accuracy" in done.stdout


def test_links_and_pictures_exist():
    for document in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), (document.name, target)
