"""Open pods: filter has found nodes for them, and nobody knows yet which node each will have.

kube-scheduler asks about the next pod while it still binds the one before. In these milliseconds nobody knows the
devices of the one before. Sometimes the next answer would be wrong for that:

- volumes: a pod's volumes may be made on its node between filter and bind. After that the pod can go nowhere else, so
  no other pod may get its devices. They are safe when the scheduler has nominated the pod for the node (Kubernetes
  1.35, feature NominatedNodeNameForExpectation) or binds it.
- last devices: if the best nodes of a pod have devices for one pod alone, the pod before takes them. The next bind
  would fail, and the scheduler would try that pod again after a backoff of a second or more. If they have devices for
  some pods, and several pods before are open, the same may happen.

Then the call waits for the outcome of the pods before. A tenant's pods whose outcome is never known must not delay the
pods of others without end: so each namespace has a part of the time that calls may wait for open pods.
"""

import asyncio
from collections.abc import Callable, Container
from typing import Final, TypeAlias

from allocator.policies import Policy
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.pods.extended_resources.requests import wanted
from extender.framework.pods.negotiated_claims import names_controller
from extender.framework.ranking import Merits
from extender.kube.api import revision
from extender.tools.fairness.waiting_budget import WaitingBudget

MOST_SECONDS: Final = 0.08
"""The longest time that a filter call waits for the outcome of earlier pods. A nomination takes milliseconds, and is on
its way when the next call comes. If a scheduler forgets a pod, the calls of other schedulers must not wait for long."""

WAITING_SHARE: Final = 0.2
"""How much of each second calls may wait for open pods, all of them together. The first 10 ms of each wait are free,
and most binds decide within them."""

_POLL_SECONDS: Final = 0.002

_MOST_PODS: Final = 16
"""Pods that are remembered. A scheduler filters one pod at a time, and binds or nominates it soon."""

_MOST_NODES: Final = 64
"""If more nodes than these are the best ones, two pods seldom get the same of them. With 64, one pod in 64 would be
tried again after a second or two: more than what all of them wait for binds, some milliseconds each."""

_SCARCE: Final = 0.5
"""If no larger share of a node's devices stays free than this, they may be too few for several open pods."""

_Matters: TypeAlias = Callable[[Pod], bool]
"""Whether a call has to know what becomes of an open pod."""


class OpenPods:
    """Pods that filter has found nodes for, until their node is known.

    Attributes:
        open: these pods, by uid.

    Args:
        state: the cluster.
        decided: the uids of pods whose bind is running, and others see their devices.
    """

    def __init__(self, state: ClusterState, decided: Container[str]) -> None:
        self._state = state
        self._decided = decided
        self._budget = WaitingBudget(WAITING_SHARE)
        self.open: dict[str, Pod] = {}

    def add(self, pod: Pod) -> None:
        """Filter has found nodes for a pod."""
        self.open[pod.uid] = pod
        if len(self.open) > _MOST_PODS:
            del self.open[next(iter(self.open))]

    async def wait_for_volumes(self, pod: Pod) -> None:
        """Wait for the outcome of the pods before, if this pod or one of them has volumes."""

        def matters(other: Pod) -> bool:
            return pod.has_volumes or other.has_volumes

        self.open.pop(pod.uid, None)
        await self._wait(matters, asyncio.get_running_loop().time() + MOST_SECONDS)

    async def wait_for_devices(self, pod: Pod, merits: Merits, policy: Policy, until: float) -> bool:
        """Wait for the outcome of the pods before, if they may take what this pod is about to be promised.

        Args:
            pod: for which filter has just found nodes.
            merits: of these nodes.
            policy: of the pod.
            until: when the waits of this call end, all of them together, by the event loop's clock.

        Returns:
            Whether the cluster may have changed, so that the pod has to be decided again.
        """
        snapshot = self._state.snapshot
        self._forget_known(snapshot)
        if not self.open:
            return False
        if asyncio.get_running_loop().time() >= until or not _takes_devices(pod, snapshot):
            return False
        least = _least_free(merits, policy)
        if least > _SCARCE:
            return False
        await self._wait(lambda other: _decides_soon(other, self._state.snapshot), until, spared=1 if least else 0)
        return self._state.snapshot is not snapshot

    async def _wait(self, matters: _Matters, until: float, spared: int = 0) -> None:
        """Wait until no more pods that matter are open than are spared. A pod is forgotten when the time is up."""
        now = asyncio.get_running_loop().time
        began, waited_for = now(), self._still_open(matters, spared)
        ends = {each: min(until, began + self._budget.left(each, began)) for each in waited_for}
        while waited_for:
            await asyncio.sleep(_POLL_SECONDS)
            late = {each for each in waited_for if now() >= ends[each]}
            self.open = {uid: each for uid, each in self.open.items() if not (matters(each) and each.namespace in late)}
            known = waited_for - self._still_open(matters, spared)
            for namespace in known:
                self._budget.spend(namespace, now() - began)
            waited_for -= known

    def _still_open(self, matters: _Matters, spared: int) -> set[str]:
        """Forget pods whose outcome is known; the namespaces of the others that matter, but the latest."""
        self._forget_known(self._state.snapshot)
        mattering = [each.namespace for each in self.open.values() if matters(each)]
        return set(mattering[: len(mattering) - spared])

    def _forget_known(self, snapshot: Snapshot) -> None:
        """Forget pods whose outcome is known: no call waits for them any more."""
        for uid in [uid for uid, each in self.open.items() if not self._is_unknown(each, snapshot)]:
            del self.open[uid]

    def _is_unknown(self, pod: Pod, snapshot: Snapshot) -> bool:
        """Whether no bind has decided for the pod, and nothing has changed it: nominations and failures do."""
        if pod.uid in self._decided:
            return False
        key = snapshot.pod_keys.get(pod.uid)
        known = None if key is None else snapshot.pods.get(key)
        if known is None or known.resource_version == pod.resource_version:
            return True
        return revision(known.resource_version) <= revision(pod.resource_version)


def _decides_soon(pod: Pod, snapshot: Snapshot) -> bool:
    """Whether the bind of an open pod takes devices, and its search is the only thing that it waits for.

    Controllers may take seconds.
    """
    claims = (snapshot.claims.get(key) for key in claim_keys(pod))
    waits = any(each is not None and names_controller(each.claim, snapshot) for each in claims)
    return not waits and _takes_devices(pod, snapshot)


def _takes_devices(pod: Pod, snapshot: Snapshot) -> bool:
    """Whether a pod has claims that are not allocated yet."""
    claims = [snapshot.claims.get(key) for key in claim_keys(pod)]
    return (
        len(claims) < len(pod.claims)
        or bool(wanted(pod))
        or any(each is None or each.claim.allocation is None for each in claims)
    )


def _least_free(merits: Merits, policy: Policy) -> float:
    """If few nodes are the best ones for a pod: the smallest share of devices that it leaves free on one; else 1."""
    best = merits.best(policy)
    return 1.0 if sum(count for _, count in best) > _MOST_NODES else min((merit.free for merit, _ in best), default=1.0)
