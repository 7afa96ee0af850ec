import json
from pathlib import Path

import hypothesis
import pytest

from files import save_encoder

hypothesis.settings.register_profile("fairdro", deadline=None, max_examples=60, derandomize=True)
hypothesis.settings.register_profile("fuzz", deadline=None, database=None, print_blob=True)
hypothesis.settings.load_profile("fairdro")


@pytest.fixture(scope="session")
def vectors():
    """Numeric test vectors computed independently of this code, in float64 with six decimals."""
    return json.loads((Path(__file__).parent / "data" / "vectors.json").read_text())


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    """A folder with a tokenizer of a few words and a BERT of two layers."""
    folder = tmp_path_factory.mktemp("encoder")
    save_encoder(folder)
    return folder


@pytest.fixture
def quick_heads(monkeypatch):
    """Heads of a hundred steps, for tests of what is around them; tests/test_head.py has those of their convergence."""
    monkeypatch.setattr("fairdro.training.head.TOLERANCE", 1.0)
