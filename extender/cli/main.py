"""The command line: `dra-extender`. Each command is a module, which is imported when the command is called.

Results go to standard output: tables for people on a terminal, plain aligned text in a pipe, JSON when asked for.
Errors and logs go to standard error.
"""

import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from extender.cli.messages import USAGE, say
from extender.cli.options import command_app, spread
from extender.cli.streams import OutputError, end_at_once, give_up_output, open_standard_streams
from extender.serving.garbage import undisturbed
from extender.tools.version import __version__

_EXIT_CODES: Final = (
    "Exit codes: 0 success; 1 the manifests have errors, the audit finds a broken rule, the explained pod fits "
    "nowhere, `simulate --fail-on-pending` leaves a pod pending, `defragment --pod` has no proposal, or `config check` "
    "finds an invalid setting; "
    "2 the command line or a setting is invalid, a file cannot be read, or standard output cannot be written."
)

_NAME: Final = "dra-extender"
"""Also if Python runs the package: completion depends on the name."""

_SERVE: Final = "serve"
"""Its libraries may have work to do when Python exits."""

_OTHERS: Final = (
    "validate",
    "convert",
    "simulate",
    "audit",
    "explain",
    "defragment",
    "template",
    "mock-driver",
    "node",
    "config",
    "version",
)
_COMMANDS: Final = (_SERVE, *_OTHERS)


class _Modules(Mapping[str, Any]):
    """The commands by name."""

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - typer has a click of its own, and does not export it
        if name not in _COMMANDS:
            raise KeyError(name)
        with undisturbed():
            module = import_module(f"extender.cli.{name.replace('-', '_')}")
        return get_command(module.app)

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


class _Commands(TyperGroup):
    """The commands; a command that is not called is not imported."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - those of typer's own class
        super().__init__(**attributes)
        self.commands: MutableMapping[str, Any] = _Modules()  # type: ignore[assignment]  # it is only read


app = command_app(
    _NAME,
    help_text=f"A kube-scheduler extender that owns Dynamic Resource Allocation.\n\n{_EXIT_CODES}",
    group=_Commands,
    add_completion=True,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point of the console script."""
    given = sys.argv[1:] if arguments is None else arguments
    run_app(app, spread(given, "--manifests", "-m"), _NAME, ends_at_once=given[:1] != [_SERVE])


def run_app(app: typer.Typer, arguments: Sequence[str], name: str, *, ends_at_once: bool = True) -> None:
    """Run a command line and exit.

    Args:
        app: the commands.
        arguments: without the name of the program.
        name: of the program, for its help texts.
        ends_at_once: nothing has to be done when Python exits.
    """
    open_standard_streams()
    try:
        try:
            app(args=arguments, prog_name=name)
        finally:
            sys.stdout.flush()
    except SystemExit as leaving:
        if isinstance(leaving.code, int) and ends_at_once:
            end_at_once(leaving.code)
        raise
    except OutputError as error:
        give_up_output()
        if not error.reader_has_gone:
            say(str(error))
        sys.exit(USAGE)


def _print_version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"dra-extender {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version
