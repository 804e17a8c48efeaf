"""Deallocate: a claim that no other pod uses gives its devices back if they keep its pod off every node.

A claim of a PodGroup is used if a pod of the group has a node.

kube-scheduler's own plugin does so in PostFilter, which extenders have not (Kubernetes 1.36, plugin DynamicResources).
The claim's update wakes the pod.

A bind that was cut leaves a claim with devices for a pod that waits. If the pod fits nowhere any more, for example
because a pod of its gang is gone, nobody would have these devices: they are given back after a minute.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import structlog
from prometheus_client import Counter

from allocator import AllocationResult, Reason
from extender.cluster.binding_conditions import unmet
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import claim_keys, has_other_consumers, is_in_use, users_of
from extender.cluster.objects.claims import ClaimObject, is_immediate
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.writer import Writer
from extender.framework.cycle import refreshed
from extender.framework.handle import Handle
from extender.framework.plugin import WaitingPlugin
from extender.framework.pods.claims import ALLOCATED_ELSEWHERE, Blocked, claims_of
from extender.framework.task import UNTIL_NEWS, BackgroundTask, Rejection
from extender.kube.api import OutcomeUnknownError, WriteRefusedError
from extender.tools.faults import Faults

logger = structlog.get_logger()

HELD_SECONDS: Final = 60.0
"""After which a claim of a pod that is rejected, and has not passed since, is not being bound: a bind takes seconds."""

AGAIN_SECONDS: Final = 10.0
"""From a deallocation that failed to the next try."""


def claim_in_the_way(pod: Pod, reasons: Collection[Reason], snapshot: Snapshot) -> ClaimObject | None:
    """A claim of the pod that has ruled out a node, and that no other pod uses. Immediate claims stay allocated.

    Args:
        pod: for which no node was left.
        reasons: why its nodes were rejected.
        snapshot: the cluster.
    """
    claims = claims_of(pod, snapshot)
    if isinstance(claims, Blocked):
        return None
    names = {reason.claim for reason in reasons if reason.cause is ALLOCATED_ELSEWHERE}
    blocking = (each for each in claims.allocated if each.claim.name in names)
    return next((each for each in blocking if _is_idle(each, pod, snapshot)), None)


def held_in_vain(pod: Pod, snapshot: Snapshot) -> Iterator[ClaimObject]:
    """The claims that are allocated and reserved for a pod that waits, and for nobody else.

    Special claims (`extender.plugins.orphans`) do not count.
    """
    for key in claim_keys(pod):
        found = snapshot.claims.get(key)
        if found is None or found.claim.allocation is None or found.special_of:
            continue
        if any(user.uid == pod.uid for user in found.claim.reserved_for) and _is_idle(found, pod, snapshot):
            yield found


def _is_idle(found: ClaimObject, pod: Pod, snapshot: Snapshot) -> bool:
    is_flying = found.claim.uid in snapshot.assumed
    return (
        not is_flying
        and not is_immediate(found.claim)
        and not has_other_consumers(pod, found.claim, snapshot)
        and not is_in_use(found.claim, snapshot)
    )


class _Holding(NamedTuple):
    """A pod that was rejected although its claims have devices: by uid of the claim, when that was seen first."""

    pod: Pod
    allocations: Mapping[str, AllocationResult | None]
    since: float


class Deallocator(BackgroundTask):
    """Deallocates claims that were found to be in the way.

    Args:
        state: the cluster.
        writer: writes to it.
        is_binding: whether a bind of the pod with this uid is running.
        faults: gets unexpected errors, each with its pod.
        clock: measures durations, in seconds.
        on_woken: told of each pod that is woken by this.
        plugins: the features that allocate some claims by themselves, and give these back.
    """

    def __init__(
        self,
        state: ClusterState,
        writer: Writer,
        is_binding: Callable[[str], bool],
        faults: Faults,
        clock: Callable[[], float],
        on_woken: Callable[[Pod], None],
        plugins: Sequence[WaitingPlugin] = (),
    ) -> None:
        self._state = state
        self._writer = writer
        self._plugins = plugins
        self._is_binding = is_binding
        self._faults = faults
        self._clock = clock
        self._on_woken = on_woken
        self._proposed: dict[str, dict[str, tuple[ClaimObject, Pod]]] = {}
        """By namespace and uid of the claim. The namespace whose turn is next comes first; none is empty."""
        self._holding: dict[str, _Holding] = {}
        """Rejected pods of the cluster whose claims have devices, by uid."""

    def on_rejected(self, rejection: Rejection) -> None:
        """Look for a claim in the way, once the pod's scheduler gives up."""
        pod, snapshot = rejection.pod, self._state.snapshot
        if rejection.is_final:
            self.propose(pod, rejection.result.unresolvable.distinct)
        if pod.uid not in self._holding and snapshot.pod(pod.uid) is not None:
            held = {each.claim.uid: each.claim.allocation for each in held_in_vain(pod, snapshot)}
            if held:
                self._holding[pod.uid] = _Holding(pod, held, self._clock())

    def on_passed(self, pod: Pod) -> None:
        """The pod has a node, and is bound soon."""
        self._holding.pop(pod.uid, None)

    def propose(self, pod: Pod, reasons: Collection[Reason]) -> None:
        """Filter has rejected all nodes, for these reasons. Nothing is written yet: the answer goes first."""
        found = claim_in_the_way(pod, reasons, self._state.snapshot)
        if found is not None:
            self._add(found, pod)

    @property
    def idle_seconds(self) -> float:
        """Until a pod is rejected, if none holds claims in vain."""
        return 0.0 if self._proposed or self._holding else UNTIL_NEWS

    async def tick(self) -> None:
        """Deallocate what was proposed, in turns of the namespaces: each write may take long.

        A claim that has changed meanwhile is left for the pod's next filter.
        """
        self._propose_held()
        while self._proposed:
            claim, pod = self._taken()
            snapshot = self._state.snapshot
            users = (pod, *users_of(claim.claim, snapshot))
            if claim.claim.uid in snapshot.assumed or any(self._is_binding(user.uid) for user in users):
                continue
            with self._faults.of(f"pod {pod}"):
                if await self._is_deallocated(claim, pod):
                    self._on_woken(pod)

    def _add(self, claim: ClaimObject, pod: Pod) -> None:
        self._proposed.setdefault(pod.namespace, {})[claim.claim.uid] = (claim, pod)

    def _taken(self) -> tuple[ClaimObject, Pod]:
        """The oldest proposal of the namespace whose turn it is; it waits no more."""
        namespace = next(iter(self._proposed))
        own = self._proposed.pop(namespace)
        found = own.pop(next(iter(own)))
        if own:
            self._proposed[namespace] = own
        return found

    def _propose_held(self) -> None:
        """Propose what pods have held in vain for long enough."""
        now, snapshot = self._clock(), self._state.snapshot
        for uid, holding in list(self._holding.items()):
            known = snapshot.pod(uid)
            if known is None or not known.is_pending:
                del self._holding[uid]
            elif now - holding.since >= HELD_SECONDS:
                pod = refreshed(holding.pod, snapshot)
                # What is allocated since then, another replica may be about to bind.
                held = [
                    each
                    for each in held_in_vain(pod, snapshot)
                    if holding.allocations.get(each.claim.uid) == each.claim.allocation
                ]
                for each in held:
                    if unmet(each) is None:  # devices that are being attached: `extender.plugins.binding_conditions`
                        self._add(each, pod)
                if held:  # until they are given back: a write may fail
                    self._holding[uid] = holding._replace(since=now - HELD_SECONDS + AGAIN_SECONDS)
                else:
                    del self._holding[uid]

    async def _is_deallocated(self, claim: ClaimObject, pod: Pod) -> bool:
        for each in self._plugins:
            if (is_asked := await each.deallocate(claim)) is not None:
                return is_asked
        try:
            await self._writer.deallocate(claim, pod)
        except (WriteRefusedError, OutcomeUnknownError) as error:
            logger.info("claim not deallocated", claim=str(claim.key), pod=str(pod), error=str(error))
            return False
        logger.info("claim deallocated", claim=str(claim.key), pod=str(pod))
        return True


def tasks(handle: Handle) -> Sequence[BackgroundTask]:
    """The background task that deallocates claims, and counts them."""
    text = "Claims that gave back their devices because they kept their pod off every node."
    deallocated = Counter("dra_extender_deallocated_claims", text, registry=handle.registry)

    def on_woken(pod: Pod) -> None:
        handle.background.note_woken(pod)
        deallocated.inc()

    binder = handle.binder
    return [
        Deallocator(
            handle.state, handle.writer, binder.is_binding, handle.faults, handle.clock, on_woken, binder.plugins
        )
    ]
