"""A cluster as a simulation sees it: a snapshot, the nodes that were made up, and the pods that were placed.

A world is immutable, as the snapshot in it: a simulated step makes another one that shares the rest.

A session may judge the drivers of its scope alone; requests for devices of other drivers are left to others.

KEP-3063 has one webhook for each driver: a Cluster Autoscaler asks all of them, and each judges the claims of its own
driver. Structured parameters do not say whose devices a request is for, but selectors do, mostly with a condition such
as ``device.driver == "gpu.example.com"``. Where they do not, the devices that are known tell.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from immutables import Map

from allocator import (
    AllocationResult,
    ClaimSpec,
    ClassMembers,
    Device,
    DeviceClass,
    DeviceId,
    DeviceRequest,
    Limits,
    Reason,
    Request,
    SearchLimitError,
    Selectors,
)
from allocator.cel import CompileError
from allocator.obstacles import conditions_of
from allocator.reason import Cause
from allocator.search import SearchBudget, TimedSelectors
from extender.cluster.consumers import consumer_of
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.extended_resources import RequestingContainer
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import No, Solver
from extender.framework.decisions.verdict import Reasons
from extender.framework.filter import FilterResult
from extender.framework.pods.extended_resources import class_serving
from extender.kube.api import ObjectKey
from extender.planning.kube_scheduler import SchedulerChecks
from extender.planning.node_room import NodeRoom, demand_of
from extender.planning.planner import Planner, as_planned
from extender.planning.templates import Blueprint, Supply, with_new_node, without_devices
from extender.plugins.negotiation.allocating import merged
from extender.plugins.negotiation.protocol import ClaimAsk, NodeName

_SECONDS: Final = 1.0
"""The longest time to find out whose devices a request is for. A request that takes longer is judged."""


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """The drivers that a session judges.

    Attributes:
        supply: the devices that are known, of nodes that exist and of templates.
    """

    drivers: frozenset[str]
    supply: Supply
    _own: dict[tuple[str, ...], bool] = field(default_factory=dict)
    """Selectors, to whether a request with them is judged."""

    def narrowed(self, pod: Pod, snapshot: Snapshot, solver: Solver) -> tuple[Pod, Snapshot]:
        """The pod without what other drivers serve, and the cluster in which its claims ask for the rest.

        Args:
            pod: with the names of its claims, which exist in the snapshot.
            snapshot: the cluster.
            solver: evaluates selectors.
        """
        claims = []
        for reference in pod.claims:
            name = reference.claim_name or pod.claim_statuses.get(reference.name)
            found = snapshot.claims.get(ObjectKey(pod.namespace, name or ""))
            if found is None or found.claim.allocation is not None:
                claims.append(reference)
                continue
            spec = self._narrowed(found.claim.spec, snapshot, solver)
            if spec.requests or not found.claim.spec.requests:
                claims.append(reference)
                snapshot = snapshot if spec is found.claim.spec else snapshot.with_claim(_with_spec(found, spec))
        containers = tuple(
            each for one in pod.containers if (each := self._unserved_resources(one, snapshot, solver)).requests
        )
        return replace(pod, claims=tuple(claims), containers=containers), snapshot

    def _narrowed(self, spec: ClaimSpec, snapshot: Snapshot, solver: Solver) -> ClaimSpec:
        """The spec with the requests that are judged, and with constraints between these."""
        own = tuple(each for each in spec.requests if self._judges(each, snapshot, solver))
        if len(own) == len(spec.requests):
            return spec
        names = {each.name for each in own}
        others = {each.name for each in spec.requests} - names

        def kept(requests: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(each for each in requests if each.partition("/")[0] in names)

        return ClaimSpec(
            own,
            tuple(
                replace(each, requests=kept(each.requests))
                for each in spec.constraints
                if not each.requests or kept(each.requests)
            ),
            tuple(
                replace(each, requests=kept(each.requests))
                for each in spec.configs
                if not each.requests or kept(each.requests)
            ),
            tuple(each for each in spec.optional if each in names or each not in others),
        )

    def _unserved_resources(
        self, container: RequestingContainer, snapshot: Snapshot, solver: Solver
    ) -> RequestingContainer:
        """The container with the extended resources that no device class of another driver serves.

        A group resource is judged as a whole if one of its members is.
        """

        def is_own(resource: str) -> bool:
            device_class = snapshot.classes.get(class_serving(resource, snapshot) or "")
            if device_class is not None and device_class.group is not None:
                members = (snapshot.classes.get(name) for name, _ in device_class.group.members)
                return any(each is None or self._is_own(each.selectors, solver) for each in members)
            return device_class is None or self._is_own(device_class.selectors, solver)

        own = tuple(each for each in container.requests if is_own(each.resource))
        return container if len(own) == len(container.requests) else replace(container, requests=own)

    def _judges(self, request: Request, snapshot: Snapshot, solver: Solver) -> bool:
        """Whether a request is judged: one with an alternative that another driver serves may be served there."""
        return all(self._is_for_own(each, snapshot, solver) for each in request.alternatives)

    def _is_for_own(self, way: DeviceRequest, snapshot: Snapshot, solver: Solver) -> bool:
        device_class = snapshot.classes.get(way.device_class)
        return device_class is None or self._is_own((*device_class.selectors, *way.selectors), solver)

    def _is_own(self, selectors: tuple[str, ...], solver: Solver) -> bool:
        if selectors not in self._own:
            budget = SearchBudget(Limits(seconds=_SECONDS), solver.clock)
            try:
                self._own[selectors] = self._found_own(selectors, solver.selectors, budget)
            except (CompileError, SearchLimitError):
                return True  # The decision itself says what is wrong with the selectors.
        return self._own[selectors]

    def _found_own(self, selectors: tuple[str, ...], evaluator: Selectors, budget: SearchBudget) -> bool:
        timed = TimedSelectors(evaluator, budget)
        conditions = (condition for each in selectors for condition in conditions_of(each))
        of_driver = tuple(each for each in conditions if _reads_driver_alone(each, evaluator))
        if of_driver:
            members = ClassMembers(DeviceClass("", of_driver), timed)
            return any(members.has(Device(DeviceId(driver, "", ""))) for driver in self.drivers)
        members = ClassMembers(DeviceClass("", selectors), timed)
        if any(members.has(each) for each in self._devices(are_own=True)):
            return True
        return not any(members.has(each) for each in self._devices(are_own=False))

    def _devices(self, *, are_own: bool) -> Iterator[Device]:
        """The known devices of the drivers that are judged, or of all others."""
        templates = (each.blueprint.slices for each in self.supply.catalog.templates)
        slices = chain(chain.from_iterable(templates), self.supply.snapshot.inventory.slices.values())
        for each in slices:
            if (each.pool.driver in self.drivers) is are_own:
                yield from each.devices


def _with_spec(found: ClaimObject, spec: ClaimSpec) -> ClaimObject:
    return replace(found, claim=replace(found.claim, spec=spec))


def _reads_driver_alone(condition: str, selectors: Selectors) -> bool:
    reads = selectors.reads(condition)
    others = reads.everything or reads.attributes or reads.capacities or reads.allow_multiple_allocations
    return reads.driver and not others


DEVICE_BYTES: Final = 700
"""What a device of a made-up node takes, about: its attributes are shared with its template."""

NODE_BYTES: Final = 4_000
"""What a made-up node takes beside its devices, about."""

CLAIM_BYTES: Final = 4_000
"""What a claim that is held in the world takes, its place in the indexes and its pod's included, about."""

