"""Tables: aligned text in a pipe, a drawn table on a terminal, the same cells in both."""

from io import StringIO

from rich.console import Console

from extender.tools.table import TextTable, plain_lines, print_table

TABLE = TextTable(("pod", "reason"), [("ns/p", "3 no [free] device"), ("ns/longer", "-")], title="Pods")
LINES = ["Pods", "POD         REASON", "ns/p        3 no [free] device", "ns/longer   -"]


def test_plain_columns_are_aligned_without_trailing_spaces() -> None:
    assert plain_lines(TABLE) == LINES


def test_a_table_without_rows_is_its_headings() -> None:
    assert plain_lines(TextTable(("a", "b"), [])) == ["A   B"]


def test_a_pipe_gets_plain_text_of_any_width() -> None:
    out = StringIO()
    print_table(TextTable(("a",), [("x" * 500,)]), Console(file=out, force_terminal=False, width=80))
    assert out.getvalue().splitlines() == ["A", "x" * 500]


def test_a_long_cell_is_whole_and_makes_its_own_row_long_alone() -> None:
    """A claim may be reserved for 256 pods: a table of 10,000 claims must not have rows of that length."""
    first, *others = plain_lines(TextTable(["a", "b"], [["1", "2"], ["x" * 100_000, "3"], ["4", "5"]]))
    assert first.startswith("A ")
    assert others[1] == "x" * 100_000 + "   3"
    assert len(others[0]) == len(others[2]) < 500


def test_a_terminal_gets_a_drawn_table_with_every_cell() -> None:
    out = StringIO()
    print_table(TABLE, Console(file=out, force_terminal=True, width=80, color_system=None))
    text = out.getvalue()
    assert all(cell in text for row in TABLE.rows for cell in row)
    assert "─" in text or "━" in text
