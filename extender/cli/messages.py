"""What commands print besides their results, their exit codes, and results as JSON or YAML."""

import json
import sys
from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NoReturn

import typer
import yaml
from rich.console import Console

from allocator.tools import printable_lines

OK: Final = 0
FOUND_PROBLEMS: Final = 1
USAGE: Final = 2


def stdout() -> Console:
    """Standard output, for tables."""
    return Console(file=sys.stdout)


def print_data(value: object, form: StrEnum) -> None:
    """Print a value as JSON or YAML, in ASCII: that is fit for every terminal, and every text can be written."""
    if form.value == "yaml":
        # What JSON cannot say, YAML need not say: the detour makes plain lists and maps of tuples and named tuples.
        typer.echo(yaml.safe_dump(json.loads(json.dumps(value)), sort_keys=False), nl=False)
    else:
        typer.echo(json.dumps(value, indent=2))


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
