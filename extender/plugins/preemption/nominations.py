"""Nominations: pods for which devices are kept, from the choice of their victims until they are bound.

A nomination ends when the pod is bound or gone, when it can't get its devices any more, or `KEPT_SECONDS` after its
victims have gone. Until then the pod waits for its devices, but at most `WAITING_SECONDS`: some victims take hours to
terminate, or are on a node that is down. What is kept for a pod that is bound ends in the pod's status, too.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram

from allocator import DeviceId
from allocator.tools import Recent
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import holders_near, users_of
from extender.cluster.kinds import Topic
from extender.cluster.objects.pods import Keeping, Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.pods import Nominator
from extender.framework.bind_errors import REFUSALS, BindError
from extender.framework.decisions.solver import Solver
from extender.framework.held_devices import are_leaving
from extender.framework.task import UNTIL_NEWS, BackgroundTask
from extender.kube.api import ObjectKey, OutcomeUnknownError, WriteRefusedError, revision
from extender.planning.kube_scheduler import rejection
from extender.plugins.preemption.eviction_limits import MOST_REFUSALS, Evicted, EvictionLimits
from extender.tools.metrics import WAITING_SECONDS as WAITING_BUCKETS
from extender.tools.table import Item, Row, TableView, matches

logger = structlog.get_logger()

KEPT_SECONDS: Final = 60.0
"""A nomination lasts this time after the victims have gone: by then a scheduler has tried the pod, or never will."""

WAITING_SECONDS: Final = 60.0
"""The longest time that a pod waits for its own devices although it might get others."""

CHECK_SECONDS: Final = 3.0
"""Between two checks whether the pod can still get what is kept for it. After two in a row that fail, the nomination
ends: a driver that publishes its devices anew takes less time."""

RETRY_SECONDS: Final = 20.0
"""After a bind that has failed, a nomination lasts this time at least: kube-scheduler tries a pod again after 10 s at
the latest."""

_MOST_ENDED: Final = 1024
"""At most this number of nominations is remembered that dra-extender has ended, until the watch shows their end."""


@dataclass(slots=True)
class Nomination:
    """A pod for which devices are kept.

    Attributes:
        keeping: the devices that are kept, their node, and the victims.
        since: when the victims were chosen, in seconds of the clock.
        victims: how many pods were evicted for it.
        free_since: since when no terminating pod holds devices that the node reaches; None while one does.
        leaving_since: since when all victims are gone or terminating; None while one is not.
        checked: when it was checked last whether the pod can get what is kept for it.
        is_lost: the last check has failed.
        evicted: the latest evictions for the pod; None: this process has evicted no pod for it.
        failed: when a bind of the pod has failed last; None: none has.
        refusals: how many binds were refused.
        cause: why the last one was refused; empty if none was.
    """

    pod: Pod
    keeping: Keeping
    since: float
    victims: int = 0
    free_since: float | None = None
    leaving_since: float | None = None
    checked: float = 0.0
    is_lost: bool = False
    evicted: Evicted | None = None
    failed: float | None = None
    refusals: int = 0
    cause: str = ""

    def is_retried(self, now: float) -> bool:
        """Whether a bind has failed not long ago, so that the pod's scheduler tries the pod again."""
        return self.failed is not None and now < self.failed + RETRY_SECONDS


