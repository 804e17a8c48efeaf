"""Binding conditions (KEP-5007): a pod whose claim is allocated waits until the devices are ready.

Until then, filter rejects the pod of such a claim; the claim's update wakes it. No event reports that the time is up,
and an allocation that is void stays so. The claims are deallocated then, so that the pod is scheduled anew.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from allocator import Features
from allocator.tools import printable
from extender.cluster.binding_conditions import Failed, unmet
from extender.cluster.cluster_state import ClusterState
from extender.cluster.double_allocations import DoubleAllocations, double_allocation
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.events import Note
from extender.framework.bind.bind import Binder
from extender.framework.bind_errors import BindError
from extender.framework.decisions.solver import Solver
from extender.framework.decisions.verdict import PendingReason
from extender.framework.handle import Handle
from extender.framework.plugin import Plugin, Refusal
from extender.framework.pods.claims import Blocked, PodClaims, claims_of, not_ready, unready
from extender.framework.task import UNTIL_NEWS, BackgroundTask, Found, Rejection
from extender.tools.faults import Faults


class BindingConditionsPlugin(Plugin):
    """Refuses a pod while the devices of one of its claims are not ready. Nodes could change nothing."""

    name = "binding-conditions"
    waits_for = PendingReason.CLAIMS
    of_claims = ("has_allocated",)

    def pre_filter(self, pod: Pod, claims: PodClaims, snapshot: Snapshot, solver: Solver) -> Refusal | None:
        """Raises nothing: conditions of the claims are read."""
        waiting = unready(claims, solver.features)
        if waiting is None:
            return None
        return Refusal(not_ready(waiting), f"claim {waiting.key} waits until its devices are ready")


class BindingTimeout(BackgroundTask):
    """Looks after pods that were rejected for claims that are not ready, or void.

    Args:
        state: the cluster.
        features: decide whether there are binding conditions.
        binder: gives claims back.
        double_allocations: is told of void allocations, and looks for more.
        now: the time.
        tell: tells a pod why its claims are given back.
        faults: gets unexpected errors, each with its pod.
    """

    def __init__(
        self,
        state: ClusterState,
        features: Features,
        binder: Binder,
        double_allocations: DoubleAllocations,
        now: Callable[[], datetime],
        tell: Callable[[Pod, Note], None],
        faults: Faults,
    ) -> None:
        self._state = state
        self._features = features
        self._binder = binder
        self._double_allocations = double_allocations
        self._now = now
        self._tell = tell
        self._faults = faults
        self._pods: dict[str, Pod] = {}

    def on_rejected(self, rejection: Rejection) -> None:
        """Remember the pod if its claims are not ready, or void."""
        self.rejected(rejection.pod)

    def on_bind_failed(self, uid: str, node: str, error: BindError) -> None:
        """Remember the pod if its claims are not ready: its scheduler may ask another replica from now on."""
        if (pod := self._state.snapshot.pod(uid)) is not None:
            self.rejected(pod)

    def on_found(self, pod: Pod, snapshot: Snapshot) -> Found:
        """Remember the pod if its claims are not ready, or void."""
        self.rejected(pod)
        return Found.KNOWN

    @property
    def idle_seconds(self) -> float:
        """Until claims change, if no pod waits for its devices."""
        return 0.0 if self._pods or self._double_allocations.has_unseen else UNTIL_NEWS

    async def tick(self) -> None:
        """Give back what is void, and what has failed or waited for too long."""
        await self._double_allocations.look(self._state)
        snapshot = self._state.snapshot
        for uid, pod in list(self._pods.items()):
            with self._faults.of(f"pod {pod}"):
                if self._is_done(pod, snapshot):
                    del self._pods[uid]

    def rejected(self, pod: Pod) -> None:
        """A pod has got no node."""
        if self._is_held_up(claims_of(pod, self._state.snapshot)):
            self._pods[pod.uid] = pod

    def _is_done(self, pod: Pod, snapshot: Snapshot) -> bool:
        """Whether a pod needs no more looking after: what is hopeless is given back."""
        known = snapshot.pod(pod.uid)
        claims = claims_of(known, snapshot) if known is not None and not known.node_name else PodClaims()
        if known is None or not self._is_held_up(claims):
            return True
        hopeless = [found for found in self._hopeless(claims, snapshot) if _may_give_back(found[0], pod)]
        if not hopeless or self._binder.is_binding(pod.uid):
            return False
        self._binder.give_back(known, [claim for claim, _ in hopeless], hopeless[0][1].text)
        for _, note in hopeless:
            self._tell(pod, note)
        return True

    def _is_held_up(self, claims: PodClaims | Blocked) -> bool:
        if isinstance(claims, Blocked):
            return claims.void is not None
        return unready(claims, self._features) is not None

    def _hopeless(self, claims: PodClaims | Blocked, snapshot: Snapshot) -> Iterator[tuple[ClaimObject, Note]]:
        if isinstance(claims, Blocked):
            if claims.void is not None:
                self._double_allocations.found(
                    claims.void, double_allocation(snapshot, claims.void.claim.uid), snapshot
                )
                yield claims.void, Note("ClaimsGivenBack", claims.reason.in_words())
            return
        for each in (*claims.allocated, *claims.special.made):
            lack = unmet(each)
            if isinstance(lack, Failed):
                yield each, Note("DevicesNotReady", printable(f"claim {each.claim.name}: {lack}"))
            elif lack is not None and (lapse := lack.lapse(self._now(), self._binder.times.binding_timeout)):
                yield each, Note("DevicesNotReady", printable(f"claim {each.claim.name}: {lapse}"))


def _may_give_back(claim: ClaimObject, pod: Pod) -> bool:
    """Whether the claim is reserved for the pod, or for nobody: a claim that only others use is theirs."""
    return not claim.claim.reserved_for or claim.claim.is_reserved_for(pod.uid, pod.pod_group)


def tasks(handle: Handle) -> Sequence[BackgroundTask]:
    """The background task of binding conditions."""
    features, binder = handle.solver.features, handle.binder
    told = (handle.double_allocations, handle.now, handle.tell, handle.faults)
    return [BindingTimeout(handle.state, features, binder, *told)]
