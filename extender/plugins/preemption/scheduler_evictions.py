"""Evictions by kube-scheduler for pods with devices: what preempt has offered, and what became of it.

kube-scheduler evicts on one of the offered nodes, and nominates the pod to this node. So the nomination says which
evictions were made. Limits hold for them as for evictions by dra-extender.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.writer import Writer
from extender.framework.bind_errors import REFUSALS, BindError
from extender.framework.decisions.solver import Solver
from extender.framework.task import UNTIL_NEWS, BackgroundTask
from extender.framework.victims import Victims
from extender.kube.api import OutcomeUnknownError, WriteRefusedError
from extender.plugins.preemption.eviction_limits import (
    LOOKING_SECONDS,
    MOST_REFUSALS,
    Evicted,
    EvictionLimits,
    Option,
)
from extender.tools.offload import Offload

logger = structlog.get_logger()

OFFERED_SECONDS: Final = 30.0
"""If a pod is not nominated within this time after preempt, its scheduler has evicted nobody."""

BINDING_SECONDS: Final = 60.0
"""Pods were evicted in vain if the pod is not bound within this time after they have gone."""

_MOST_WOKEN: Final = 4
"""The most pods that are woken in a turn, each of another namespace."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """The victims that preempt has offered a scheduler for a pod.

    Attributes:
        options: by node.
        until: by the clock, when the scheduler has evicted nobody.
    """

    pod: Pod
    options: Mapping[str, Option]
    until: float


@dataclass(slots=True)
class _Made:
    """Evictions that were made.

    Attributes:
        victims: the uids of those that are known.
        node: where they were.
        gone: when they were gone, by the clock; None: one is there.
        refusals: how many binds were refused since then.
        cause: why the last one was refused.
    """

    pod: Pod
    evicted: Evicted
    victims: Collection[str]
    node: str
    gone: float | None = None
    refusals: int = 0
    cause: str = ""


class SchedulerEvictions(BackgroundTask):
    """Keeps to the limits of evictions what preempt offers to schedulers.

    Args:
        state: the cluster.
        limits: says who may evict now.
        solver: its clock and its faults count.
        writer: wakes pods that had to wait.
        off_loop: where the limits are looked at: there may be thousands of victims.
    """

    def __init__(
        self, state: ClusterState, limits: EvictionLimits, solver: Solver, writer: Writer, off_loop: Offload
    ) -> None:
        self._state = state
        self._limits = limits
        self._clock = solver.clock
        self._faults = solver.faults
        self._writer = writer
        self._off_loop = off_loop
        self._offers: dict[str, _Offer] = {}
        self._made: dict[str, _Made] = {}
        self._refused: dict[str, tuple[Pod, float]] = {}

    async def allowed(self, pod: Pod, offered: Mapping[str, Victims]) -> Mapping[str, Victims]:
        """The nodes where a scheduler may evict for a pod now. If there is none, the pod is tried again later."""
        snapshot = self._state.snapshot
        options, refused = await self._off_loop(
            lambda: self._limits.admit(pod, _known_victims(offered, snapshot), snapshot)
        )
        if options:
            self._offers[pod.uid] = _Offer(pod, options, self._clock() + OFFERED_SECONDS)
        elif refused:
            first = min(refused, key=lambda each: each.seconds)
            self._limits.count_refused(first)
            self._refused[pod.uid] = pod, self._clock() + min(first.seconds, LOOKING_SECONDS)
        return {node: offered[node] for node in options}

    def on_passed(self, pod: Pod) -> None:
        """The pod has a node: no pod is evicted for it."""
        self._refused.pop(pod.uid, None)

    def on_bind_failed(self, uid: str, node: str, error: BindError) -> None:
        """Refusals are counted."""
        made = self._made.get(uid)
        if made is not None and made.node == node and isinstance(error, REFUSALS):
            made.refusals += 1
            made.cause = error.why

    @property
    def idle_seconds(self) -> float:
        """Until a scheduler asks, if no eviction is followed."""
        return 0.0 if self._offers or self._made or self._refused else UNTIL_NEWS

    async def tick(self) -> None:
        """See which evictions were made, and what they were good for; wake pods that had to wait."""
        if self._state.not_ready:
            return
        for uid, offer in list(self._offers.items()):
            self._settle(uid, offer)
        for uid, made in list(self._made.items()):
            with self._faults.of(f"pod {made.pod}"):
                self._look_after(uid, made)
        for pod in self._due():
            if self._refused.pop(pod.uid, None) is None:
                continue  # while another pod was woken, filter has let this one pass
            try:
                await self._writer.wake(pod)
            except (WriteRefusedError, OutcomeUnknownError) as error:
                logger.info("pod not woken", pod=str(pod), error=str(error))
                self._refused.setdefault(pod.uid, (pod, self._clock() + LOOKING_SECONDS))

    def _settle(self, uid: str, offer: _Offer) -> None:
        pod, snapshot = self._state.snapshot.pod(uid), self._state.snapshot
        option = None if pod is None else offer.options.get(pod.nominated_node)
        if pod is not None and option is not None:
            del self._offers[uid]
            evicted = self._limits.note_evicted(pod, option, snapshot)
            self._made[uid] = _Made(pod, evicted, {each.uid for each in option[0]}, pod.nominated_node)
        elif pod is None or not pod.is_pending or self._clock() >= offer.until:
            del self._offers[uid]
            self._limits.drop_plan(uid)

    def _look_after(self, uid: str, made: _Made) -> None:
        snapshot, now = self._state.snapshot, self._clock()
        pod = snapshot.pod(uid)
        if pod is not None and pod.node_name:
            self._limits.note_served(made.evicted)
            del self._made[uid]
            return
        if made.gone is None and all(snapshot.pod(each) is None for each in made.victims):
            made.gone = now
        is_late = made.gone is not None and now >= made.gone + BINDING_SECONDS
        if pod is None or is_late or made.refusals >= MOST_REFUSALS:
            self._limits.note_in_vain(made.evicted, made.cause)
            del self._made[uid]

    def _due(self) -> Sequence[Pod]:
        """The pods to wake now: those that have waited longest of a few namespaces."""
        now, found = self._clock(), dict[str, Pod]()
        for uid, (pod, due) in sorted(self._refused.items(), key=lambda each: each[1][1]):
            known = self._state.snapshot.pod(uid)
            if known is None or not known.is_pending:
                del self._refused[uid]
            elif due <= now and len(found) < _MOST_WOKEN:
                found.setdefault(pod.namespace, known)
        return list(found.values())


def _known_victims(offered: Mapping[str, Victims], snapshot: Snapshot) -> Mapping[str, Option]:
    """The victims on each node that are known, and the number of all."""
    return {
        node: ([each for uid in victims.uids if (each := snapshot.pod(uid)) is not None], len(victims.uids))
        for node, victims in offered.items()
    }
