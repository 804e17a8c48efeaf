"""The programs `dra-extender` and `kubectl dra`: the tables of their commands, and how a command line is run.

Each command stands in the module that the table names, which is imported when the command is called.

Results go to standard output: tables for people on a terminal, plain aligned text in a pipe, JSON when asked for.
Errors and logs go to standard error.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from importlib import import_module
from typing import Annotated, Any, ClassVar, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from extender.faces.commands.options import application, command, spread
from extender.faces.commands.output import (
    USAGE,
    OutputError,
    end_at_once,
    fail,
    give_up_output,
    open_standard_streams,
    say,
)
from extender.faces.serving.memory import undisturbed
from extender.kube.api import ApiError, OutcomeUnknownError
from extender.tools.offload import in_one_piece
from extender.tools.user_error import UserError
from extender.tools.version import __version__

_EXTENDER: Final = "dra-extender"
"""Also if Python runs the package: completion depends on the name."""

_KUBECTL: Final = "kubectl dra"

_SERVE: Final = "serve"
"""Its libraries may have work to do when Python exits."""

_EXTENDER_HELP: Final = """A kube-scheduler extender that owns Dynamic Resource Allocation.

Exit codes: 0 success; 1 the manifests have errors, the audit finds a broken rule, the explained pod fits nowhere, \
`simulate --fail-on-pending` leaves a pod pending, `defragment --pod` has no proposal, or `config check` finds an \
invalid setting; 2 the command line or a setting is invalid, a file cannot be read, or standard output cannot be \
written.
"""

_KUBECTL_HELP: Final = """What dra-extender knows of this cluster: devices, claims, why pods wait, and what would help.

The leader of dra-extender is asked through the API server, by a port-forward that opens no port here. Where no service
can be asked, everything is computed in this process from the objects of the API server. Nothing is written.

Exit codes: 0 success; 1 the explained pod fits nowhere, or the manifests have errors; 2 the command line is invalid, or
nobody answers.
"""

_EXTENDER_COMMANDS: Final = {
    _SERVE: "serve:serve",
    "demo": "demo:demo",
    "validate": "validate:validate",
    "convert": "convert:convert",
    "simulate": "simulate:simulate",
    "audit": "audit:audit_command",
    "explain": "explain:explain",
    "defragment": "defragment:defragment_command",
    "usage": "lists:usage",
    "template": "template:template_command",
    "mock-driver": "node:mock_driver",
    "node": "node:node",
    "config": "config:app",
    "version": "main:version",
}
"""The commands of `dra-extender`: module and name of each, in the order of the help text."""

_KUBECTL_COMMANDS: Final = {
    "pending": "lists:pending",
    "explain": "explain:explain_at_place",
    "why-not": "explain:why_not",
    "devices": "lists:devices",
    "free": "lists:free",
    "claims": "lists:claims",
    "quota": "lists:quota",
    "gangs": "lists:gangs",
    "preemptions": "lists:preemptions",
    "problems": "lists:problems",
    "usage": "lists:usage",
    "simulate": "simulate:simulate_live",
    "what-if": "what_if:what_if",
    "top": "top:top",
}
"""The commands of `kubectl dra`."""


class _Table(Mapping[str, Any]):
    """The commands of a program by name; a command is imported when it is looked up."""

    def __init__(self, table: Mapping[str, str]) -> None:
        self._table = table

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - typer has a click of its own, and does not export it
        module, _, attribute = self._table[name].partition(":")
        with undisturbed():
            found = import_module(f"extender.faces.commands.{module}")
        declared = get_command(getattr(found, attribute))
        declared.name = name
        return declared

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


class _Commands(TyperGroup):
    """The commands of a program. What users did wrong, and what an API server does not answer, becomes a message."""

    table: ClassVar[Mapping[str, str]]

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - those of typer's own class
        super().__init__(**attributes)
        self.commands: MutableMapping[str, Any] = _Table(self.table)  # type: ignore[assignment]  # it is only read

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - as above
        """Run the command of a command line."""
        try:
            return super().invoke(ctx)
        except UserError as error:
            fail(*error.problems)
        except (ApiError, OutcomeUnknownError) as error:
            fail(str(error))


class _ExtenderCommands(_Commands):
    table = _EXTENDER_COMMANDS


class _KubectlCommands(_Commands):
    table = _KUBECTL_COMMANDS


def _print_version(name: str) -> Callable[..., None]:
    """Print the version, for the option --version of a program."""

    def printed(*, wanted: bool) -> None:
        if wanted:
            typer.echo(f"{name} {__version__}")
            raise typer.Exit

    return printed


def _common(name: str) -> Callable[..., None]:
    """The options of a program itself."""

    def common(
        *,
        version: Annotated[
            bool,
            typer.Option("--version", callback=_print_version(name), is_eager=True, help="Print the version and exit."),
        ] = False,
    ) -> None:
        del version

    return common


app = application(name=_EXTENDER, help=_EXTENDER_HELP, cls=_ExtenderCommands, add_completion=True)
app.callback()(_common(_EXTENDER))
kubectl_app = application(name=_KUBECTL, help=_KUBECTL_HELP, cls=_KubectlCommands)
kubectl_app.callback()(_common("kubectl-dra"))


@command()
def version() -> None:
    """Print the version."""
    typer.echo(f"{_EXTENDER} {__version__}")


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point of the console script ``dra-extender``."""
    given = sys.argv[1:] if arguments is None else arguments
    _run(app, spread(given, "--manifests", "-m"), _EXTENDER, ends_at_once=given[:1] != [_SERVE])


def kubectl_dra() -> None:
    """The entry point of the console script ``kubectl-dra``: kubectl runs it for the word ``dra``."""
    _run(kubectl_app, sys.argv[1:], _KUBECTL)


def _run(app: typer.Typer, arguments: Sequence[str], name: str, *, ends_at_once: bool = True) -> None:
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
            in_one_piece(partial(app, args=arguments, prog_name=name))
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
