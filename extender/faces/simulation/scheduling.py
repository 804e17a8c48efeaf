"""Schedules the pending pods of a cluster in memory, one after the other, with the verbs of the service.

Immediate claims are allocated first. Pinned pods have their turn among the pods: their claims are allocated for the
node that they have. kube-scheduler's own part in the choice of a node is a `NodeChoice`. Where a pod goes is a
`Placement`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from allocator import DeviceResult, Features, LeftOut
from allocator.model.optional import not_served
from extender.answers.explain.explanation import share_in_words
from extender.answers.explain.pod_claims import CLAIM_NOT_MADE, read_admission
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.claims import is_immediate, mode_problem
from extender.cluster.objects.pods import Pod, parse_whole_pod
from extender.cluster.snapshot import Snapshot
from extender.faces.assembly import Extender
from extender.framework.bind_errors import BindError, ResourceQuotaRefusesError
from extender.framework.bound_pods import is_pinned, lacks_some
from extender.framework.cycle import refreshed
from extender.framework.decisions.verdict import PendingReason
from extender.framework.pods.claims import unmade
from extender.framework.pods.extended_resources import request_nouns, request_words, without_devices
from extender.framework.service import Service
from extender.framework.wire import BindArgs, FilterArgs
from extender.kube.api import ObjectKey, OutcomeUnknownError, WriteRefusedError
from extender.kube.resources import NODES, PODS
from extender.lab.cluster import EmbeddedCluster
from extender.planning.kube_scheduler import Attempts, FirstNode, NodeChoice, no_attempt
from extender.plugins.immediate_claims import ImmediateClaims, in_order
from extender.tools.faults import RefusedError
from extender.tools.table import TextTable, as_html, plain_lines

_NOT_ALLOCATED: Final = (BindError, WriteRefusedError, OutcomeUnknownError)


@dataclass(frozen=True, slots=True)
class PlacedDevice:
    """A device of a pod.

    Attributes:
        claim: name of the pod's claim.
        result: request, device, and what the request takes of a shared device.
        asked: the words by which people know the request: its name, or the extended resource and the container.
    """

    claim: str
    result: DeviceResult
    asked: str

    def __str__(self) -> str:
        return f"{self.result.device}{share_in_words(self.result.consumed_capacity)}"

    def as_json(self) -> dict[str, object]:
        """The device as in an allocation result, with the claim."""
        driver, pool, device = self.result.device
        found: dict[str, object] = {
            "claim": self.claim,
            "request": self.result.request,
            "driver": driver,
            "pool": pool,
            "device": device,
        }
        if self.result.consumed_capacity is not None:
            found["consumedCapacity"] = {name: str(amount) for name, amount in self.result.consumed_capacity.items()}
        return found


@dataclass(frozen=True, slots=True)
class Placement:
    """A pod's node and devices, or the reason why it has none.

    Attributes:
        pod: namespace and name, as ``namespace/name``.
        node: name of the node; empty if the pod stays pending.
        devices: in the order of the pod's claims and requests.
        left_out: the optional requests that are not served; the reason is empty.
        reason: why the pod stays pending; equal reasons of nodes are counted. Empty if it has a node.
        waits_for: what a pod without a node waits for; None if that is a node, or not known.
    """

    pod: str
    node: str = ""
    devices: tuple[PlacedDevice, ...] = ()
    reason: str = ""
    left_out: tuple[LeftOut, ...] = ()
    waits_for: PendingReason | None = None

    @property
    def lacks_devices(self) -> bool:
        """Whether the pod stays pending only because no node has free devices for it."""
        return self.waits_for is PendingReason.DEVICES

    def as_json(self) -> dict[str, object]:
        """A placement for programs."""
        return {
            "pod": self.pod,
            "node": self.node or None,
            "devices": [device.as_json() for device in self.devices],
            "leftOut": [{"claim": each.claim, "request": each.request} for each in self.left_out],
            "reason": self.reason or None,
        }


_WAITS_FOR: Final[Mapping[PendingReason | None, str]] = {
    PendingReason.NO_ATTEMPT: "for a scheduler that tries it",
    PendingReason.CLAIMS: "for usable claims",
    PendingReason.GANG: "for its group",
    PendingReason.QUOTA: "for quota",
    PendingReason.DEVICES: "for devices",
    PendingReason.TERMINATING: "for the end of other pods",
    PendingReason.SEARCH: "for a search within its limits",
    None: "for a node",
}


class Placements(tuple[Placement, ...]):
    """The placements of some pods, in the order of the scheduling. They print themselves as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        """An aligned table, and the summary."""
        return "\n".join([*plain_lines(self.table), self.summary])

    def __repr__(self) -> str:
        """One line."""
        return f"<Placements: {self.summary}>"

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        return as_html(self.table)

    @property
    def table(self) -> TextTable:
        """A row for each pod."""
        rows = [(each.pod, each.node or "-", each.reason or ", ".join(_what(each)) or "-") for each in self]
        return TextTable(("pod", "node", "devices or reason"), rows)

    @property
    def summary(self) -> str:
        """``25 of 32 pods placed, 7 wait: 4 for devices, 3 for usable claims``; the most frequent cause first."""
        causes = Counter(each.waits_for for each in self if not each.node)
        waiting, all_pods = causes.total(), len(self)
        placed = f"{all_pods - waiting} of {all_pods} pod{'' if all_pods == 1 else 's'} placed"
        if not waiting:
            return placed
        words = (f"{number} {_WAITS_FOR.get(cause, 'for another reason')}" for cause, number in causes.most_common())
        return f"{placed}, {waiting} {'waits' if waiting == 1 else 'wait'}: {', '.join(words)}"

    def rows(self) -> list[dict[str, object]]:
        """A row for each device, and one for each pod without any, as ``pandas.DataFrame`` takes them."""
        found: list[dict[str, object]] = []
        for each in self:
            start: dict[str, object] = {"pod": each.pod, "node": each.node or None, "reason": each.reason or None}
            found += [{**start, **device.as_json()} for device in each.devices] or [start]
        return found