PLACED_BYTES: Final = 1_600
"""What a whole pod that has a node takes, with its place in the indexes, about."""

REJECTED: Final = Cause("kube-scheduler", "{detail}")
"""kube-scheduler itself rejects a node."""

_INSUFFICIENT: Final = Cause("device-plugins", "insufficient {detail}")


@dataclass(frozen=True, slots=True)
class Holding:
    """An allocation that a controller of negotiated claims would make.

    Attributes:
        controller: its name.
        ask: the claim, as the controller was asked about it.
        node: for which it would allocate.
        allocation: what it would allocate.
    """

    controller: str
    ask: ClaimAsk
    node: NodeName
    allocation: AllocationResult = field(default_factory=AllocationResult)


@dataclass(frozen=True, slots=True)
class World:
    """The cluster of a session: with nodes that do not exist, and with pods that are booked.

    Attributes:
        snapshot: the cluster with everything that was made up.
        supply: what nodes that do not exist bring.
        fictional: name of a made-up node to what it was made from.
        weight: bytes that the world takes beyond the snapshot that it began with, about.
        scope: the drivers that are judged; None: all.
        granted: what controllers would allocate for the pod that is placed next, by uid of the claim.
        held: what they would have allocated for the pods that were placed, by uid of the claim.
    """

    snapshot: Snapshot
    supply: Supply
    scope: Scope | None = None
    fictional: Map[str, Sequence[Blueprint]] = field(default_factory=Map)
    weight: int = 0
    granted: Map[str, Holding] = field(default_factory=Map)
    held: Map[str, Holding] = field(default_factory=Map)

    def holds(self, controller: str) -> Iterable[Holding]:
        """What a controller would have allocated, and what is not released."""
        return [each for each in self.held.values() if each.controller == controller]

    def with_nodes(self, nodes: Iterable[NodeObject]) -> "World":
        """The world with these nodes added. A node that exists already stays as it is."""
        world = self
        for node in nodes:
            if not world._is_real(node.name):
                world = world._with_fictional(node)
        return world

    def _is_real(self, name: str) -> bool:
        """Whether a node is in the cluster, or has published something: its Node object may come late."""
        began = self.supply.snapshot
        return name in began.nodes or name in began.inventory.local

    def _with_fictional(self, node: NodeObject) -> "World":
        blueprints = self.supply.blueprints(node.node)
        before = self.fictional.get(node.name)
        if before == blueprints and self.snapshot.nodes[node.name] == node:
            return self
        is_same = before == blueprints
        snapshot = self.snapshot if is_same else without_devices(node.name, before or (), self.snapshot)
        snapshot = with_new_node(node, () if is_same else blueprints, snapshot)
        weight = self.weight + _weight(blueprints) - (0 if before is None else _weight(before))
        return replace(self, snapshot=snapshot, fictional=self.fictional.set(node.name, blueprints), weight=weight)

    def filter(
        self,
        pod: Pod,
        names: Sequence[str],
        decider: Decider,
        *,
        sent: Iterable[NodeObject] = (),
        until: float = float("inf"),
    ) -> FilterResult:
        """The nodes that serve a pod. Nothing changes.

        Args:
            pod: as it was sent.
            names: the nodes to decide about.
            decider: decides, and remembers what it decided for the cluster and for other worlds.
            sent: the nodes, if whole nodes were sent. Their labels count, also for nodes that exist.
            until: when to stop, by the decider's solver's clock.

        Raises:
            TimeoutError: time was up before any node was found.
        """
        snapshot = self.snapshot
        for node in sent:
            snapshot = snapshot.with_node(node)
        solver = decider.solver.within(until)
        pod, snapshot = self.with_claims(pod, snapshot, solver)
        short = _rejections(pod, names, snapshot)
        left = [name for name in names if name not in short]
        found = Planner(solver, decider).filter(pod, left, snapshot)
        return replace(found, unresolvable=found.unresolvable.beside(Reasons.of(short))) if short else found

    def with_pod(self, pod: Pod, node: NodeObject, solver: Solver) -> "World | No":
        """The world with a pod on a node, where it holds its devices; or why the pod can't be there.

        A pod that is on another node moves: the devices that only this pod held there are free again.
        """
        if not pod.needs_devices:
            return self._with_plain(pod, node)
        pod, before = self.with_claims(pod, self.snapshot, solver)
        before_on_node = before.with_node(node)
        if rejected := _rejections(pod, [node.name], before_on_node):
            return No(rejected[node.name])
        found = Planner.remembering(solver).place(pod, node.name, before_on_node)
        if isinstance(found, No):
            return found
        is_new = self.snapshot.pod(pod.uid) is self.supply.snapshot.pod(pod.uid)
        after = self._negotiated(found._replace(nodes=before.nodes), pod)
        held = self.held.update(self.granted)
        gone = [uid for uid in held if not after.held_by(uid)]
        for uid in gone:
            held = held.delete(uid)
        weight = self.weight + is_new * CLAIM_BYTES * len(pod.claims)
        return replace(self, snapshot=after, weight=weight, granted=Map(), held=held)

    def _with_plain(self, pod: Pod, node: NodeObject) -> "World | No":
        """The world with a pod without devices on a node: it counts if whole pods do."""
        snapshot = without_place(pod, self.snapshot)
        if snapshot.placed is None:
            return self
        if rejected := _rejections(pod, [node.name], snapshot.with_node(node)):
            return No(rejected[node.name])
        placed = snapshot.placed.with_pod(replace(pod, node_name=node.name))
        return replace(self, snapshot=snapshot._replace(placed=placed), weight=self.weight + PLACED_BYTES)

    def _negotiated(self, snapshot: Snapshot, pod: Pod) -> Snapshot:
        """The cluster with what controllers would allocate for a pod that was placed."""
        for uid, holding in self.granted.items():
            found = snapshot.claim(uid)
            if found is None:
                continue
            consumer = consumer_of(pod, found.claim, snapshot)
            users = (*(user for user in found.claim.reserved_for if user.uid != consumer.uid), consumer)
            allocation = merged(found.claim.allocation or AllocationResult(), holding.allocation)
            claim = replace(found.claim, allocation=allocation, reserved_for=users)
            snapshot = snapshot.with_claim(replace(found, claim=claim))
        return snapshot

    def with_claims(self, pod: Pod, snapshot: Snapshot, solver: Solver) -> tuple[Pod, Snapshot]:
        """The pod with the names of its claims, as far as they are judged, and the cluster with these claims.

        Args:
            pod: as it was sent.
            snapshot: a fork of the world's.
            solver: evaluates selectors.
        """
        pod, snapshot = as_planned(pod, without_place(pod, snapshot))
        return (pod, snapshot) if self.scope is None else self.scope.narrowed(pod, snapshot, solver)


