"""Output of commands: results in the form that the user wants, messages, the exit codes, and the standard streams.

A command whose results cannot be written has failed. Messages that cannot be written are dropped.
"""

import errno
import io
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn, TextIO

from extender.tools.logs import write_all

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
import json
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

import typer
import yaml

from allocator.tools import printable_lines
from extender.tools.table import TextTable, print_table

_OUTPUT: Final = 1
_MESSAGES: Final = 2


class OutputError(Exception):
    """Standard output cannot be written. It is no OSError, so that no caller takes it for its own.

    Attributes:
        reader_has_gone: the reader has closed the pipe, as ``head`` does; this is no error for the user.
    """

    def __init__(self, error: OSError) -> None:
        self.reader_has_gone = error.errno == errno.EPIPE
        super().__init__(f"standard output cannot be written: {error.strerror}")


class _Output(io.FileIO):
    """Standard output."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            write_all(self.fileno(), memoryview(data))
        except OSError as error:
            raise OutputError(error) from error
        return memoryview(data).nbytes


class _Messages(io.FileIO):
    """Standard error; what cannot be written is dropped."""

    def write(self, data: "ReadableBuffer", /) -> int:
        with suppress(OSError):
            write_all(self.fileno(), memoryview(data))
        return memoryview(data).nbytes


def open_standard_streams() -> None:
    """Replace standard output and error, so that output takes every text or raises `OutputError`.

    Characters that an encoding lacks are written as escapes. The descriptor of a stream that was closed at the start is
    reserved: no file or connection that is opened later gets it.
    """
    while (opened := os.open(os.devnull, os.O_RDONLY)) <= _MESSAGES:
        pass
    os.close(opened)
    sys.stdout = _text(_Output(_OUTPUT, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Messages(_MESSAGES, "w", closefd=False), sys.stderr, by_line=True)


def give_up_output() -> None:
    """Discard what is still buffered: Python would try to write it at exit, and report an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, _OUTPUT)
    os.close(nowhere)


def end_at_once(status: int) -> NoReturn:
    """End the process once everything is written; functions that were registered for its exit are not called.

    At a usual exit, Python frees object after object, which takes 0.2 s for a cluster of 16,000 devices.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _text(raw: io.FileIO, like: TextIO | None, *, by_line: bool = False) -> io.TextIOWrapper:
    """A text stream with the encoding of another one; None: that one was closed."""
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=like.encoding if like else "utf-8",
        errors="backslashreplace",
        line_buffering=by_line or raw.isatty(),
    )


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
        print_table(table, sys.stdout)


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
