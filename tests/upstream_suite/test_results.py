"""What is read from the output of Go's tests, and what is told of it."""

from pathlib import Path

import orjson
import pytest

from tests.upstream_suite.campaign import failing, joined, summary, to_run_again
from tests.upstream_suite.known import INCOMPARABLE, why_incomparable
from tests.upstream_suite.page import section, sections, write_page
from tests.upstream_suite.results import FAILED, PASSED, SKIPPED, UNFINISHED, Result, leaves, pattern, results

OUTPUT = """\
=== RUN   TestDRA
=== RUN   TestDRA/all
    dra.go:377: Config: --- PASS: is no result
=== RUN   TestDRA/all/Pod
=== PAUSE TestDRA/all/Pod
=== RUN   TestDRA/all/Taints
=== RUN   TestDRA/all/Taints/a_rule
=== RUN   TestDRA/all/Hangs
\x16--- FAIL: TestDRA/all/Taints (2.50s)
    --- FAIL: TestDRA/all/Taints/a_rule (2.25s)
\x16--- PASS: TestDRA/all/Pod (0.01s)
--- SKIP: TestDRA/all/Old (0.00s)
"""


def test_each_test_has_the_result_that_the_program_tells() -> None:
    assert results(OUTPUT) == {
        "TestDRA": Result(UNFINISHED),
        "TestDRA/all": Result(UNFINISHED),
        "TestDRA/all/Pod": Result(PASSED, 0.01),
        "TestDRA/all/Taints": Result(FAILED, 2.5),
        "TestDRA/all/Taints/a_rule": Result(FAILED, 2.25),
        "TestDRA/all/Hangs": Result(UNFINISHED),
        "TestDRA/all/Old": Result(SKIPPED),
    }


def test_only_tests_without_sub_tests_count() -> None:
    found = leaves(results(OUTPUT))
    assert [name.removeprefix("TestDRA/all/") for name in found] == ["Pod", "Taints/a_rule", "Hangs", "Old"]
    assert summary(found) == "1 passed, 1 failed, 1 unfinished, 1 skipped"


def test_a_test_fails_unless_it_passes_or_is_skipped_or_says_nothing_about_us() -> None:
    names = {"a": PASSED, "b": SKIPPED, "c": FAILED, "d": UNFINISHED, f"e/{next(iter(INCOMPARABLE))}": FAILED}
    assert failing({name: Result(outcome) for name, outcome in names.items()}, "v1.37.1") == ["c", "d"]


def test_a_program_that_ended_early_runs_again_as_a_whole_and_failed_tests_alone() -> None:
    crashed = {"T/a": Result(PASSED), "T/b": Result(UNFINISHED), "T/c": Result(FAILED)}
    assert to_run_again(crashed, "v1.37.1", "") == [""]
    later = {"T/a": Result(FAILED, tries=2), "T/b/x": Result(PASSED, tries=2), "T/c": Result(FAILED, tries=2)}
    found = joined(crashed, later)
    assert found == {"T/a": Result(PASSED), "T/b/x": Result(PASSED, tries=2), "T/c": Result(FAILED, tries=2)}
    assert to_run_again(found, "v1.37.1", "") == ["^(T)$/^(c)$"]


def test_what_cannot_be_compared_has_its_reason() -> None:
    assert "ends before" in why_incomparable("TestDRA/all/FilterTimeout/enabled", "v1.37.1")
    assert why_incomparable("TestDRA/all/FilterTimeout/disabled", "v1.37.1") == ""
    assert "1.36" in why_incomparable("TestDRA/all/PrioritizedList", "v1.36.3")
    assert "another form" in why_incomparable("TestDRA/all/DRANodeAllocatableResources/ClaimSharing", "v1.36.3")
    for name in ("PrioritizedList", "PrioritizedListScoring", "DRANodeAllocatableResources/ClaimSharing"):
        assert why_incomparable(f"TestDRA/all/{name}", "v1.37.1") == ""


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["TestDRA"], "^(TestDRA)$"),
        (["TestDRA/all/Pod"], "^(TestDRA)$/^(all)$/^(Pod)$"),
        (["T/a/b.c", "T/a/d"], r"^(T)$/^(a)$/^(b\.c|d)$"),
        (["T/a", "T/b/c"], "^(T)$/^(a|b)$"),
    ],
)
def test_go_runs_the_tests_of_a_pattern(names: list[str], expected: str) -> None:
    assert pattern(names) == expected


def test_the_page_has_a_row_for_each_test_that_differs_and_counts_the_others() -> None:
    found = {
        "in-tree": {"TestDRA/all/Pod": Result(PASSED), "TestDRA/all/FilterTimeout/enabled": Result(PASSED)},
        "dra-extender": {"TestDRA/all/Pod": Result(PASSED, tries=2), "TestDRA/all/New": Result(FAILED)},
    }
    lines = section("v1.37.1", found).splitlines()
    assert "3 tests: 2 pass in-tree, 1 with dra-extender; 1 can't be compared." in lines
    assert "Passed with both: all 1 (1 not at the first try)." in lines
    assert "| `all/New` | not run | failed |  |" in lines
    reason = INCOMPARABLE["FilterTimeout/enabled"]
    assert f"| `all/FilterTimeout/enabled` | passed | not run | {reason} |" in lines


def test_a_version_without_new_results_keeps_its_section(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Tests\n\n## v1.36.3\n\nold\n\n## v1.37.1\n\nkept\n")
    folder = tmp_path / "v1.36.3" / "in-tree" / "all"
    folder.mkdir(parents=True)
    (folder / "results.json").write_bytes(orjson.dumps({"TestDRA/all/Pod": {"outcome": PASSED}}))
    write_page(tmp_path, page)
    found = sections(page.read_text())
    assert list(found) == ["v1.36.3", "v1.37.1"]
    assert "`all/Pod` | passed | not run" in found["v1.36.3"]
    assert found["v1.37.1"] == "## v1.37.1\n\nkept\n"