def without_place(pod: Pod, snapshot: Snapshot) -> Snapshot:
    """The cluster in which a pod has not got its node yet: it is asked about without one."""
    placed = snapshot.placed
    before = None if placed is None or pod.node_name else placed.pods.get(pod.key)
    if placed is None or before is None or before.uid != pod.uid:
        return snapshot
    return snapshot._replace(placed=placed.without_pod(pod.key))


def _rejections(pod: Pod, names: Sequence[str], snapshot: Snapshot) -> Mapping[str, Reason]:
    """The nodes that lack something apart from devices, each with the reason: all of it, if whole pods are known."""
    if snapshot.placed is not None:
        rejected = SchedulerChecks(snapshot, [name for name in names if name in snapshot.nodes]).rejections(pod)
        return {name: Reason(REJECTED, detail=reason) for name, reason in rejected.items()}
    return {name: reason for name in names if (reason := _shortage(pod, snapshot.nodes.get(name), snapshot))}


def _shortage(pod: Pod, node: NodeObject | None, snapshot: Snapshot) -> Reason | None:
    """What the device plugins of a node have too little of for a pod, as `estimate` says it; None if they suffice."""
    if node is None or not pod.containers:
        return None
    others = (each for each in snapshot.pods_on(node.name) if each.uid != pod.uid and not each.is_finished)
    room = NodeRoom(node, (demand_of(each, is_whole=False) for each in others))
    lacking = next(room.short_of(demand_of(pod, is_whole=False)), "")
    return Reason(_INSUFFICIENT, detail=lacking) if lacking else None


def _weight(blueprints: Iterable[Blueprint]) -> int:
    return NODE_BYTES + DEVICE_BYTES * sum(each.device_count for each in blueprints)
