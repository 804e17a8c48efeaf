"""Kinds of pods that hold devices: for the room that evictions make, it does not matter which pods of a kind go.

Pods are of one kind if they hold as many devices of the same runs (`allocator.runs_of`), and no devices together with
other pods. That the answer does not depend on which devices of a run are held is the rule of equivalent nodes.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence

from allocator import Claim, DeviceId, DeviceResult, Node, Usage
from allocator.equivalence import AttributeReads, device_circumstances, runs_of
from allocator.pools import NodePool
from allocator.usage import NOTHING_USED
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot


def holder_kinds(
    pods: Sequence[Pod], node: Node, snapshot: Snapshot, views: Sequence[NodePool], reads: AttributeReads
) -> list[Hashable]:
    """The kind of each pod.

    Args:
        pods: running pods that hold devices.
        node: where room is made.
        snapshot: the cluster.
        views: the pools that the node sees.
        reads: of the claims that need the room.
    """
    runs = {} if reads.in_order else dict(_runs(node, snapshot, views, reads))
    return [_kind(pod, snapshot, runs) for pod in pods]


def _kind(pod: Pod, snapshot: Snapshot, runs: Mapping[DeviceId, Hashable]) -> Hashable:
    claims = [found.claim for key in claim_keys(pod) if (found := snapshot.claims.get(key)) is not None]
    if not all(_is_only_for(pod, claim) for claim in claims):
        return pod.uid
    held = (result for claim in claims if claim.allocation is not None for result in claim.allocation.results)
    return frozenset(
        Counter(_freed(result, snapshot.usage, runs) for result in held if not result.admin_access).items()
    )


def _is_only_for(pod: Pod, claim: Claim) -> bool:
    return len(claim.reserved_for) == 1 and claim.reserved_for[0].uid == pod.uid


def _freed(result: DeviceResult, usage: Usage, runs: Mapping[DeviceId, Hashable]) -> Hashable:
    """What is free once the device, or the share of it, is released."""
    used = usage.device(result.device)
    if result.share_id is not None:
        return result.device, frozenset((result.consumed_capacity or {}).items())
    is_whole = used.holders == 1 and not used.shares and not used.consumed
    return runs.get(result.device, result.device) if is_whole else (result.device, used.holders)


def _runs(
    node: Node, snapshot: Snapshot, views: Sequence[NodePool], reads: AttributeReads
) -> Iterator[tuple[DeviceId, Hashable]]:
    """The run of each device; none for pools with devices that a rule taints, or that have a placement of their own."""
    for view, lengths in zip(views, runs_of(views, reads), strict=True):
        if not device_circumstances(view, node, NOTHING_USED, snapshot.taint_rules):
            numbers = [number for number, length in enumerate(lengths) for _ in range(length)]
            for candidate, number in zip(view.candidates, numbers, strict=True):
                yield candidate.device.id, (view.id, number)
