"""What commands print: results in the form that the user wants, messages, and the exit codes that go with them."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Final, NoReturn

import typer
import yaml
from rich.console import Console

from allocator.tools import printable_lines
from extender.observe.tables.terminal import TextTable, print_table

OK: Final = 0
FOUND_PROBLEMS: Final = 1
USAGE: Final = 2


def print_result(
    output: StrEnum,
    *,
    names: Callable[[], Iterable[str]],
    data: Callable[[], object],
    table: Callable[[], TextTable],
) -> None:
    """Print a result in one of the forms; a table without rows is not printed.

    Args:
        output: the form; what is neither ``name`` nor ``json`` nor ``yaml`` is a table.
        names: of the objects that the result is about.
        data: the result for programs.
        table: the result for people.
    """
    match output.value:
        case "name":
            print_lines(names())
        case "json" | "yaml":
            print_data(data(), output)
        case _:
            show_table(table())


def show_table(table: TextTable) -> None:
    """Print a table, if it has rows."""
    if table.rows:
        print_table(table, Console(file=sys.stdout))


def print_data(value: object, form: StrEnum) -> None:
    """Print a value as JSON or YAML, in ASCII: that is fit for every terminal, and every text can be written."""
    if form.value == "yaml":
        # What JSON cannot say, YAML need not say: the detour makes plain lists and maps of tuples and named tuples.
        typer.echo(yaml.safe_dump(json.loads(json.dumps(value)), sort_keys=False), nl=False)
    else:
        typer.echo(json.dumps(value, indent=2))


def first_of(names: Sequence[str], most: int) -> str:
    """Some names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def print_lines(lines: Iterable[str]) -> None:
    """Print one text a line."""
    for line in lines:
        typer.echo(printable_lines(line))


def note(*messages: str) -> None:
    """Say what is good to know."""
    _print("note", messages)


def warn(*messages: str) -> None:
    """Say what may be wrong."""
    _print("warning", messages)


def say(*messages: str) -> None:
    """Say what is wrong; the command goes on."""
    _print("error", messages)


def refuse(problems: Iterable[object]) -> None:
    """End the command if there are problems in what it was given."""
    texts = tuple(map(str, problems))
    say(*texts)
    if texts:
        raise typer.Exit(FOUND_PROBLEMS)


def fail(*messages: str) -> NoReturn:
    """End the command, which cannot be done as it was called."""
    say(*messages)
    raise typer.Exit(USAGE)


def _print(level: str, messages: Iterable[str]) -> None:
    for message in messages:
        typer.echo(f"{level}: {printable_lines(message)}", err=True)
