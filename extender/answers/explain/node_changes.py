"""The changes that may help a pod on one node: for each device, everything that keeps it from a request.

Claims, templates, classes and requests for extended resources (KEP-5004) are edited; claims release their devices; an
administrator turns on feature gates; a driver corrects a pool whose ResourceSlices contradict each other.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import Final

from allocator import (
    GATES,
    MAX_RESULTS,
    AllocationMode,
    ConstraintSpec,
    CounterConsumption,
    Device,
    DeviceClass,
    DeviceId,
    Features,
    Quantity,
    Slice,
    allocation_reaches,
)
from allocator.checks import Wanted, competitors
from allocator.obstacles import Held, Remedy, RemedyKind, Seen
from allocator.pools import NodePool, Pool
from allocator.reason import NO_MATCH
from allocator.search import constraint_covers
from allocator.tools import meant_by, nearest_attribute
from extender.answers.explain.device_survey import AT_ONCE, Survey
from extender.answers.explain.holders import MAX_NAMED, Holders, in_words, users
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.extended_resources import ExtendedRequest, RequestingContainer
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.reservations import is_protected
from extender.framework.pods.claims import PodClaims
from extender.framework.pods.extended_resources import request_name
from extender.kube.encoding import loads
from extender.planning.changes import Fork, ProposedChange, Target, size


def remedied(target: Target, wanted: Wanted, remedy: Remedy, there: str = "") -> ProposedChange:
    """Write a request, or its device class, as a remedy says; ``there`` are the values that exist."""
    if remedy.edit_class is not None:
        name = wanted.request.device_class
        at, where, fork = f"DeviceClass {name}", f"device class {name}", _edited_class(name, remedy.edit_class)
    else:
        at, where, fork = target.at(wanted), f"request {wanted.label}", target.edited_request(wanted, remedy.edit)
    text = f"{remedy.text} {where}{f' ({there})' if there else ''}"
    immutable = "" if remedy.edit_class is not None else target.immutable
    how = f"in {at}, {remedy.how}"
    return ProposedChange(
        remedy.kind, f"{at}: {remedy.what}", text, how, fork, weight=remedy.weight, immutable=immutable
    )


def _edited_class(name: str, edit: Callable[[DeviceClass], DeviceClass]) -> Fork:
    return lambda snapshot: snapshot.with_class(edit(snapshot.classes[name]))


def ask_for(target: Target, wanted: Wanted, count: int) -> ProposedChange:
    """Ask for fewer devices, or for a number of devices instead of all."""
    takes_all = wanted.request.mode is AllocationMode.ALL
    asked = "all" if takes_all else str(wanted.request.count)
    fields = f"allocationMode: ExactCount, count: {count}" if takes_all else f"count: {count}"
    return ProposedChange(
        RemedyKind.ASK_FOR_LESS,
        f"{target.at(wanted)}: count",
        f"ask for {count} {'device' if count == 1 else 'devices'} instead of {asked} in request {wanted.label}",
        f"in {target.at(wanted)}: write {fields}",
        target.edited_request(wanted, lambda r: replace(r, mode=AllocationMode.EXACT_COUNT, count=count)),
        size=1 if takes_all else wanted.request.count - count,
        immutable=target.immutable,
        count=count,
    )


def constraint_text(spec: ConstraintSpec) -> str:
    """A constraint as it is written."""
    kind = spec.kind.value if spec.kind else "constraint"
    return f"{kind}: {spec.attribute}"


def drop_constraint(target: Target, number: int, spec: ConstraintSpec) -> ProposedChange:
    """Do without a constraint."""
    return ProposedChange(
        RemedyKind.DROP_CONSTRAINT,
        f"{target.source}: constraint {number}",
        f"drop the constraint {constraint_text(spec)}",
        f"in {target.source}, constraints[{number}]: remove it",
        target.edited(lambda s: replace(s, constraints=(*s.constraints[:number], *s.constraints[number + 1 :]))),
        immutable=target.immutable,
        position=number,
    )


def correct_constraint(target: Target, number: int, spec: ConstraintSpec, meant: str) -> ProposedChange:
    """Write the attribute that exists into a constraint."""
    right = replace(spec, attribute=meant)
    return ProposedChange(
        RemedyKind.CORRECT,
        f"{target.source}: constraint {number}",
        f"write {meant} instead of {spec.attribute} in the constraint",
        f"in {target.source}, constraints[{number}]: write {constraint_text(right)}",
        target.edited(lambda s: replace(s, constraints=(*s.constraints[:number], right, *s.constraints[number + 1 :]))),
        immutable=target.immutable,
        position=number,
    )


_ONE: Final = Quantity.from_int(1).nano


def request_fewer(pod: Pod, wanted: Wanted, less: int) -> Iterator[ProposedChange]:
    """Request fewer devices of an extended resource.

    Args:
        pod: requests the resource.
        wanted: a request of the pod's special claim.
        less: the number of devices to do without, fewer than the request has.
    """
    for container in pod.containers:
        for request in container.requests:
            if request_name(container, request) == wanted.request_name:
                yield _lowered(pod, container, request, request.amount.nano // _ONE, less)


def _lowered(
    pod: Pod, container: RequestingContainer, request: ExtendedRequest, asked: int, less: int
) -> ProposedChange:
    resource, count = request.resource, asked - less
    at = f"Pod {pod}, container {container.name}"
    by = pod.controller
    instead = f"change the pod template of {by} or of its owner" if by else "delete the pod and create it again"
    return ProposedChange(
        RemedyKind.ASK_FOR_LESS,
        f"{at}: {resource}",
        f"ask for {count} {resource} instead of {asked} in container {container.name}",
        f"in {at}, resources: write {resource}: {count}",
        _requesting(pod, container, replace(request, amount=Quantity.from_int(count))),
        size=less,
        immutable=f"the spec of pod {pod} is immutable: {instead}",
        count=count,
    )


def _requesting(pod: Pod, container: RequestingContainer, request: ExtendedRequest) -> Fork:
    """The fork in which a container has another request for a resource."""
    requests = tuple(request if each.index == request.index else each for each in container.requests)
    containers = tuple(
        replace(each, requests=requests) if each.index == container.index else each for each in pod.containers
    )
    return lambda snapshot: snapshot.with_pod(replace(snapshot.pods[pod.key], containers=containers))


def turn_on(gate: str) -> ProposedChange:
    """Have a feature gate on that is off."""
    return ProposedChange(
        RemedyKind.CONFIGURE,
        f"feature gate {gate}",
        f"turn on the feature gate {gate}",
        f"in the settings of dra-extender: featureGates: {{{gate}: true}}; the API server must have it on, too",
        lambda snapshot: snapshot,
        gate=gate,
    )


def declare(node: NodeObject, feature: str) -> ProposedChange:
    """Have a node declare a feature."""

    def fork(snapshot: Snapshot) -> Snapshot:
        found = snapshot.nodes[node.name]
        features = found.node.declared_features | {feature}
        return snapshot.with_node(replace(found, node=replace(found.node, declared_features=features)))

    return ProposedChange(
        RemedyKind.CONFIGURE,
        f"node {node.name}: feature {feature}",
        f"let node {node.name} declare the feature {feature}",
        f"in Node {node.name}, status.declaredFeatures: its kubelet adds {feature}, with this feature gate on",
        fork,
    )


def closed_gates(features: Features) -> Iterator[ProposedChange]:
    """Each feature gate that is off, turned on."""
    yield from (turn_on(gate) for gate, name in GATES.items() if not getattr(features, name))


CounterSets = dict[str, dict[str, Quantity]]


@dataclass(frozen=True, slots=True)
class _Corrected:
    """The slices as the driver should publish them, and the orders that lead there."""

    slices: tuple[Slice, ...]
    orders: tuple[str, ...]


def repair(pool: Pool, problem: str) -> ProposedChange:
    """Let the driver correct the newest generation of a pool, for example ``1 of 3 slices are there``."""
    corrected = _corrected(pool.newest)

    def fork(snapshot: Snapshot) -> Snapshot:
        for each in corrected.slices:
            snapshot = snapshot.with_slice(each)
        return snapshot

    names = [each.name for each in pool.newest]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ProposedChange(
        RemedyKind.REPAIR,
        f"pool {pool.id}",
        f"let the driver correct pool {pool.id}: {problem}",
        f"in its ResourceSlices ({', '.join(names[:MAX_NAMED])}{more}): {'; '.join(corrected.orders)}",
        fork,
    )


def _corrected(slices: Sequence[Slice]) -> _Corrected:
    """The slices of a pool in the right number, with each name once and all counters that devices consume."""
    orders: list[str] = []
    published = [pair for each in slices for pair in each.counter_sets]
    correct = _Correcting({name: dict(counters) for name, counters in published}, orders)
    named = [replace(each, devices=tuple(map(correct.device, each.devices))) for each in slices]
    sets = _complete(named)
    if len(published) > len(sets) or dict(published) != sets:
        named = [replace(each, counter_sets=()) for each in named]
        name = f"{named[0].name}-all-counters"
        named.append(replace(named[0], name=name, devices=(), counter_sets=tuple(sets.items())))
        orders.append(f"publish sharedCounters in one more slice only: {_counters_text(sets)}")
    if any(each.slice_count > len(named) for each in named):
        orders.append(f"publish the missing slices or, if these are all, write resourceSliceCount: {len(named)}")
    elif any(each.slice_count < len(named) for each in named):
        orders.append(f"write resourceSliceCount: {len(named)}")
    return _Corrected(tuple(replace(each, slice_count=len(named)) for each in named), tuple(orders))


class _Correcting:
    """Corrects the names in the devices of a pool: further devices of a name, and misspelled counters."""

    def __init__(self, sets: CounterSets, orders: list[str]) -> None:
        self._sets = sets
        self._orders = orders
        self._seen: Counter[str] = Counter()

    def device(self, device: Device) -> Device:
        """The device with names that can be used."""
        name = device.id.device
        uses = tuple(self._use(name, each) for each in device.consumes_counters)
        self._seen[name] += 1
        if self._seen[name] > 1:
            other = f"{name}-{self._seen[name]}"
            self._orders.append(f"rename device number {self._seen[name]} with the name {name} to {other}")
            device = replace(device, id=DeviceId(*device.id.pool_id, other))
        return replace(device, consumes_counters=uses)

    def _use(self, device: str, use: CounterConsumption) -> CounterConsumption:
        counter_set = self._meant(device, "counterSet:", use.counter_set, self._sets)
        known = self._sets.get(counter_set, {})
        counters = {self._meant(device, "counter", name, known): amount for name, amount in use.counters.items()}
        return replace(use, counter_set=counter_set, counters=counters)

    def _meant(self, device: str, what: str, name: str, known: Collection[str]) -> str:
        meant = name if name in known else meant_by(name, known)
        if meant and meant != name:
            self._orders.append(f"in device {device}, write {what} {meant} instead of {name}")
        return meant or name


def _complete(slices: Sequence[Slice]) -> CounterSets:
    """All counter sets that are published or consumed. A counter that is only consumed has the largest amount."""
    sets: CounterSets = {}
    for use in (use for each in slices for device in each.devices for use in device.consumes_counters):
        needed = sets.setdefault(use.counter_set, {})
        for name, amount in use.counters.items():
            needed[name] = max(needed.get(name, amount), amount)
    for name, counters in (pair for each in slices for pair in each.counter_sets):
        sets[name] = {**sets.get(name, {}), **counters}
    return sets


def _counters_text(sets: CounterSets) -> str:
    """``{silicon: {memory: 40Gi}}``."""
    texts = (f"{name}: {{{', '.join(f'{n}: {q}' for n, q in counters.items())}}}" for name, counters in sets.items())
    return f"{{{', '.join(texts)}}}"


def release(claim: ClaimObject, snapshot: Snapshot, priority: int) -> ProposedChange | None:
    """Free what a claim holds: by deleting the pods that use it, or, where there are none, the claim.

    Pods of a higher priority than that of the pod for which room is made are marked, and who makes a pod again is told.
    None: a consumer that is no pod uses the claim. How to end it is not known here.
    """
    if any(consumer.resource != "pods" for consumer in claim.claim.reserved_for):
        return None
    pods, held = users(claim, snapshot), in_words(claim, snapshot)
    known = [found for pod in pods if (found := snapshot.pods.get(pod)) is not None]
    facts = {found.key: _facts(found, priority) for found in known}
    named = [f"pod {pod}{facts.get(pod, '')}" for pod in pods]
    commands = [f"kubectl delete pod -n {pod.namespace} {pod.name}" for pod in pods]
    if not pods or _outlasts_pods(claim):
        named.append(f"claim {claim.key}")
        commands.append(_deletion(claim))
    frees = ", which frees" if pods else ", which no pod uses; this frees"
    return ProposedChange(
        RemedyKind.FREE,
        f"claim {claim.key}",
        f"delete {' and '.join(named)}{frees} {held}",
        "; ".join(commands),
        _freed(claim),
        size=max(1, len(pods)),
        weight=sum(found.priority for found in known),
        deletes=pods,
    )


def _facts(pod: Pod, priority: int) -> str:
    """The facts to know before a pod is deleted."""
    higher = f"of higher priority: {pod.priority}; " if pod.priority > priority else ""
    return f" ({higher}{pod.controller or 'no controller'} makes it again)"


def _outlasts_pods(claim: ClaimObject) -> bool:
    """Whether a claim stays allocated. Its controller deallocates only claims with the finalizer of schedulers."""
    is_own = claim.claim.allocation is not None and not (claim.claim.owner_uid or claim.claim.pod_group)
    return is_own and not is_protected(loads(claim.raw))


def renew(claim: ClaimObject, snapshot: Snapshot) -> ProposedChange:
    """Let a claim that no other pod uses be allocated again, with other devices."""
    held = in_words(claim, snapshot)
    text = f"delete claim {claim.key} and create it again, so that it gets other devices than {held}"
    return ProposedChange(RemedyKind.FREE, f"claim {claim.key}", text, _deletion(claim), _freed(claim), weight=-1)


def _freed(claim: ClaimObject) -> Fork:
    def fork(snapshot: Snapshot) -> Snapshot:
        found = snapshot.claims[claim.key]
        freed = replace(found, claim=replace(found.claim, allocation=None, reserved_for=()))
        return snapshot.with_claim(freed).without_assumed(claim.claim.uid)

    return fork


def _deletion(claim: ClaimObject) -> str:
    return f"kubectl delete resourceclaim -n {claim.key.namespace} {claim.key.name}"


Bundle = frozenset[ProposedChange]

_OF_A_DEVICE: Final = 40
"""Bundles for one device and one request; each obstacle may have several remedies."""

_OF_EVERY: Final = frozenset({RemedyKind.TOLERATE, RemedyKind.FREE})
"""Kinds of changes that a request for all devices needs for each device that it lacks."""


@dataclass(slots=True)
class _Offer:
    """The devices that a node offers to one alternative of a request.

    Attributes:
        free: the number of suitable devices.
        bundles: the changes that make other devices suitable, each once.
    """

    free: int = 0
    bundles: dict[Bundle, None] = field(default_factory=dict)


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
        offer, known = _Offer(), set[tuple[Seen, ...]]()
        for view in self.survey.views[node.name]:
            for number, candidate in enumerate(view.pool.candidates):
                if number % AT_ONCE == 0:
                    self.survey.pause()
                seen = tuple(self.survey.inspector.obstacles(way, candidate, view.pool, node.node))
                if not seen:
                    offer.free += 1
                if not seen or seen in known:
                    continue
                options = [tuple(self._options(way, each, candidate.device, view.pool, node)) for each in seen]
                of_device = (frozenset[ProposedChange]().union(*each) for each in product(*options))
                offer.bundles.update(dict.fromkeys(islice(of_device, _OF_A_DEVICE)))
                if all(map(_tells_its_changes, seen)):
                    known.add(seen)
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
            for count in self._fewer(need, offer.free):
                if target.is_written:
                    yield frozenset((ask_for(target, way, count),))
                else:
                    yield frozenset(request_fewer(self.pod, way, need - count))

    def _fewer(self, need: int, free: int) -> Sequence[int]:
        """The numbers of devices to ask for instead, the largest first."""
        some = range(2, min(free, MAX_RESULTS) + 1) if not self.survey.guards else (free, MAX_RESULTS)
        return sorted((count for count in {need - 1, *some, 1} if 0 < count < need), reverse=True)

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
            if allocation is None or allocation_reaches(allocation, node.node):
                continue
            if set(users(each, self.snapshot)) <= {self.pod.key}:
                yield renew(each, self.snapshot)


def _tells_its_changes(seen: Seen) -> bool:
    """Whether equal obstacles need the same changes on all devices. A pool may have tens of thousands of these.

    Others depend on the claims that hold the device, on what is left of it, or on values that are not told.
    """
    of = seen.obstacle
    return of.held is Held.NOT and not of.subject and (of.cause is not NO_MATCH or bool(seen.values))


def _rewrites(bundle: Bundle, guards: Bundle) -> bool:
    """Whether a bundle changes a condition that is guarded."""
    return any(guard.what.startswith(change.what) for change in bundle for guard in guards)
