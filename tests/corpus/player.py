"""Plays worlds: each from its number alone, with a fixed number of calls."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from traceback import format_exc
from typing import Final

from prometheus_client import disable_created_metrics, enable_created_metrics

from tests.corpus.autoscaling import autoscale
from tests.corpus.chance import without_chance
from tests.corpus.happenings import happen
from tests.corpus.log import Log
from tests.corpus.questions import err, explain, look, what_if
from tests.corpus.recording import Entry
from tests.corpus.scheduler import schedule
from tests.corpus.simulations import simulations
from tests.corpus.stage import Stage, in_one_thread, stage
from tests.corpus.worlds import FEATURES, POLICIES, world
from tests.kit import virtualtime

WORLDS: Final = len(FEATURES) * len(POLICIES)
"""Each feature is in the middle of a world with each policy."""
CALLS: Final = 20
"""Calls of each world; all worlds have `WORLDS` times as many."""

_SIMULATIONS: Final = 2
"""Calls of the command line, at the end of a world; the other ones go before."""


class WorldError(Exception):
    """A world cannot be played; the text has the traceback of the error."""


def play(number: int) -> list[Entry]:
    """The entries of a world.

    Raises:
        WorldError: with an error that another process can read, whatever the error was.
    """
    try:
        return _entries(number)
    except Exception:  # noqa: BLE001 - told to the caller as a text
        raise WorldError(f"world {number}: {format_exc()}") from None


def _entries(number: int) -> list[Entry]:
    log = Log()
    with TemporaryDirectory() as folder, without_chance(), log.taking():
        with in_one_thread(), _timeless_metrics():
            played = virtualtime.run(_played(number, Path(folder), log))
        return [*played.entries, *simulations(played, _SIMULATIONS, Path(folder))]


@contextmanager
def _timeless_metrics() -> Iterator[None]:
    """Within the context, metrics do not tell when they were made, by the clock of the machine."""
    disable_created_metrics()  # type: ignore[no-untyped-call]  # the package has no type for it
    try:
        yield
    finally:
        enable_created_metrics()  # type: ignore[no-untyped-call]  # the same


async def _played(number: int, folder: Path, log: Log) -> Stage:
    async with stage(world(number), folder, log) as found:
        await schedule(found, 3)
        while found.calls < CALLS - _SIMULATIONS:
            draw = found.draw
            if draw(0.45):
                await happen(found)
            await draw.of(_ACTS)(found)
        return found


async def _at_once(found: Stage) -> None:
    """Pods come, and the scheduler asks before Kubernetes' controllers have made their claims."""
    if found.world.comes:
        found.load(*found.world.comes.pop())
    controllers = asyncio.create_task(_controllers(found))
    await schedule(found, 2)
    await controllers


async def _controllers(found: Stage) -> None:
    await virtualtime.elapse(found.draw.of([0.01, 0.2, 1.0]))
    await found.cluster.settle()


async def _scheduled(found: Stage) -> None:
    await schedule(found, found.draw.number(1, 4))
    if not found.pending():
        await look(found)


_ACTS: Final = (
    *(_scheduled, _scheduled, _scheduled, _scheduled, _at_once, _at_once),
    *(explain, explain, explain, what_if, what_if, autoscale, autoscale, look, look, err),
)
