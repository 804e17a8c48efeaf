"""Open pods: filter has found nodes for them, and nobody knows yet which devices each will have.

kube-scheduler asks about the next pod while it still binds the one before. In these milliseconds nobody knows the
devices of the one before. Sometimes the next answer would be wrong for that:

- volumes: a pod's volumes may be made on its node between filter and bind. After that the pod can go nowhere else, so
  no other pod may get its devices. They are safe when the scheduler has nominated the pod for the node (Kubernetes
  1.35, feature NominatedNodeNameForExpectation) or binds it.
- last devices: if the best nodes of a pod have devices for one pod alone, the pod before takes them. The next bind
  would fail, and the scheduler would try that pod again after a backoff of a second or more. If they have devices for
  some pods, and several pods before are open, the same may happen.

For volumes, the call waits for the outcome of the pods before. For devices, it waits until one of the best nodes is
safe: no more open pods may take of it than it has devices for. Once a bind is called, its node is known, and the other
nodes are safe. The best nodes that are not safe are left out of the answer if any other node suits.

A tenant's pods whose outcome is never known must not delay the pods of others without end: so each namespace has a part
of the time that calls may wait for open pods. A pod that was waited for in vain is not waited for again. The node of
its bind, or its own best nodes, stay unsafe.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from allocator import Reason
from allocator.policies import Policy
from allocator.reason import Cause
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.verdict import Reasons
from extender.framework.filter import FilterResult
from extender.framework.pods.extended_resources import wanted
from extender.framework.pods.negotiated_claims import names_controller
from extender.framework.ranking import Merits
from extender.kube.api import revision
from extender.kube.resources import PODS
from extender.tools.fairness import WaitingBudget

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

OPEN_SECONDS: Final = 10.0
"""After which a pod that nobody binds and nothing changes counts no more: its scheduler has left it. One that is being
bound goes on to count."""

TAKEN_SOON: Final = Reason(Cause("taken soon", "a pod that is being bound may take its last devices"))
"""Why filter passes over a node while another node suits."""


@dataclass(slots=True)
class _Open:
    """An open pod.

    Attributes:
        merits: of the nodes that filter has named. The scheduler probably takes one of the best.
        until: when the pod counts no more, by the event loop's clock, unless it is being bound then.
        is_awaited: calls wait for it. One that was waited for in vain delays nobody any more.
    """

    pod: Pod
    merits: Merits
    until: float
    is_awaited: bool = True


@dataclass(frozen=True, slots=True)
class Scarce:
    """The best nodes of a pod that is about to be promised one of them, where devices are scarce on some.

    Attributes:
        spared: by name of the node, how many open pods may take of it before nothing may be left for this pod.
    """

    spared: Mapping[str, int]


class OpenPods:
    """Pods that filter has found nodes for, until their devices are known.

    Args:
        state: the cluster.
        decided: the uids of pods whose bind is running, and others see their devices.
        node_of: the node of the bind of the pod with this uid; empty if none is running.
        policy_of: the policy of a pod; None if it names one that does not exist.
    """

    def __init__(
        self,
        state: ClusterState,
        decided: Container[str],
        node_of: Callable[[str], str],
        policy_of: Callable[[Pod], Policy | None],
    ) -> None:
        self._state = state
        self._decided = decided
        self._node_of = node_of
        self._policy_of = policy_of
        self._budget = WaitingBudget(WAITING_SHARE)
        self._open: dict[str, _Open] = {}

    def add(self, pod: Pod, merits: Merits) -> None:
        """Filter has found nodes for a pod, with these merits."""
        self._open[pod.uid] = _Open(pod, merits, asyncio.get_running_loop().time() + OPEN_SECONDS)
        if len(self._open) > _MOST_PODS:
            del self._open[next(iter(self._open))]

    async def wait_for_volumes(self, pod: Pod) -> None:
        """Wait for the outcome of the pods before, if this pod or one of them has volumes."""

        def awaited() -> Sequence[Pod]:
            mattering = [each for each in self._open.values() if pod.has_volumes or each.pod.has_volumes]
            return [each.pod for each in self._unknown(mattering, self._state.snapshot) if each.is_awaited]

        self._open.pop(pod.uid, None)
        await self._wait(awaited, asyncio.get_running_loop().time() + MOST_SECONDS)

    def scarce(self, pod: Pod, merits: Merits) -> Scarce | None:
        """The best nodes for a pod, if open pods may take their last devices; None if that does not matter.

        Args:
            pod: for which filter has just found nodes.
            merits: of these nodes.
        """
        snapshot = self._state.snapshot
        if not self._unknown(self._open.values(), snapshot) or not _takes_devices(pod, snapshot):
            return None
        best = self._best(pod, merits)
        free = {name: merits[name].free for name in best}
        if min(free.values(), default=1.0) > _SCARCE:
            return None
        return Scarce({name: _spared(share) for name, share in free.items()})

    async def wait_for_devices(self, scarce: Scarce, until: float) -> bool:
        """Wait until one of the best nodes for a pod is safe, so that no pod before takes what it is about to have.

        Args:
            scarce: these nodes.
            until: when the waits of this call end, all of them together, by the event loop's clock.

        Returns:
            Whether the cluster may have changed, so that the pod has to be decided again.
        """
        snapshot = self._state.snapshot
        if asyncio.get_running_loop().time() < until:
            await self._wait(lambda: self._awaited_for(scarce), until)
        return self._state.snapshot is not snapshot

    def beside(self, scarce: Scarce, result: FilterResult) -> FilterResult:
        """The result without those of the best nodes that are not safe, if any other node suits."""
        takers = self._takers(self._unknown(self._open.values(), self._state.snapshot))
        unsafe = {name for name, spared in scarce.spared.items() if takers[name] > spared}
        if not unsafe or len(unsafe) == len(result.passed):
            return result
        merits, refused = result.merits.without(unsafe), Reasons.alike(tuple(unsafe), TAKEN_SOON)
        return replace(result, passed=merits.names, merits=merits, unresolvable=result.unresolvable.beside(refused))

    def _best(self, pod: Pod, merits: Merits) -> Sequence[str]:
        """The names of the best nodes for a pod; none if they are many."""
        policy = self._policy_of(pod)
        return () if policy is None else merits.best(policy, _MOST_NODES)

    def _awaited_for(self, scarce: Scarce) -> Sequence[Pod]:
        """The open pods of which one has to be known before one of the nodes is safe; none if one is safe now."""
        snapshot = self._state.snapshot
        unknown = [each for each in self._unknown(self._open.values(), snapshot) if _decides_soon(each.pod, snapshot)]
        awaited = [each for each in unknown if each.is_awaited]
        is_placed = not snapshot.inventory.roaming
        nowhere = [each for each in awaited if not (is_placed and self._node_of(each.pod.uid))]
        takers = self._takers([each for each in unknown if each not in nowhere])
        if any(takers[name] + len(nowhere) <= spared for name, spared in scarce.spared.items()):
            return ()
        return [each.pod for each in awaited[: max(0, len(awaited) - max(scarce.spared.values()))]]

    def _takers(self, unknown: Sequence[_Open]) -> Mapping[str, int]:
        """The number of these open pods that may take devices of each node."""
        snapshot, takers = self._state.snapshot, Counter[str]()
        for each in unknown:
            if _takes_devices(each.pod, snapshot):
                node = self._node_of(each.pod.uid)
                takers.update((node,) if node else self._best(each.pod, each.merits))
        return takers

    async def _wait(self, awaited: Callable[[], Sequence[Pod]], until: float) -> None:
        """Wait until no open pod is awaited. One whose namespace has no time left is awaited no more."""
        now = asyncio.get_running_loop().time
        began, ends = now(), dict[str, float]()
        while pods := awaited():
            self._spend(ends, {each.namespace for each in pods}, now() - began)
            for each in pods:
                if each.namespace not in ends:
                    ends[each.namespace] = min(until, began + self._budget.left(each.namespace, began))
                if now() >= ends[each.namespace]:
                    self._open[each.uid].is_awaited = False
            if all(now() < ends[each.namespace] for each in pods):
                await asyncio.sleep(_POLL_SECONDS)
        self._spend(ends, (), now() - began)

    def _spend(self, ends: dict[str, float], still: Collection[str], seconds: float) -> None:
        """Count the wait for the namespaces for which this call waits no longer."""
        for namespace in ends.keys() - set(still):
            self._budget.spend(namespace, seconds)
            del ends[namespace]

    def _unknown(self, pods: Iterable[_Open], snapshot: Snapshot) -> Sequence[_Open]:
        """The open pods whose outcome is not known; the others are forgotten."""
        still = []
        for each in list(pods):
            if self._is_unknown(each, snapshot):
                still.append(each)
            else:
                del self._open[each.pod.uid]
        return still

    def _is_unknown(self, each: _Open, snapshot: Snapshot) -> bool:
        """Whether no bind has decided for the pod, and nothing has changed it: nominations and failures do."""
        pod = each.pod
        if pod.uid in self._decided:
            return False
        if asyncio.get_running_loop().time() >= each.until and not self._node_of(pod.uid):
            return False
        key = snapshot.pod_keys.get(pod.uid)
        known = None if key is None else snapshot.pods.get(key)
        if known is None:  # it is gone, unless the watch has still to show it
            return revision(pod.resource_version) > self._state.seen(PODS)
        if known.resource_version == pod.resource_version:
            return True
        return revision(known.resource_version) <= revision(pod.resource_version)


def _decides_soon(pod: Pod, snapshot: Snapshot) -> bool:
    """Whether the bind of an open pod takes devices, and its search is the only thing that it waits for.

    Controllers may take seconds.
    """
    if snapshot.controllers:
        claims = (snapshot.claims.get(key) for key in claim_keys(pod))
        if any(each is not None and names_controller(each.claim, snapshot) for each in claims):
            return False
    return _takes_devices(pod, snapshot)


def _spared(free: float) -> int:
    """The number of pods that may take devices of a node that a pod leaves free to this share."""
    if free > _SCARCE:
        return _MOST_PODS
    return 1 if free else 0


def _takes_devices(pod: Pod, snapshot: Snapshot) -> bool:
    """Whether a pod has claims that are not allocated yet."""
    keys = claim_keys(pod)
    if len(keys) < len(pod.claims) or wanted(pod):
        return True
    claims = map(snapshot.claims.get, keys)
    return bool([each for each in claims if each is None or each.claim.allocation is None])