def _what(placement: Placement) -> Iterator[str]:
    """The devices of a pod, and the optional requests that have none."""
    yield from map(str, placement.devices)
    yield from (f"without optional {each.request}" for each in placement.left_out)


async def schedule(
    extender: Extender,
    cluster: EmbeddedCluster,
    schedulers: Collection[str] = (),
    *,
    choice: NodeChoice | None = None,
    before: ObjectKey | None = None,
    progress: Callable[[int, int], object] = lambda _done, _all: None,
) -> Placements:
    """Schedule every pending or pinned pod, as kube-scheduler sorts them: by priority, then the oldest first.

    Pods of equal age have the order of the manifests.

    Args:
        extender: over the cluster.
        cluster: is changed.
        schedulers: names of the schedulers that call the service; empty: any.
        choice: kube-scheduler's part in the choice of a node; None: the conditions that the extender knows.
        before: schedule only the pods that come before this pod; None: all.
        progress: called after each pod with the number of pods that are done, and of all.
    """
    await _allocate_immediate(extender.immediate, cluster)
    service = extender.service
    pods = map(parse_whole_pod, (await cluster.api.list(PODS)).items)
    snapshot, features = cluster.state.snapshot, service.solver.features
    unserved = [pod for pod in pods if pod.is_pending or _is_unserved(pod, snapshot, features)]
    pending = list(takewhile(lambda pod: pod.key != before, sorted(unserved, key=_turn)))
    choice = choice or FirstNode(snapshot)
    nodes = [node["metadata"]["name"] for node in (await cluster.api.list(NODES)).items]
    attempts = Attempts(snapshot, schedulers)  # as the cluster was before the first pod was placed
    placed: list[Placement] = []
    for pod in pending:
        faults: list[str] = []
        with service.faults.of(f"pod {pod}", faults.append):
            if reason := no_attempt(pod, schedulers) if pod.node_name else attempts.hindrance(pod):
                placed.append(Placement(str(pod), reason=reason, waits_for=PendingReason.NO_ATTEMPT))
            elif pod.node_name:
                placed.append(await _serve(extender, cluster, pod))
            else:
                placed.append(await _place(service, cluster, choice, nodes, pod))
        placed += [Placement(str(pod), reason=fault) for fault in faults]
        progress(len(placed), len(pending))
    return Placements(placed)


async def _allocate_immediate(immediate: ImmediateClaims, cluster: EmbeddedCluster) -> None:
    """Allocate the immediate claims. Pods of those that cannot be allocated are told that their claims wait."""
    claims = [each for each in cluster.state.snapshot.claims.values() if is_immediate(each.claim)]
    for each in in_order(claims, lambda claim: claim):
        if each.claim.allocation is None and not mode_problem(each.claim.annotations):
            with suppress(*_NOT_ALLOCATED):
                await immediate.allocate(each)


