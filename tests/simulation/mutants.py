"""Mistakes that are planted in the service, to see how many histories it takes until a law is broken."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from typing import Any, Final
from unittest.mock import patch

from extender.cluster.cluster_state import ClusterState
from extender.cluster.live import Follower
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.pods import Evictor
from extender.cluster.writes.reservations import Reservation
from extender.cluster.writes.writer import Writer
from extender.framework.bind.bind import Binder
from extender.framework.decisions.solver import Solver
from extender.framework.held_devices import Room
from extender.kube.api import Event, EventType
from extender.kube.remote import RemoteApi
from extender.kube.resources import CLAIMS
from extender.plugins.abandoned_claims import AbandonedClaims
from extender.plugins.gangs import gang
from extender.plugins.gangs.plugin import GangPlugin
from extender.plugins.orphans import OrphanCollector
from extender.plugins.preemption import evictions, preemptor
from extender.plugins.preemption.choice import Preemption
from extender.plugins.preemption.eviction_limits import EvictionLimits
from extender.plugins.preemption.preemptor import Preemptor
from extender.plugins.quota.plugin import QuotaPlugin
from extender.plugins.requeue.requeue import Requeue
from extender.plugins.requeue.rescan import Rescan
from tests.simulation.history import play
from tests.simulation.link import ADMISSION
from tests.simulation.plan import CRASH, CRASH_AT_WRITE, MADE_AGAIN_WHILE_BOUND, RELIST, RESTART, Plan
from tests.simulation.seeds import NARROW, plan_of

_REPLICAS: Final = "several replicas"
_ALONE: Final = "one replica"
_SOLE: Final = "one process from start to end"
_NARROW: Final = "narrow"


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


def _may_run_one_short(key: Any, pod: Any, size: int, snapshot: Any, real: Any = gang._may_run) -> bool:
    return bool(real(key, pod, size - 1, snapshot))


def _whoever_runs(other: Pod, _pod: Pod, _snapshot: Snapshot) -> bool:
    return bool(other.node_name) and not (other.deleting or other.is_finished)


async def _evicts_whomever(
    self: Evictor, victim: Pod, preemptor: Pod, is_waiting: Callable[[], bool], real: Any = Evictor._evict
) -> None:
    await real(self, victim, replace(preemptor, priority=2**31 - 1), is_waiting)


def _all_victims(found: Preemption, snapshot: Snapshot, _: Solver) -> tuple[Pod, ...]:
    return tuple(now for each in found.victims if (now := snapshot.pod(each.uid)) is not None)


MUTANTS: Final[Mapping[str, tuple[tuple[Any, str, object], ...]]] = {
    "assumed allocations are not held": ((ClusterState, "assume", _nothing),),
    "claims that are deleted stay in the cache": ((ClusterState, "apply", _deaf_to_deleted_claims),),
    "an expired watch is not listed again": ((Follower, "_recover", _goes_on),),
    "nothing is checked before the Binding": ((Binder, "_check", _nothing),),
    "other replicas' allocations are not compared": ((Binder, "_check_against_others", _nothing),),
    "a refused bind takes nothing back": ((Binder, "_undo", _takes_nothing_back),),
    "orphans are not collected": ((OrphanCollector, "look", _nothing), (Binder, "_undo", _takes_nothing_back)),
    "abandoned claims are not found": ((AbandonedClaims, "tick", _nothing_soon),),
    "a Binding has no preconditions": ((RemoteApi, "bind_pod", _binds_whatever_pod),),
    "every claim counts as reserved": ((Reservation, "is_made", lambda *_: True),),
    "a rejected pod is not woken": ((Writer, "wake", _nothing_soon),),
    "a quota is not asked": tuple(
        (QuotaPlugin, each, _nothing) for each in ("pre_filter", "reserve", "verify", "nominate")
    ),
    "a quota is asked before bind only": ((QuotaPlugin, "reserve", _nothing), (QuotaPlugin, "verify", _nothing)),
    "a quota is not asked again after the write": ((QuotaPlugin, "verify", _nothing),),
    "what is kept counts in no quota": ((QuotaPlugin, "nominate", _nothing),),
    "a gang is not waited for": ((GangPlugin, "pre_enqueue", _nothing),),
    "a gang may lack one pod": ((gang, "_may_run", _may_run_one_short),),
    "evictions have no caps": (
        (EvictionLimits, "refusal", _nothing),
        (EvictionLimits, "pause", lambda *_: 0.0),
    ),
    "victims are not looked at again": (
        (Preemptor, "_taking", _nothing),
        (preemptor, "still_needed", _all_victims),
    ),
    "a victim may be as important": (
        (evictions, "is_evictable", _whoever_runs),
        (Evictor, "_evict", _evicts_whomever),
    ),
    "what is kept is given to others": ((Room, "hold_kept", _nothing),),
    "pods that wait are forgotten": ((Requeue, "look", _nothing_soon),),
    "pods that wait are not found after a start": ((Rescan, "tick", _nothing_soon),),
}
"""By what is wrong: what is replaced, and by what."""

NEEDED: Final[Mapping[str, frozenset[str]]] = {
    "assumed allocations are not held": frozenset({_SOLE}),
    "an expired watch is not listed again": frozenset({_NARROW, RELIST}),
    "other replicas' allocations are not compared": frozenset({_REPLICAS}),
    "orphans are not collected": frozenset({"extended resources", CRASH_AT_WRITE}),
    "abandoned claims are not found": frozenset({_NARROW, "pinned"}),
    "a Binding has no preconditions": frozenset({MADE_AGAIN_WHILE_BOUND}),
    "a quota is not asked": frozenset({"quota"}),
    "a quota is asked before bind only": frozenset({_NARROW, "quota"}),
    "a quota is not asked again after the write": frozenset({_NARROW, "quota", _REPLICAS}),
    "what is kept counts in no quota": frozenset({_NARROW, "quota", "gangs", _REPLICAS, ADMISSION}),
    "a gang is not waited for": frozenset({"gangs"}),
    "a gang may lack one pod": frozenset({_NARROW, "gangs"}),
    "evictions have no caps": frozenset({"preemption"}),
    "victims are not looked at again": frozenset({_NARROW, "preemption"}),
    "a victim may be as important": frozenset({"preemption"}),
    "what is kept is given to others": frozenset({"preemption", _ALONE}),
    "pods that wait are not found after a start": frozenset({_NARROW, "a driver adds devices"}),
}
"""What a history has to have, so that a mistake makes a difference. Others are not played."""


@contextmanager
def planted(name: str) -> Iterator[Callable[[], None]]:
    """Within the context, the service has the mistake of this name, until the function that is yielded ends it."""
    with ExitStack() as stack:
        for owner, attribute, instead in MUTANTS[name]:
            stack.enter_context(patch.object(owner, attribute, instead))
        yield stack.close


def found_by(name: str, seeds: Sequence[int], jobs: int) -> int | None:
    """The seed of the first history that shows a mistake; None: none of them does."""
    seeds = [each for each in seeds if NEEDED.get(name, frozenset()) <= _parts(plan_of(each))]
    with get_context("spawn").Pool(jobs) as pool:
        for seed, is_broken in zip(seeds, pool.imap(partial(_is_broken, name), seeds), strict=True):
            if is_broken:
                return seed
    return None


def _parts(plan: Plan) -> frozenset[str]:
    """What a history has: capabilities, faults, how many replicas and processes, and whether it is narrow."""
    has = plan.has | plan.faults | ({_NARROW} if plan.seed >= NARROW else set())
    if plan.replicas > 1:
        return has | {_REPLICAS}
    sole = set() if plan.faults & {CRASH, RESTART, CRASH_AT_WRITE} else {_SOLE}
    return has | {_ALONE} | sole


def _is_broken(name: str, seed: int) -> bool:
    with planted(name) as ended:
        return play(plan_of(seed), ended).violation is not None