class OutcomeMetrics:
    """Counts what victims of preemptions were good for."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._in_vain = Counter(
            "dra_extender_preemption_victims_in_vain",
            "Evicted pods whose devices the pod did not take, although the node and the devices were left for it.",
            registry=registry,
        )
        self._seconds = Histogram(
            "dra_extender_preemption_duration_seconds",
            "Time from the choice of the victims until the pod is bound.",
            buckets=WAITING_BUCKETS,
            registry=registry,
        )

    def in_vain(self, victims: int) -> None:
        """A pod did not take the devices of this number of victims."""
        self._in_vain.inc(victims)

    def took(self, seconds: float) -> None:
        """A pod was bound to the node where victims were evicted for it."""
        self._seconds.observe(seconds)


class Nominations:
    """The nominations of a cluster, also those that another process has written.

    Args:
        state: the cluster.
        solver: its clock and its features count.
        nominator: writes nominations.
        is_binding: whether a bind of the pod with this uid is running.
        metrics: counts what victims were good for.
        limits: remember evictions in vain.
        planned: the cluster after all chosen preemptions.
    """

    def __init__(
        self,
        state: ClusterState,
        solver: Solver,
        nominator: Nominator,
        is_binding: Callable[[str], bool],
        metrics: OutcomeMetrics,
        limits: EvictionLimits,
        planned: Callable[[], Snapshot],
    ) -> None:
        self._state = state
        self._solver = solver
        self._nominator = nominator
        self._is_binding = is_binding
        self._metrics = metrics
        self._limits = limits
        self._planned = planned
        self._known: dict[str, Nomination] = {}
        self._ended: Recent[int] = Recent(_MOST_ENDED)

    def of(self, pod: Pod, keeping: Keeping) -> Nomination:
        """The nomination of a pod. It begins now if it is not known."""
        now = self._solver.clock()
        return self._known.setdefault(pod.uid, Nomination(pod, keeping, since=now, checked=now))

    @property
    def has_some(self) -> bool:
        """Whether there are nominations to look after."""
        return bool(self._known)

    def is_ended(self, pod: Pod) -> bool:
        """Whether dra-extender has ended the nomination of this pod, and the watch does not show that yet."""
        return revision(pod.resource_version) <= (self._ended.find(pod.uid) or 0)

    async def look_after(self, chosen: Collection[str]) -> None:
        """End the nominations whose time is up. ``chosen``: uids of pods whose victims are being checked."""
        snapshot = self._state.snapshot
        for name in snapshot.nominated:
            for pod in snapshot.nominated_to(name):
                is_known = pod.kept.node and pod.uid not in snapshot.woken
                if is_known and not self._solver.plugins.keeper(pod, snapshot):
                    self.of(pod, pod.kept)
        for nomination in list(self._known.values()):
            with self._solver.faults.of(f"pod {nomination.pod}"):
                await self._look_after(nomination, chosen)

    def due(self, chosen: Collection[str]) -> Sequence[Pod]:
        """The pods for which it is to be checked whether they can get what is kept for them. ``chosen``: as above."""
        now, found = self._solver.clock(), []
        for uid, nomination in self._known.items():
            pod = self._state.snapshot.pod(uid)
            is_idle = uid not in chosen and not self._is_binding(uid) and now >= nomination.checked + CHECK_SECONDS
            if is_idle and pod is not None and pod.is_pending and pod.kept.node:
                nomination.checked = now
                found.append(pod)
        return found

    def bind_failed(self, uid: str, node: str, error: BindError) -> None:
        """A pod was not bound to a node. Its devices are kept until the next try, but refusals are counted."""
        nomination = self._known.get(uid)
        if nomination is None or nomination.keeping.node != node:
            return
        nomination.failed = self._solver.clock()
        if isinstance(error, REFUSALS):
            nomination.refusals += 1
            nomination.cause = error.why

    async def checked(self, pod: Pod, *, is_lost: bool) -> None:
        """A pod was checked. ``is_lost``: it can't get what is kept for it, even if its victims go."""
        nomination = self.of(pod, pod.kept)
        if is_lost and nomination.is_lost and not nomination.is_retried(self._solver.clock()):
            await self.give_up(pod, f"the pod can't get devices on node {pod.kept.node} any more")
        nomination.is_lost = is_lost

    async def give_up(self, pod: Pod, why: str) -> None:
        """End a nomination. The write wakes the pod's scheduler. Once the pod is rejected, it may preempt again."""
        self._forget(pod.uid)
        try:
            before = await self._nominator.end(pod, why)
            if before is not None:
                self._ended.keep(pod.uid, revision(before.resource_version))
        except (WriteRefusedError, OutcomeUnknownError) as error:
            logger.info("nomination not ended", pod=str(pod), error=str(error))

    async def _look_after(self, nomination: Nomination, chosen: Collection[str]) -> None:
        snapshot, uid, now = self._state.snapshot, nomination.pod.uid, self._solver.clock()
        pod = snapshot.pod(uid)
        if pod is None or not pod.is_pending:
            del self._known[uid]
            if nomination.victims:
                self._count_outcome(nomination, "" if pod is None else pod.node_name)
            return
        if uid in chosen or self._is_binding(uid):
            return
        if not pod.kept.node:
            self._forget(uid)
            return
        nomination.free_since = _since(nomination.free_since, now, holds=not self._is_waiting(pod, snapshot))
        is_leaving = bool(pod.kept.victims) and are_leaving(pod.kept, snapshot)
        nomination.leaving_since = _since(nomination.leaving_since, now, holds=is_leaving)
        if nomination.refusals >= MOST_REFUSALS:
            await self.give_up(pod, f"the pod was not bound: {nomination.cause}")
        elif _has_passed(nomination.free_since, KEPT_SECONDS, now) and not nomination.is_retried(now):
            await self.give_up(pod, "the pod was not bound in time")
        elif _has_passed(nomination.leaving_since, WAITING_SECONDS, now):
            await self._let_go(pod)

    def _is_waiting(self, pod: Pod, snapshot: Snapshot) -> bool:
        """Whether a pod near the kept node is terminating."""
        node = snapshot.nodes.get(pod.kept.node)
        return node is not None and any(each.deleting for each in holders_near(node, snapshot, self._solver.features))

    async def _let_go(self, pod: Pod) -> None:
        """Let the pod take other devices from now on. The write wakes the pod's scheduler."""
        try:
            await self._nominator.let_go(pod)
        except (WriteRefusedError, OutcomeUnknownError) as error:
            logger.info("pod not let go", pod=str(pod), error=str(error))

    def _count_outcome(self, nomination: Nomination, bound_to: str) -> None:
        """Count what the victims of a pod were good for that waits no more. ``bound_to``: empty if it is gone."""
        if bound_to and nomination.evicted is not None:
            self._limits.note_served(nomination.evicted)
        if bound_to == nomination.keeping.node:
            self._metrics.took(self._solver.clock() - nomination.since)
        else:
            self._count_unused(nomination, is_bound=bool(bound_to))

    def _count_unused(self, nomination: Nomination, *, is_bound: bool = False) -> None:
        if not _is_in_vain(nomination.pod, nomination.keeping, self._planned()):
            return
        self._metrics.in_vain(nomination.victims)
        if nomination.evicted is not None and not is_bound:
            self._limits.note_in_vain(nomination.evicted, nomination.cause)

    def _forget(self, uid: str) -> None:
        """Count that the pod does not take the devices of its victims."""
        nomination = self._known.pop(uid, None)
        if nomination is not None:
            self._count_unused(nomination)


