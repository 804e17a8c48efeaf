"""The corpus: its worlds are the same each time, and a difference is found and told."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.corpus.__main__ import CorpusError, recording_of
from tests.corpus.comparing import any_order, differences, report
from tests.corpus.player import CALLS, WORLDS, play
from tests.corpus.recording import DIGESTS, TEXTS, Entry, read, write
from tests.corpus.worlds import FEATURES, POLICIES, world

BOUND = Entry("world-001/00", "bind ns/p a", "POST /bind", 200, {"content-type": "application/json"}, "{}")
WRITES = (
    {"write": "patch pods ns/p", "asked": {"metadata": {"resourceVersion": "7"}}},
    {"write": "bind pods ns/p", "asked": {"node": "a"}},
)
ANSWERED = Entry(
    "world-001/01", "filter ns/q", "POST /filter", 200, {}, '{"NodeNames": ["a"], "FailedNodes": {}}', WRITES
)


@pytest.mark.parametrize("number", [0, 37])
def test_a_world_is_the_same_each_time(number: int) -> None:
    entries = play(number)
    assert sum(each.is_call for each in entries) >= CALLS
    assert play(number) == entries


def test_each_feature_and_each_policy_has_worlds() -> None:
    worlds = [world(number) for number in range(WORLDS)]
    assert {feature for each in worlds for feature in each.has} == {*FEATURES}
    assert {each.settings["scheduling"]["policy"] for each in worlds} == {*POLICIES}


def test_equal_recordings_are_equal_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert write([BOUND, ANSWERED], tmp_path / name) == 2
    for file in (TEXTS, DIGESTS):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    assert list(read(tmp_path / "one")) == [BOUND, ANSWERED]


def told(before: Iterable[Entry], after: Iterable[Entry]) -> list[str]:
    return list(report(differences(iter(before), iter(after)), 5))


def test_equal_recordings_have_no_difference() -> None:
    assert told([BOUND, ANSWERED], [BOUND, ANSWERED]) == ["no difference"]


def test_the_first_difference_of_a_world_is_told_field_by_field() -> None:
    refused = replace(ANSWERED, body='{"NodeNames": [], "FailedNodes": {}}')
    lines = told([BOUND, ANSWERED, replace(ANSWERED, place="world-001/02")], [BOUND, refused])
    assert lines[0] == "2 entries of 1 worlds differ: 2 filter"
    assert "world-001/01 filter ns/q" in lines
    assert [line for line in lines if line.startswith(("  -", "  +"))] == [
        '  -body:  "NodeNames": [',
        '  -body:   "a"',
        "  -body:  ],",
        '  +body:  "NodeNames": [],',
    ]


def test_another_call_in_the_place_of_one_is_named_and_not_compared() -> None:
    lines = told([BOUND, ANSWERED], [replace(ANSWERED, place=BOUND.place), replace(BOUND, place=ANSWERED.place)])
    assert lines[-2:] == ["  before: bind ns/p a", "  after: filter ns/q"]


def test_an_entry_that_one_recording_lacks_is_a_difference() -> None:
    assert "  only before" in told([BOUND, ANSWERED], [BOUND])
    assert "  only after" in told([BOUND], [BOUND, ANSWERED])


def test_revisions_and_the_order_of_writes_may_be_passed_over() -> None:
    first, second = WRITES
    other = replace(ANSWERED, writes=(second, {**first, "asked": {"metadata": {"resourceVersion": "8"}}}))
    assert told([ANSWERED], [other]) != ["no difference"]
    assert told(any_order(iter([ANSWERED])), any_order(iter([other]))) == ["no difference"]


def test_what_is_neither_a_recording_nor_a_revision_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(CorpusError, match="neither a folder with a recording nor a revision"),
        recording_of(str(tmp_path), []),
    ):
        pass
