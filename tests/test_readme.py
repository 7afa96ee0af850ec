"""What the README shows, runs."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_example_runs_and_the_gap_narrows(tmp_path):
    code = "\n".join(re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    (gap,) = re.findall(r"DCA = (\S+) points", done.stdout)
    (with_head,) = re.findall(r"With a head: DCA = (\S+)", done.stdout)
    plain = re.findall(r"^0 +0\.0+ +\S+ +(\S+) +False", done.stdout, flags=re.MULTILINE)
    assert float(gap) < 0.6 * 100 * float(plain[0])
    assert float(with_head) < 0.6 * 100 * float(plain[0])
    assert (tmp_path / "model" / "model_card.md").exists()


def test_links_and_pictures_exist():
    for document in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), (document.name, target)