def _since(before: float | None, now: float, *, holds: bool) -> float | None:
    """Since when something holds, in seconds of the clock; None if it does not."""
    if not holds:
        return None
    return now if before is None else before


def _has_passed(since: float | None, seconds: float, now: float) -> bool:
    return since is not None and now - since > seconds


def _is_in_vain(pod: Pod, keeping: Keeping, snapshot: Snapshot) -> bool:
    """Whether the victims of a preemption were evicted in vain.

    Victims do not count if a pod of higher priority has one of the devices, or will have one: they were evicted for
    that pod. Victims do not count if kube-scheduler rejects the node now, for example because the node is drained, or
    if one of the devices is not published any more: dra-extender did not decide this.

    Args:
        pod: a pod that does not use the devices that were kept for it.
        keeping: these devices, and their node.
        snapshot: the cluster.
    """
    node = snapshot.nodes.get(keeping.node)
    if node is None or rejection(pod.requirements, node):
        return False
    devices = frozenset(keeping.devices)
    return len(snapshot.inventory.published(devices)) == len(devices) and not _is_overtaken(pod, devices, snapshot)


def _is_overtaken(pod: Pod, devices: frozenset[DeviceId], snapshot: Snapshot) -> bool:
    waiting = (other for node in snapshot.nominated for other in snapshot.nominated_to(node))
    will = any(other.priority > pod.priority and not devices.isdisjoint(other.kept.devices) for other in waiting)
    return will or any(_highest_priority(uid, snapshot) > pod.priority for uid in _holders(devices, snapshot))


def _holders(devices: Collection[DeviceId], snapshot: Snapshot) -> set[str]:
    """The uids of the claims that hold one of the devices."""
    claims = {uid for device in devices for uid in snapshot.holders.get(device.pool_id, ())}
    return {
        uid
        for uid in claims
        if any(result.device in devices for allocation in snapshot.held_by(uid) for result in allocation.results)
    }


