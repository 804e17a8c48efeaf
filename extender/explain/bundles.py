"""What could be changed for a pod on a node: for each device all that keeps it from a request, and what else helps."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from allocator import (
    MAX_RESULTS,
    AllocationMode,
    Cause,
    ConstraintSpec,
    Device,
    NodePool,
    Obstacle,
    Seen,
    Wanted,
    constraint_covers,
    counter_demand,
    nearest_attribute,
    selector_matches,
)
from extender.explain.administration import (
    correct_class,
    declare,
    is_off,
    turn_on,
)
from extender.explain.changes import Change, Kind, Target, add_devices, release, renew
from extender.explain.edits import (
    ask_for,
    ask_for_capacity,
    correct_attribute,
    correct_capacity,
    correct_constraint,
    drop_capacity,
    drop_constraint,
    relax,
    tolerate,
)
from extender.explain.holders import Holders
from extender.explain.holdings import users
from extender.explain.repairs import repair
from extender.explain.survey import OF_STATE, Survey
from extender.pods.claims import PodClaims
from extender.state.objects import ClaimObject, NodeObject, Pod
from extender.state.snapshot import Snapshot

Bundle = frozenset[Change]


@dataclass(slots=True)
class _Offer:
    """What a node has for one way to serve a request.

    Attributes:
        ready: devices against which nothing speaks.
        bundles: what would have to change for each of the others, as far as it can be changed.
        loose: changes each of which may help several devices, alone or with others.
        like: a device that is of the right kind, whoever has it.
    """

    ready: int = 0
    bundles: list[Bundle] = field(default_factory=list)
    loose: list[Change] = field(default_factory=list)
    like: Device | None = None


@dataclass(frozen=True, slots=True)
class Bundles:
    """Makes bundles of changes, node by node.

    Attributes:
        gates: feature gates that are off.
    """

    pod: Pod
    claims: PodClaims
    targets: Sequence[Target]
    survey: Survey
    holders: Holders
    snapshot: Snapshot
    gates: Sequence[Change] = ()

    def on(self, node: NodeObject) -> list[Bundle]:
        """All that may be worth trying on a node, each once."""
        found: dict[Bundle, None] = {}
        for requests in self.survey.requests:
            for way in requests:
                offer = self._offer(way, node)
                found.update(dict.fromkeys(offer.bundles))
                found.update(dict.fromkeys(frozenset((each,)) for each in offer.loose))
                found.update(dict.fromkeys(self._of_request(way, offer, node)))
        of_node = (*self._of_constraints(node), *self._of_allocated(node), *self._of_pools(node), *self.gates)
        found.update(dict.fromkeys(frozenset((change,)) for change in of_node))
        return list(found)

    def _offer(self, way: Wanted, node: NodeObject) -> _Offer:
        offer = _Offer()
        for view in self.survey.views[node.name]:
            for candidate in view.pool.candidates:
                seen = tuple(self.survey.inspector.obstacles(way, candidate, view.pool, node.node))
                if not seen:
                    offer.ready += 1
                if offer.like is None and all(s.obstacle.cause in OF_STATE for s in seen):
                    offer.like = candidate.device
                self._enter(offer, way, seen, candidate.device, view.pool, node)
        return offer

    def _enter(
        self, offer: _Offer, way: Wanted, seen: Sequence[Seen], device: Device, pool: NodePool, node: NodeObject
    ) -> None:
        needed: list[Change] = []
        for each in seen:
            if each.obstacle.cause in _OF_OTHERS:
                offer.loose += self._room(way, each, device, pool)
                if each.obstacle.meant:
                    needed += self._cure(way, each, device)
                continue
            changes = self._cure(way, each, device) or self._upkeep(way, each, node)
            if not changes:
                return
            needed += changes
        if needed:
            offer.bundles.append(frozenset(needed))

    def _cure(self, way: Wanted, seen: Seen, device: Device) -> list[Change]:
        """What removes an obstacle for good; nothing, if nobody can."""
        obstacle, target = seen.obstacle, self.targets[way.claim]
        if obstacle.cause is Cause.IN_USE:
            return list(self._releases(self.holders.claims(device.id)))
        if not target.is_written:
            return []
        if obstacle.taint is not None:
            return [tolerate(target, way, obstacle.taint)]
        if obstacle.cause is Cause.SELECTOR and obstacle.number >= 0:
            corrected = correct_attribute(target, way, obstacle) if obstacle.meant else None
            return [corrected or relax(target, way, obstacle)]
        if obstacle.cause is Cause.CAPACITY and obstacle.meant:
            return [correct_capacity(target, way, obstacle.subject, obstacle.meant)]
        return []

    def _upkeep(self, way: Wanted, seen: Seen, node: NodeObject) -> list[Change]:
        """What an administrator can do about an obstacle: nodes, feature gates and classes are theirs."""
        obstacle = seen.obstacle
        if obstacle.cause in _GATED:
            gate = [turn_on(obstacle.subject)] if is_off(obstacle.subject, self.survey.features) else []
            lacks = obstacle.cause is Cause.NODE_OPERATIONS and obstacle.subject not in node.node.declared_features
            return [*gate, *([declare(node, obstacle.subject)] if lacks else [])]
        if obstacle.cause is Cause.SELECTOR and obstacle.number < 0:
            return self._of_class(way, obstacle)
        return []

    def _of_class(self, way: Wanted, obstacle: Obstacle) -> list[Change]:
        """A class whose selector reads an attribute by a wrong name is corrected."""
        texts = [(source, text) for source, text, number in way.selectors if number is None]
        number = [source for source, _ in texts].index(obstacle.subject)
        name, old = way.request.device_class, texts[number][1]
        change = correct_class(name, number, obstacle.missing, obstacle.meant, old) if obstacle.meant else None
        return [] if change is None else [change]

    def _room(self, way: Wanted, seen: Seen, device: Device, pool: NodePool) -> Iterator[Change]:
        """What makes room in a capacity or in counters."""
        name, target = seen.obstacle.subject, self.targets[way.claim]
        asked = dict(way.request.capacity or ())
        if seen.obstacle.cause is Cause.CAPACITY:
            if target.is_written:
                yield from (drop_capacity(target, way, each) for each in ([name] if name in asked else asked))
            if seen.left is not None and target.is_written and name in asked and 0 < seen.left.nano < asked[name].nano:
                yield ask_for_capacity(target, way, name, seen.left)
            drawing = self.holders.claims(device.id)
        else:
            sets = {key[1] for key, _ in counter_demand(device)}
            others = {d.id: {key[1] for key, _ in counter_demand(d)} for d in _drawing(pool)}
            drawing = [c for d, c in self.holders.in_pool(pool.id) if others.get(d, set()) & sets]
        yield from self._releases(drawing)

    def _of_request(self, way: Wanted, offer: _Offer, node: NodeObject) -> Iterator[Bundle]:
        """Fewer devices, more devices, all devices."""
        target, need = self.targets[way.claim], way.request.count
        if way.request.mode is AllocationMode.ALL:
            need = 1
            every = [c for b in offer.bundles if all(c.kind in {Kind.TOLERATE, Kind.FREE} for c in b) for c in b]
            if every:
                yield frozenset(every)
            if offer.ready and target.is_written:
                yield frozenset((ask_for(target, way, min(offer.ready, MAX_RESULTS)),))
        elif target.is_written:
            for count in sorted({need - 1, offer.ready, MAX_RESULTS, 1}, reverse=True):
                if 0 < count < need:
                    yield frozenset((ask_for(target, way, count),))
        if offer.like is not None:
            count = max(1, need - offer.ready)
            if count <= MAX_RESULTS:
                yield frozenset((add_devices(offer.like, node.name, count),))

    def _of_constraints(self, node: NodeObject) -> Iterator[Change]:
        for index, target in enumerate(self.targets):
            if not target.is_written:
                continue
            for number, spec in enumerate(target.claim.claim.spec.constraints):
                meant = self._meant(index, spec, node)
                if meant:
                    yield correct_constraint(target, number, spec, meant)
                yield drop_constraint(target, number, spec)

    def _meant(self, claim: int, spec: ConstraintSpec, node: NodeObject) -> str:
        """The attribute that a constraint may have meant, where no device for its requests has the one it names."""
        ways = [
            (number, way)
            for number, way in enumerate(self.survey.ways)
            if way.claim == claim and constraint_covers(spec, way.request_name, way.request.name)
        ]
        devices = [
            candidate.device
            for number, _ in ways
            for view in self.survey.views[node.name]
            for candidate, seen in zip(view.pool.candidates, view.first[number], strict=True)
            if seen is None or seen.obstacle.cause in OF_STATE
        ]
        if not devices or any(spec.attribute in device.attributes for device in devices):
            return ""
        return nearest_attribute(spec.attribute, devices[0])

    def _of_pools(self, node: NodeObject) -> Iterator[Change]:
        for view in self.survey.views[node.name]:
            if view.pool.problem:
                yield repair(self.snapshot.inventory.pools[view.pool.id], view.pool.problem)

    def _of_allocated(self, node: NodeObject) -> Iterator[Change]:
        """Claims of the pod that have devices elsewhere, where nobody else uses them."""
        for each in self.claims.allocated:
            allocation = each.claim.allocation
            if allocation is None or allocation.node_selector is None:
                continue
            elsewhere = not selector_matches(allocation.node_selector, node.node)
            if elsewhere and set(users(each, self.snapshot)) <= {self.pod.key}:
                yield renew(each, self.snapshot)

    def _releases(self, claims: Iterable[ClaimObject]) -> Iterator[Change]:
        """Freeing each of some claims, as far as it is not the pod's own."""
        for claim in {each.claim.uid: each for each in claims}.values():
            if self.pod.key not in users(claim, self.snapshot):
                yield release(claim, self.snapshot)


_GATED = frozenset({Cause.PARTITION, Cause.BINDING_CONDITIONS, Cause.NODE_OPERATIONS})
"""Obstacles whose subject is a feature gate."""

_OF_OTHERS = frozenset({Cause.CAPACITY, Cause.COUNTERS, Cause.COMPATIBILITY})
"""What several claims use up together: freeing some of them may do."""


def _drawing(pool: NodePool) -> Iterator[Device]:
    """The devices that draw on a pool's counters."""
    yield from (c.device for c in pool.candidates if c.device.consumes_counters)
    yield from pool.elsewhere
