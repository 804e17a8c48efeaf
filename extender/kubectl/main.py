"""`kubectl dra`, the console script ``kubectl-dra``: kubectl runs it for the word ``dra``."""

import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from extender.cli.main import run_app
from extender.cli.options import command_app
from extender.kubectl.commands import simulate, top, what_if
from extender.kubectl.commands.lists_and_explanations import add_commands
from extender.tools.version import __version__

_NAME: Final = "kubectl dra"

_HELP: Final = """What dra-extender knows of this cluster: devices, claims, why pods wait, and what would help.

The leader of dra-extender is asked through the API server, by a port-forward that opens no port here. Where no service
can be asked, everything is computed in this process from the objects of the API server. Nothing is written.

Exit codes: 0 success; 1 the explained pod fits nowhere, or the manifests have errors; 2 the command line is invalid, or
nobody answers.
"""

app = command_app(_NAME, help_text=_HELP, add_completion=False)
add_commands(app)
simulate.add_command(app)
what_if.add_command(app)
top.add_command(app)


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point of the console script."""
    run_app(app, sys.argv[1:] if arguments is None else arguments, _NAME)


def _print_version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"kubectl-dra {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version
