"""An audit after each operation: it judges what has changed since it judged last, by the rules of `allocator.audit`.

The audit follows the API server itself. It shares nothing with what the service knows or remembers.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from allocator import Selectors, Slice, parse_device_class, parse_slice
from allocator.audit import Evidence, Finding, audit, device_findings
from extender.cluster.objects.claims import ClaimObject, parse_claim_object
from extender.cluster.objects.nodes import parse_node_object
from extender.kube.api import Event, EventType, ObjectKey, RawObject, key_of
from extender.kube.resources import CLAIMS, CLASSES, NODES, SLICES, Resource
from extender.lab.api import MemoryApi


@dataclass
class RunningAudit:
    """Judges each claim whose devices have changed, with all that share a pool with it.

    Attributes:
        api: the API server.
        judged: how many allocations were judged.
    """

    api: MemoryApi
    judged: int = 0
    _claims: dict[ObjectKey, ClaimObject] = field(default_factory=dict)
    _slices: dict[ObjectKey, Slice] = field(default_factory=dict)
    _classes: dict[ObjectKey, Any] = field(default_factory=dict)
    _nodes: dict[ObjectKey, Any] = field(default_factory=dict)
    _changed: dict[ObjectKey, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._selectors = Selectors()
        self.api.follow(self)
        self._changed.clear()  # what there is at first was not allocated by the service

    def replace(self, resource: Resource, objects: Iterable[RawObject], at: int) -> bool:
        """What there is at first."""
        del at
        for each in objects:
            self.apply(Event(EventType.ADDED, resource, each))
        return True

    def apply(self, event: Event) -> None:
        """An object has changed."""
        key, is_there = key_of(event.object), event.type is not EventType.DELETED
        if event.resource == CLAIMS:
            self._put_claim(key, parse_claim_object(event.object) if is_there else None)
        elif event.resource == SLICES:
            _put(self._slices, key, parse_slice(event.object) if is_there else None)
        elif event.resource == CLASSES:
            _put(self._classes, key, parse_device_class(event.object) if is_there else None)
        elif event.resource == NODES:
            _put(self._nodes, key, parse_node_object(event.object).node if is_there else None)

    def _put_claim(self, key: ObjectKey, claim: ClaimObject | None) -> None:
        before = self._claims.get(key)
        _put(self._claims, key, claim)
        had = None if before is None else before.claim.allocation
        if claim is not None and claim.claim.allocation not in (None, had):
            self._changed[key] = None

    def findings(self) -> Iterator[Finding]:
        """What is wrong with the claims that got devices since the last call."""
        changed, self._changed = self._changed, {}
        for key in changed:
            own = self._claims.get(key)
            if own is None or own.claim.allocation is None:
                continue
            self.judged += 1
            pools = {result.device.pool_id for result in own.claim.allocation.results}
            slices = tuple(each for each in self._slices.values() if each.pool in pools)
            beside = tuple(each.claim for each in self._claims.values() if _holds_of(each, pools))
            nodes = {key.name: node for key, node in self._nodes.items()}
            classes = {key.name: device_class for key, device_class in self._classes.items()}
            yield from _of(own, device_findings(beside, slices))
            yield from audit(Evidence(slices, classes, (own.claim,), nodes), self._selectors)

    def held_twice(self) -> tuple[Finding, ...]:
        """The devices that are held twice, of all claims."""
        return device_findings([each.claim for each in self._claims.values()], ())


def _put(kept: dict[ObjectKey, Any], key: ObjectKey, value: object) -> None:
    if value is None:
        kept.pop(key, None)
    else:
        kept[key] = value


def _holds_of(claim: ClaimObject, pools: set[Any]) -> bool:
    allocation = claim.claim.allocation
    return allocation is not None and any(each.device.pool_id in pools for each in allocation.results)


def _of(claim: ClaimObject, findings: Iterable[Finding]) -> Iterator[Finding]:
    name = str(claim.claim)
    return (each for each in findings if name in each.claims)
