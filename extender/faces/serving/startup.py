"""Messages about a start: what takes long, what the first lists have brought, and, on a terminal, where to look."""

import asyncio
import re
from collections.abc import Callable
from typing import Final

import structlog

from extender.cluster.cluster_state import ClusterState
from extender.kube.resources import RESOURCES

logger = structlog.get_logger()

PROGRESS_SECONDS: Final = 2.0
"""A start that takes longer says what it waits for, and again after each further time of this length."""

_LOOK_SECONDS: Final = 0.1

_MOST_NAMED: Final = 2
"""Kinds that a line on a terminal names."""

_EVERYWHERE: Final = re.compile(r"(?<=://)(?:0\.0\.0\.0|\[::\])(?=[:/]|$)")
"""The host of a service that listens on all addresses. Nobody can open it."""


async def tell_of_first_lists(state: ClusterState, draw: Callable[[str], None] | None = None) -> None:
    """Wait until every kind is listed; meanwhile say which ones are not, and at the end what there is.

    Args:
        state: of the cluster.
        draw: shows a line on a terminal in place of the one before, instead of lines in the log; empty: none.
    """
    clock = asyncio.get_running_loop().time
    began = clock()
    due = began + PROGRESS_SECONDS
    drawn = ""
    while state.not_ready:
        await asyncio.sleep(_LOOK_SECONDS)
        if not state.not_ready or clock() < due:
            continue
        if draw is None:
            due += PROGRESS_SECONDS
            objects = sum(state.count(resource) for resource in RESOURCES.values())
            seconds = round(clock() - began, 1)
            logger.info("reading the cluster", waiting_for=_missing(state), objects=objects, seconds=seconds)
        elif (line := _progress(state, clock() - began)) != drawn:
            draw(line)
            drawn = line
    if drawn and draw is not None:
        draw("")
    snapshot = state.snapshot
    pools = snapshot.inventory.pools
    logger.info(
        "cluster read",
        nodes=len(snapshot.nodes),
        pools=len(pools),
        devices=sum(pool.size for pool in pools.values()),
        claims=len(snapshot.claims),
        pods_with_devices=len(snapshot.pods),
        seconds=round(clock() - began, 1),
    )


def _missing(state: ClusterState) -> list[str]:
    return [resource.plural for resource in RESOURCES.values() if state.doubt_of(resource)]


def _progress(state: ClusterState, seconds: float) -> str:
    """What is not listed, then what is, which a narrow terminal may cut off: ``reading pods (3 s); nodes 5000``."""
    listed = [each for each in RESOURCES.values() if not state.doubt_of(each) and state.count(each)]
    counts = ", ".join(f"{each.plural} {state.count(each)}" for each in listed)
    missing = _missing(state)
    more = f" and {len(missing) - _MOST_NAMED} more kinds" if len(missing) > _MOST_NAMED else ""
    reading = f"reading {', '.join(missing[:_MOST_NAMED])}{more} ({seconds:.0f} s)"
    return f"{reading}; {counts}" if counts else reading


async def tell_where_to_look(url: str, is_serving: Callable[[], bool], say: Callable[[str], None]) -> None:
    """Wait until the service answers, and say which page a person can open."""
    answers = False
    while not answers:
        await asyncio.sleep(_LOOK_SECONDS)  # at least once: the lines of the start come first
        answers = is_serving()
    say(f"open {_EVERYWHERE.sub('127.0.0.1', url)}")
