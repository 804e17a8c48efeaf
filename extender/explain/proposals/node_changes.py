"""The changes that may help a pod on one node: for each device, everything that keeps it from a request."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Final

from allocator import (
    MAX_RESULTS,
    AllocationMode,
    ConstraintSpec,
    Device,
    Held,
    NodePool,
    RemedyKind,
    Seen,
    Wanted,
    competitors,
    constraint_covers,
    selector_matches,
)
from allocator.tools import nearest_attribute
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.explain.change import ProposedChange, Target, size
from extender.explain.device_survey import Survey
from extender.explain.holders import Holders, users
from extender.explain.proposals.claim_edits import ask_for, correct_constraint, drop_constraint, remedied
from extender.explain.proposals.extended_resources import request_fewer
from extender.explain.proposals.features import closed_gates, declare, turn_on
from extender.explain.proposals.pool_repairs import repair
from extender.explain.proposals.releases import release, renew
from extender.pods.claims import PodClaims

Bundle = frozenset[ProposedChange]

_OF_A_DEVICE: Final = 40
"""Bundles for one device and one request; each obstacle may have several remedies."""

_OF_EVERY: Final = frozenset({RemedyKind.TOLERATE, RemedyKind.FREE})
"""Kinds of changes that a request for all devices needs for each device that it lacks."""


@dataclass(slots=True)
class _Offer:
    """What a node offers to one alternative of a request.

    Attributes:
        free: the number of suitable devices.
        bundles: the changes that make other devices suitable.
    """

    free: int = 0
    bundles: list[Bundle] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Bundles:
    """Makes bundles of changes, node by node."""

    pod: Pod
    claims: PodClaims
    targets: Sequence[Target]
    survey: Survey
    holders: Holders
    snapshot: Snapshot

    def on(self, node: NodeObject) -> list[Bundle]:
        """All bundles to try on a node, each once."""
        offers = [self._offer(way, node) for way in self.survey.ways]
        found: dict[Bundle, None] = {}
        for way, offer in zip(self.survey.ways, offers, strict=True):
            found.update(dict.fromkeys((*offer.bundles, *self._of_request(way, offer))))
        found.update(dict.fromkeys(self._of_all_requests(offers)))
        of_node = (*self._of_constraints(node), *self._of_allocated(node), *self._of_pools(node))
        found.update(dict.fromkeys(frozenset((each,)) for each in (*of_node, *closed_gates(self.survey.features))))
        guards = self._guards()
        found.update(dict.fromkeys([guards, *(each | guards for each in found if not _rewrites(each, guards))]))
        found.pop(frozenset(), None)
        return list(found)

    def _guards(self) -> Bundle:
        """What has to be written so that no selector fails on a device of any node; nothing if none fails."""
        targets = ((self.targets[self.survey.ways[way].claim], way, guard) for way, guard in self.survey.guards)
        return frozenset(
            remedied(target, self.survey.ways[way], guard)
            for target, way, guard in targets
            if target.is_written or guard.edit_class is not None
        )

    def _offer(self, way: Wanted, node: NodeObject) -> _Offer:
        offer = _Offer()
        for view in self.survey.views[node.name]:
            for candidate in view.pool.candidates:
                seen = tuple(self.survey.inspector.obstacles(way, candidate, view.pool, node.node))
                if not seen:
                    offer.free += 1
                    continue
                options = [tuple(self._options(way, each, candidate.device, view.pool, node)) for each in seen]
                offer.bundles += (frozenset().union(*each) for each in islice(product(*options), _OF_A_DEVICE))
        return offer

    def _options(
        self, way: Wanted, seen: Seen, device: Device, pool: NodePool, node: NodeObject
    ) -> Iterator[tuple[ProposedChange, ...]]:
        """The ways to remove an obstacle; empty if there is none."""
        of, target = seen.obstacle, self.targets[way.claim]
        for remedy in seen.remedies():
            if target.is_written or remedy.edit_class is not None:
                there = self.survey.values(of.condition, node.name) if remedy.kind is RemedyKind.RELAX_SELECTOR else ""
                yield (remedied(target, way, remedy, there),)
        administrator = [turn_on(of.gate)] if of.gate else []
        administrator += [declare(node, of.node_feature)] if of.node_feature else []
        if administrator:
            yield tuple(administrator)
        if of.held is Held.WHOLE and (releases := self._releases(device, pool, of.held)):
            yield tuple(releases)
        if of.held is Held.SHARED:
            yield from ((each,) for each in self._releases(device, pool, of.held))

    def _releases(self, device: Device, pool: NodePool, held: Held) -> list[ProposedChange]:
        """A release of each claim that is in the way, unless it is the pod's own."""
        devices = [device.id] if held is Held.WHOLE else list(competitors(device, pool))
        claims = {each.claim.uid: each for held in devices for each in self.holders.claims(held)}
        others = (each for each in claims.values() if self.pod.key not in users(each, self.snapshot))
        return [change for each in others if (change := release(each, self.snapshot, self.pod.priority)) is not None]

    def _of_request(self, way: Wanted, offer: _Offer) -> Iterator[Bundle]:
        """Fewer devices; of a request for all devices, every device."""
        target, need = self.targets[way.claim], way.request.count
        if way.request.mode is AllocationMode.ALL:
            need = 1
            yield frozenset(c for b in offer.bundles if all(c.kind in _OF_EVERY for c in b) for c in b)
            if offer.free and target.is_written:
                yield frozenset((ask_for(target, way, min(offer.free, MAX_RESULTS)),))
        else:
            for count in sorted({need - 1, offer.free, MAX_RESULTS, 1}, reverse=True):
                if not 0 < count < need:
                    continue
                if target.is_written:
                    yield frozenset((ask_for(target, way, count),))
                else:
                    yield frozenset(request_fewer(self.pod, way, need - count))

    def _of_all_requests(self, offers: Sequence[_Offer]) -> Iterator[Bundle]:
        """The least that each request needs, if more than one request lacks devices."""
        least, left = [], list(zip(self.survey.ways, offers, strict=True))
        for requests in self.survey.requests:
            ways, left = left[: len(requests)], left[len(requests) :]
            bundles = [bundle for _, offer in ways for bundle in offer.bundles]
            if bundles and not any(offer.free >= way.request.count for way, offer in ways):
                least.append(min(bundles, key=size))
        if len(least) > 1:
            yield frozenset().union(*least)

    def _of_constraints(self, node: NodeObject) -> Iterator[ProposedChange]:
        for index, target in enumerate(self.targets):
            if not target.is_written:
                continue
            for number, spec in enumerate(target.claim.claim.spec.constraints):
                meant = self._meant(index, spec, node)
                if meant:
                    yield correct_constraint(target, number, spec, meant)
                yield drop_constraint(target, number, spec)

    def _meant(self, claim: int, spec: ConstraintSpec, node: NodeObject) -> str:
        """The attribute that a constraint may mean, if no device for its requests has the attribute that it names."""
        ways = [
            (number, way)
            for number, way in enumerate(self.survey.ways)
            if way.claim == claim and constraint_covers(spec, way.request_name, way.request.name)
        ]
        devices = [each for number, _ in ways for each in self.survey.free_devices(node.name, number)]
        if not devices or any(spec.attribute in device.attributes for device in devices):
            return ""
        return nearest_attribute(spec.attribute, devices[0].attributes)

    def _of_pools(self, node: NodeObject) -> Iterator[ProposedChange]:
        for view in self.survey.views[node.name]:
            if view.pool.problem:
                yield repair(self.snapshot.inventory.pools[view.pool.id], view.pool.problem)

    def _of_allocated(self, node: NodeObject) -> Iterator[ProposedChange]:
        """The pod's claims that hold devices of other nodes and that no other pod uses."""
        for each in self.claims.allocated:
            allocation = each.claim.allocation
            if allocation is None or allocation.node_selector is None:
                continue
            elsewhere = not selector_matches(allocation.node_selector, node.node)
            if elsewhere and set(users(each, self.snapshot)) <= {self.pod.key}:
                yield renew(each, self.snapshot)


def _rewrites(bundle: Bundle, guards: Bundle) -> bool:
    """Whether a bundle changes a condition that is guarded."""
    return any(guard.what.startswith(change.what) for change in bundle for guard in guards)
