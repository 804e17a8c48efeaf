"""What tests of the programs on a node share."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    """Paths of sockets are short, and those of pytest's folders are not."""
    with tempfile.TemporaryDirectory(prefix="node") as name:
        yield Path(name)
