"""The Makefile names files of the repository."""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def test_each_test_that_the_makefile_runs_exists() -> None:
    named = set(re.findall(r"\btests/[\w/]+\.py\b", (ROOT / "Makefile").read_text()))
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []
