"""`kubectl dra top`: nodes, waiting pods and decisions, live in the terminal."""

import sys
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Final

import typer

from extender.cli.messages import fail
from extender.cli.options import examples
from extender.kubectl.place import Place, at_place
from extender.kubectl.running import run
from extender.kubectl.sources.source import AnswerSource
from extender.kubectl.top_view import TopView, look

_NEEDED: Final = "textual"


@at_place
def top(
    *,
    seconds: Annotated[
        float,
        typer.Option(metavar="N", min=2, max=3600, help="Seconds between two looks; at least 10 without a service."),
    ] = 2.0,
    place: Place,
) -> None:
    """Nodes with their devices by state, waiting pods and the latest decisions, live. q ends it, r looks at once.

    It needs the extra top: pip install 'dra-extender[top]'. With -n, only pods of one namespace are shown.
    """
    if find_spec(_NEEDED) is None:
        fail("top needs textual: pip install 'dra-extender[top]'")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        fail("top needs a terminal; for a pipe, there are pending --watch and devices --watch")
    screen = import_module("extender.kubectl.top_screen")  # imported here, because textual is an extra

    async def show(source: AnswerSource) -> None:
        await screen.TopScreen(partial(_look, source, place.namespace), max(seconds, source.seconds)).run_async()

    run(place, show)


def add_command(app: typer.Typer) -> None:
    """Add the command to a group."""
    app.command(epilog=examples("kubectl dra top -A"))(top)


async def _look(source: AnswerSource, namespace: str) -> TopView:
    await source.refresh()
    return await look(source, namespace)
