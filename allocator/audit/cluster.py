"""The audit of a cluster: the rules that allocated claims break.

Of the search's code it shares CEL and node selectors alone.
Its evidence is what an API server holds: slices, classes, nodes, and claims with their allocations. The rules over
devices (double allocations, counters, capacity) are here; the rules over single claims are in `claim.py`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from allocator.audit.claim import ClaimAudit, Published
from allocator.audit.pods import BoundPod, pod_findings
from allocator.audit.rules import Finding, Rule
from allocator.cel.selectors import Selectors
from allocator.model.allocations import DeviceResult
from allocator.model.claims import Claim
from allocator.model.device_classes import DeviceClass
from allocator.model.devices import CounterConsumption, DeviceId, PoolId
from allocator.model.nodes import Node
from allocator.model.slices.slice import Slice


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence that is judged.

    Attributes:
        claims: all claims of the cluster; claims without an allocation are passed over.
        nodes: node name to node, to judge the node selectors of claims.
        pods: that have a node, and use claims.
    """

    slices: Sequence[Slice]
    classes: Mapping[str, DeviceClass]
    claims: Sequence[Claim]
    nodes: Mapping[str, Node] = field(default_factory=dict)
    pods: Sequence[BoundPod] = ()


Held = dict[DeviceId, list[tuple[Claim, DeviceResult]]]


def audit(evidence: Evidence, selectors: Selectors) -> tuple[Finding, ...]:
    """All broken rules. Devices that are no longer published are passed over: that is no fault of the allocation."""
    published = _published(evidence.slices)
    findings = list(device_findings(evidence.claims, evidence.slices))
    judge = ClaimAudit(published, evidence.classes, evidence.nodes, selectors)
    for claim in evidence.claims:
        if claim.allocation is not None:
            findings.extend(judge.findings(claim, claim.allocation))
    findings.extend(pod_findings(evidence.pods, {str(claim): claim for claim in evidence.claims}, evidence.nodes))
    return tuple(findings)


def device_findings(claims: Iterable[Claim], slices: Sequence[Slice]) -> tuple[Finding, ...]:
    """The broken rules over devices: double allocations, overdrawn capacity and counters, compatibility groups."""
    published = _published(slices)
    held: Held = {}
    for claim in claims:
        for result in claim.allocation.results if claim.allocation else ():
            if not result.admin_access:
                held.setdefault(result.device, []).append((claim, result))
    return (
        *_held_twice(held),
        *_overdrawn_capacity(held, published),
        *_overdrawn_counters(held, published, slices),
        *_incompatible(held, published),
    )


def _published(slices: Iterable[Slice]) -> dict[DeviceId, Published]:
    """Devices of the newest generation of each pool."""
    newest = _newest(slices)
    return {d.id: Published(d, s) for s in slices if s.generation == newest[s.pool] for d in s.devices}


def _newest(slices: Iterable[Slice]) -> dict[PoolId, int]:
    newest: dict[PoolId, int] = {}
    for each in slices:
        newest[each.pool] = max(each.generation, newest.get(each.pool, each.generation))
    return newest


def _held_twice(held: Held) -> Iterator[Finding]:
    for device, holders in held.items():
        names = tuple(str(claim) for claim, _ in holders)
        exclusive = [result for _, result in holders if result.share_id is None]
        if exclusive and len(holders) > 1:
            yield Finding(Rule.HELD_TWICE, names, device, f"held by {len(holders)} allocations, not all of them shares")
        ids = [result.share_id for _, result in holders if result.share_id is not None]
        if len(set(ids)) < len(ids):
            yield Finding(Rule.HELD_TWICE, names, device, "two shares have the same id")


def _overdrawn_capacity(held: Held, published: Mapping[DeviceId, Published]) -> Iterator[Finding]:
    for device, holders in held.items():
        if device not in published:
            continue
        names = tuple(str(claim) for claim, _ in holders)
        for name, capacity in published[device].device.capacity.items():
            amounts = [(r.consumed_capacity or {}).get(name) for _, r in holders if r.share_id is not None]
            total = sum(amount.nano for amount in amounts if amount is not None)
            if total > capacity.value.nano:
                yield Finding(Rule.CAPACITY, names, device, f"more than {capacity.value} of {name} is consumed")


def _overdrawn_counters(
    held: Held, published: Mapping[DeviceId, Published], slices: Sequence[Slice]
) -> Iterator[Finding]:
    newest = _newest(slices)
    full = {
        (s.pool, name, counter): amount
        for s in slices
        if s.generation == newest[s.pool]
        for name, counters in s.counter_sets
        for counter, amount in counters.items()
    }
    drawn: dict[tuple[PoolId, str, str], int] = {}
    names: dict[tuple[PoolId, str, str], list[str]] = {}
    for device, holders, consumed in _consumptions(held, published):
        for counter, amount in consumed.counters.items():
            key = (device.pool_id, consumed.counter_set, counter)
            drawn[key] = drawn.get(key, 0) + amount.nano
            names.setdefault(key, []).extend(holders)
    for key, total in drawn.items():
        if key in full and total > full[key].nano:
            pool, counter_set, counter = key
            text = f"pool {pool}: more than {full[key]} of counter {counter_set}/{counter} is drawn"
            yield Finding(Rule.COUNTERS, tuple(names[key]), None, text)


def _incompatible(held: Held, published: Mapping[DeviceId, Published]) -> Iterator[Finding]:
    on_set: dict[tuple[PoolId, str], list[tuple[frozenset[str], tuple[str, ...]]]] = {}
    for device, holders, consumed in _consumptions(held, published):
        groups = frozenset(consumed.compatibility_groups)
        on_set.setdefault((device.pool_id, consumed.counter_set), []).append((groups, holders))
    for (pool, counter_set), members in on_set.items():
        sets = [groups for groups, _ in members]
        if any(sets) and not frozenset.intersection(*sets):
            names = tuple(name for _, holders in members for name in holders)
            text = f"pool {pool}: devices on counter set {counter_set} have no compatibility group in common"
            yield Finding(Rule.COMPATIBILITY, names, None, text)


def _consumptions(
    held: Held, published: Mapping[DeviceId, Published]
) -> Iterator[tuple[DeviceId, tuple[str, ...], CounterConsumption]]:
    """What the held devices consume of counters; a shared device consumes once."""
    for device, holders in held.items():
        if device in published:
            names = tuple(str(claim) for claim, _ in holders)
            for consumed in published[device].device.consumes_counters:
                yield device, names, consumed
