"""Recorded cases, and cases of our own in the same form, of allocations and of selectors."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.__main__ import runner_of
from tests.kit.places import ROOT

Json = dict[str, Any]

OWN = sorted((Path(__file__).parent / "cases").glob("*.json"))
RECORDED = ROOT.parent / "shared" / "vectors"


def failures(cases: list[Json]) -> list[str]:
    return [f"{case['name']}: {problem}" for case in cases if (problem := runner_of(case)(case)) is not None]


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_own_cases(path: Path) -> None:
    cases = json.loads(path.read_text())
    assert cases
    assert failures(cases) == []


@pytest.mark.skipif(not RECORDED.is_dir(), reason="recorded cases are kept outside the project")
@pytest.mark.parametrize("name", ["allocator", "defects", "fuzz"])
def test_recorded_cases(name: str) -> None:
    assert failures(json.loads((RECORDED / f"{name}.json").read_text())) == []
