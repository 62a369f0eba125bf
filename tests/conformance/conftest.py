"""Where published data lies; tests that need it skip, saying so, where it is absent."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _folder(variable: str, default: str) -> Path:
    path = Path(os.environ.get(variable, default))
    path = path if path.is_absolute() else ROOT / path
    if not path.is_dir():
        pytest.skip(f"published data not found at {path}; set ${variable}")
    return path


@pytest.fixture(scope="session")
def conformance() -> Path:
    """Folder of published results that the numbers must agree with."""
    return _folder("AGML_CONFORMANCE", "../shared/fixtures")


@pytest.fixture(scope="session")
def conformance_data() -> Path:
    """Folder of real photographs."""
    return _folder("AGML_CONFORMANCE_DATA", "../shared/data")
