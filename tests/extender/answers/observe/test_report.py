"""Tables: aligned text, the same on a terminal and in a pipe."""

import io
import sys

import pytest

from extender.faces.commands.output import show_table
from extender.tools.table import TextTable, plain_lines

TABLE = TextTable(("pod", "reason"), [("ns/p", "3 no [free] device"), ("ns/longer", "-")], title="Pods")
LINES = ["Pods", "POD         REASON", "ns/p        3 no [free] device", "ns/longer   -"]


def test_plain_columns_are_aligned_without_trailing_spaces() -> None:
    assert plain_lines(TABLE) == LINES


def test_a_table_without_rows_is_its_headings() -> None:
    assert plain_lines(TextTable(("a", "b"), [])) == ["A   B"]


def test_a_long_cell_is_whole_and_makes_its_own_row_long_alone() -> None:
    """A claim may be reserved for 256 pods: a table of 10,000 claims must not have rows of that length."""
    first, *others = plain_lines(TextTable(["a", "b"], [["1", "2"], ["x" * 100_000, "3"], ["4", "5"]]))
    assert first.startswith("A ")
    assert others[1] == "x" * 100_000 + "   3"
    assert len(others[0]) == len(others[2]) < 500


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_a_terminal_gets_the_same_as_a_pipe(stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    shown = stream()
    monkeypatch.setattr(sys, "stdout", shown)
    show_table(TABLE)
    assert shown.getvalue().splitlines() == LINES
