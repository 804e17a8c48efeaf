"""Mistakes that are planted in the service, to see how many histories it takes until a law is broken."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import get_context
from typing import Any, Final
from unittest.mock import patch

from extender.cluster.cluster_state import ClusterState
from extender.cluster.live import Follower
from extender.cluster.writes.claims import Reservation
from extender.cluster.writes.writer import Writer
from extender.framework.bind.bind import Binder
from extender.kube.api import Event, EventType
from extender.kube.remote import RemoteApi
from extender.kube.resources import CLAIMS
from extender.plugins.gangs.plugin import GangPlugin
from extender.plugins.orphans import OrphanCollector
from extender.plugins.quota.plugin import QuotaPlugin
from extender.plugins.requeue.requeue import Requeue
from extender.plugins.requeue.rescan import Rescan
from tests.simulation.history import play
from tests.simulation.plan import plan_of


def _nothing(*_: object, **__: object) -> None:
    return None


async def _nothing_soon(*_: object, **__: object) -> None:
    return None


async def _takes_nothing_back(*_: object, **__: object) -> list[str]:
    return []


def _deaf_to_deleted_claims(self: ClusterState, event: Event, real: Callable[..., None] = ClusterState.apply) -> None:
    if event.resource != CLAIMS or event.type is not EventType.DELETED:
        real(self, event)


async def _binds_whatever_pod(
    self: RemoteApi, key: Any, node: str, *, real: Any = RemoteApi.bind_pod, **_: str
) -> None:
    await real(self, key, node, uid="")


async def _goes_on(self: Follower, error: Exception, real: Any = Follower._recover) -> float:
    since = self._since
    pause: float = await real(self, error)
    self._since = since
    return pause


MUTANTS: Final[Mapping[str, tuple[tuple[type, str, object], ...]]] = {
    "assumed allocations are not held": ((ClusterState, "assume", _nothing),),
    "claims that are deleted stay in the cache": ((ClusterState, "apply", _deaf_to_deleted_claims),),
    "an expired watch is not listed again": ((Follower, "_recover", _goes_on),),
    "nothing is checked before the Binding": ((Binder, "_check", _nothing),),
    "other replicas' allocations are not compared": ((Binder, "_check_against_others", _nothing),),
    "a refused bind takes nothing back": ((Binder, "_undo", _takes_nothing_back),),
    "orphans are not collected": ((OrphanCollector, "look", _nothing), (Binder, "_undo", _takes_nothing_back)),
    "a Binding has no preconditions": ((RemoteApi, "bind_pod", _binds_whatever_pod),),
    "every claim counts as reserved": ((Reservation, "is_made", lambda *_: True),),
    "a rejected pod is not woken": ((Writer, "wake", _nothing_soon),),
    "a quota is not asked": tuple(
        (QuotaPlugin, each, _nothing) for each in ("pre_filter", "reserve", "verify", "nominate")
    ),
    "a quota is asked before bind only": ((QuotaPlugin, "reserve", _nothing), (QuotaPlugin, "verify", _nothing)),
    "a quota is not asked again after the write": ((QuotaPlugin, "verify", _nothing),),
    "a gang is not waited for": ((GangPlugin, "pre_enqueue", _nothing),),
    "pods that wait are forgotten": ((Requeue, "look", _nothing_soon),),
    "pods that wait are not found after a start": ((Rescan, "tick", _nothing_soon),),
}
"""By what is wrong: what is replaced, and by what."""


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Within the context, the service has the mistake of this name."""
    with ExitStack() as stack:
        for owner, attribute, instead in MUTANTS[name]:
            stack.enter_context(patch.object(owner, attribute, instead))
        yield


def found_by(name: str, seeds: range, jobs: int) -> int | None:
    """The seed of the first history that shows a mistake; None: none of them does."""
    with get_context("spawn").Pool(jobs) as pool:
        for seed, is_broken in zip(seeds, pool.imap(partial(_is_broken, name), seeds), strict=True):
            if is_broken:
                return seed
    return None


def _is_broken(name: str, seed: int) -> bool:
    with planted(name):
        return play(plan_of(seed)).violation is not None
