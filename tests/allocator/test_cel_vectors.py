"""Recorded CEL cases, where they are at hand; and the command that runs files of cases."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.conformance import exclusions, language, selectors
from tests.conformance.__main__ import main

RECORDED = Path(__file__).parents[2].parent / "shared" / "vectors"
recorded = pytest.mark.skipif(not RECORDED.is_dir(), reason="recorded cases are kept outside the project")

ACTUAL = {"compileError": "", "match": True, "runtimeError": "", "actualCost": 3}
SELECTOR = {
    "name": "driver",
    "expression": 'device.driver == "a"',
    "envType": "NewExpressions",
    "features": {},
    "device": {"driver": "a"},
    "actual": ACTUAL,
}


@recorded
@pytest.mark.parametrize("name", ["cel", "cel_extra"])
def test_recorded_selectors_agree_with_upstream(name: str) -> None:
    cases = json.loads((RECORDED / f"{name}.json").read_text())
    assert [f"{case['name']}: {why}" for case in cases if (why := selectors.run_case(case)) is not None] == []


@recorded
def test_cel_spec_cases_pass_but_for_those_excluded_by_name() -> None:
    cases = json.loads((RECORDED / "cel-spec.json").read_text())
    excluded = Counter(why for case in cases if (why := exclusions.reason(case)) is not None)
    assert [case for case in cases if exclusions.reason(case) is None and language.failure(case) is not None] == []
    documented = (Path(__file__).parents[2] / "docs" / "reference" / "cel.md").read_text()
    assert [why for why, count in excluded.items() if f"| {why} | {count} |" not in documented] == []


@recorded
def test_each_case_excluded_by_name_would_fail() -> None:
    cases = json.loads((RECORDED / "cel-spec.json").read_text())
    single = [case for case in cases if exclusions.reason(case) in exclusions.CASES]
    assert len(single) == sum(len(sections) for cases in exclusions.CASES.values() for sections in cases.values())
    assert [case["section"] for case in single if language.failure(case) is None] == []


def test_command_counts_and_names_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cases.json"
    wrong = {**SELECTOR, "name": "wrong", "actual": {**ACTUAL, "actualCost": 4}}
    plain = {"suite": "s", "name": "n", "section": "x", "expression": "1 + 1", "expected": ["int", 2]}
    path.write_text(json.dumps([SELECTOR, wrong, plain]))
    assert main([str(path)]) == 1
    printed = capsys.readouterr().out
    assert "cases.json: 2 passed, 1 failed, 0 skipped" in printed
    assert "FAILED wrong: costs 3, upstream 4" in printed
    path.write_text(json.dumps([SELECTOR]))
    assert main([str(path)]) == 0


@pytest.mark.parametrize("text", ["{", "[{}]", "[1]", '[{"expression": "1"}]'])
def test_command_refuses_a_file_without_cases(text: str, tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    path.write_text(text)
    assert main([str(path)]) == 2


def test_command_without_files_is_an_error() -> None:
    assert main([]) == 2
