"""Tables for people: rich ones on a terminal, plain aligned text in a pipe."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from allocator.tools import printable

_WIDEST: Final = 300
"""Characters that a column is padded to; a longer cell sticks out, or thousands of rows would be as long as it."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """Columns by heading, and rows of as many cells."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""


def print_table(table: TextTable, console: Console) -> None:
    """Write the table in the way that suits the console."""
    if console.is_terminal:
        console.print(_rich(table))
    else:
        for line in plain_lines(table):
            console.file.write(f"{line}\n")
        console.file.flush()  # before what follows on standard error


def plain_lines(table: TextTable) -> list[str]:
    """Columns padded with spaces, as kubectl does: easy to cut, sort and compare. A row is one line."""
    lines: list[list[str]] = [[heading.upper() for heading in table.columns]]
    lines += [[printable(cell) for cell in row] for row in table.rows]
    widths = [min(_WIDEST, max(len(line[column]) for line in lines)) for column in range(len(table.columns))]
    padded = ["   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    return [*([table.title] if table.title else []), *(line.rstrip() for line in padded)]


def _rich(table: TextTable) -> RichTable:
    rich = RichTable(title=table.title or None, title_justify="left", pad_edge=False)
    for column in table.columns:
        rich.add_column(column, overflow="fold")
    for row in table.rows:
        rich.add_row(*(Text(printable(cell)) for cell in row))
    return rich
