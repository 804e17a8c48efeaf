"""What is told of a start: what takes long, what the first lists have brought, and, on a terminal, where to look."""

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

_EVERYWHERE: Final = re.compile(r"(?<=://)(?:0\.0\.0\.0|\[::\])(?=[:/]|$)")
"""The host of a service that listens on all addresses. Nobody can open it."""


async def tell_of_first_lists(state: ClusterState) -> None:
    """Wait until every kind is listed; meanwhile say which ones are not, and at the end what there is."""
    clock = asyncio.get_running_loop().time
    began = clock()
    due = began + PROGRESS_SECONDS
    while state.not_ready:
        await asyncio.sleep(_LOOK_SECONDS)
        if state.not_ready and clock() >= due:
            due += PROGRESS_SECONDS
            kinds = RESOURCES.values()
            missing = [resource.plural for resource in kinds if state.doubt_of(resource)]
            objects = sum(state.count(resource) for resource in kinds)
            logger.info("reading the cluster", waiting_for=missing, objects=objects, seconds=round(clock() - began, 1))
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


async def tell_where_to_look(url: str, is_serving: Callable[[], bool], say: Callable[[str], None]) -> None:
    """Wait until the service answers, and say which page a person can open."""
    answers = False
    while not answers:
        await asyncio.sleep(_LOOK_SECONDS)  # at least once: the lines of the start come first
        answers = is_serving()
    say(f"open {_EVERYWHERE.sub('127.0.0.1', url)}")