def _highest_priority(claim_uid: str, snapshot: Snapshot) -> float:
    """The highest priority of the pods that use a claim, or for which it is being allocated."""
    claim, assumed = snapshot.claim(claim_uid), snapshot.assumed.get(claim_uid)
    users = [] if claim is None else list(users_of(claim.claim, snapshot))
    other = None if assumed is None else snapshot.pod(assumed.pod_uid)
    return max((user.priority for user in (*users, *filter(None, [other]))), default=float("-inf"))


MOST_WRITES: Final = 8
"""The most writes in a turn. The devices are safe already, so this is not urgent."""


class KeptOfBound(BackgroundTask):
    """Writes that nothing is kept any more for pods that are bound.

    Args:
        state: the cluster.
        nominator: writes what is kept.
    """

    def __init__(self, state: ClusterState, nominator: Nominator) -> None:
        self._state = state
        self._nominator = nominator
        self._seen = -1
        self._due: dict[ObjectKey, None] = {}

    @property
    def idle_seconds(self) -> float:
        """Until pods change, if none is left."""
        return 0.0 if self._due else UNTIL_NEWS

    async def tick(self) -> None:
        """End what is kept for some pods. What could not be written is left: nothing depends on it."""
        if self._state.not_ready:
            return
        self._note_changes()
        for key in list(self._due)[:MOST_WRITES]:
            del self._due[key]
            pod = self._state.snapshot.pods.get(key)
            if pod is not None and _has_kept(pod):
                with suppress(WriteRefusedError, OutcomeUnknownError):
                    await self._nominator.end(pod, "the pod is bound")

    def _note_changes(self) -> None:
        """Note the pods that have got a node since the last turn; in the first turn, all that have one."""
        snapshot = self._state.snapshot
        changed = self._state.since(self._seen).keys(Topic.POD)
        self._seen = snapshot.version
        for key in snapshot.pods if changed is None else changed:
            pod = snapshot.pods.get(key)
            if pod is not None and _has_kept(pod):
                self._due[key] = None


def _has_kept(pod: Pod) -> bool:
    return bool(pod.node_name and pod.kept.node) and not pod.deleting and not pod.is_finished


class PreemptionState(Enum):
    """How far the evictions for a pod have come."""

    CHOSEN = "chosen"
    """A victim is not terminating yet."""
    TERMINATING = "terminating"
    """All victims that are still there terminate."""
    GONE = "gone"
    """No victim is there any more: devices are kept for the pod until it is bound."""
    BY_SCHEDULER = "by the scheduler"
    """The pod's scheduler has nominated it to a node, for want of something else than devices."""


def preemptions(snapshot: Snapshot, *, namespace: str = "") -> TableView:
    """The pending pods with devices that are nominated to a node: of one namespace, or of all.

    What is kept for the pods of a gang without evictions is no preemption.
    """
    columns = ("namespace", "pod", "priority", "node", "state", "victims", "devices")

    def rows() -> Iterator[Row]:
        for key in sorted(key for key in snapshot.pods if matches(namespace, key.namespace)):
            pod = snapshot.pods[key]
            if pod.is_pending and _is_preemption(pod):
                yield Row(key, partial(_item, pod, snapshot))

    return TableView(columns, rows())


def _is_preemption(pod: Pod) -> bool:
    if not pod.kept.node:
        return bool(pod.nominated_node)
    return bool(pod.kept.victims) or pod.gang is None


def _item(pod: Pod, snapshot: Snapshot) -> Item:
    victims = [found for uid in pod.kept.victims if (found := snapshot.pod(uid)) is not None]
    state = PreemptionState.GONE
    if not pod.kept.node:
        state = PreemptionState.BY_SCHEDULER
    elif victims:
        is_over = all(each.deleting for each in victims)
        state = PreemptionState.TERMINATING if is_over else PreemptionState.CHOSEN
    return {
        "namespace": pod.namespace,
        "pod": pod.name,
        "priority": pod.priority,
        "created": pod.created,
        "node": pod.kept.node or pod.nominated_node,
        "state": state.value,
        "victims": [str(each.key) for each in victims],
        "devices": [str(each) for each in pod.kept.devices],
    }