def _turn(pod: Pod) -> tuple[int, str]:
    return -pod.priority, pod.created


def _is_unserved(pod: Pod, snapshot: Snapshot, features: Features) -> bool:
    return is_pinned(pod) and (lacks_some(pod, snapshot) or bool(without_devices(pod, snapshot, features)))


async def _serve(extender: Extender, cluster: EmbeddedCluster, pod: Pod) -> Placement:
    """Allocate the claims of a pinned pod for its node."""
    try:
        await extender.pinned.serve(pod)
    except _NOT_ALLOCATED as error:
        return Placement(str(pod), reason=f"spec.nodeName is {pod.node_name}; {error}")
    await cluster.settle()
    if reason := without_devices(pod, cluster.state.snapshot, extender.service.solver.features):
        return Placement(str(pod), reason=reason, waits_for=PendingReason.DEVICES)
    return _placed(pod, pod.node_name, cluster.state.snapshot)


async def _place(
    service: Service, cluster: EmbeddedCluster, choice: NodeChoice, nodes: Sequence[str], pod: Pod
) -> Placement:
    reasons = choice.rejections(pod)
    names = [name for name in nodes if name not in reasons] if reasons else nodes
    try:
        await service.background.prepare(pod)
        pod = refreshed(pod, cluster.state.snapshot)
        if reason := await _unmade(pod, cluster):
            return Placement(str(pod), reason=reason, waits_for=PendingReason.CLAIMS)
        args = FilterArgs(pod, names)
        result = await service.filter(args)
        noun = request_nouns(pod)
        against = {**reasons, **result.unresolvable.in_words(noun), **result.failed.in_words(noun)}
        if not result.passed:
            reason = _summary(against[name] for name in nodes)
            return Placement(str(pod), reason=reason, waits_for=result.pending_reason if names else None)
        scores = await service.prioritize(FilterArgs(pod, result.passed))
        most = max(scores)
        best = [name for name, score in zip(result.passed, scores, strict=True) if score == most]
        node = choice.choose(pod, best)
        await service.bind(BindArgs(pod.name, pod.namespace, pod.uid, node))
    except (RefusedError, TimeoutError) as error:
        waits_for = PendingReason.QUOTA if isinstance(error.__cause__, ResourceQuotaRefusesError) else None
        return Placement(str(pod), reason=str(error) or "not decided in time", waits_for=waits_for)
    choice.place(pod, node)
    await cluster.settle()
    return _placed(pod, node, cluster.state.snapshot)


async def _unmade(pod: Pod, cluster: EmbeddedCluster) -> str:
    """Why a claim of a pod is not made from its template; empty if all claims are made.

    kube-scheduler holds such a pod back: its profile has DynamicResources at PreEnqueue (`config/scheduler.yaml`).
    """
    if not any(unmade(refreshed(pod, cluster.state.snapshot))):
        return ""
    admission = await read_admission(pod, cluster.state.snapshot, cluster.api)
    return "; ".join(f"{CLAIM_NOT_MADE.format(name)}: {text}" for name, text in sorted(admission.failures.items()))


def _summary(reasons: Iterable[str]) -> str:
    """Equal reasons counted, as kube-scheduler does: ``3 no free device for request gpu, 1 node is unschedulable``."""
    counts = Counter(reasons)
    return ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items())) or "there are no nodes"


def _placed(pod: Pod, node: str, snapshot: Snapshot) -> Placement:
    """The placement of a pod with its claims as they are allocated now."""
    left_out = tuple(
        LeftOut(key.name, name, "")
        for key in claim_keys(snapshot.pods.get(pod.key, pod))
        if (claim := snapshot.claims.get(key)) is not None and claim.claim.allocation is not None
        for name in not_served(claim.claim)
    )
    return Placement(str(pod), node, devices_of(pod, snapshot), left_out=left_out)


def devices_of(pod: Pod, snapshot: Snapshot) -> tuple[PlacedDevice, ...]:
    """The devices that the claims of a pod hold."""
    now = snapshot.pods.get(pod.key, pod)
    found, words = [], request_words(now)
    for key in claim_keys(now):
        claim = snapshot.claims.get(key)
        allocation = claim.claim.allocation if claim else None
        found += [
            PlacedDevice(key.name, result, words.get(result.request, result.request))
            for result in (allocation.results if allocation else ())
        ]
    return tuple(found)
