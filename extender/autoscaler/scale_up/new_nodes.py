"""New nodes of some groups: what each takes, and what each is after it has taken pods. Each such state is found once.

Pods that hold only devices of the new node leave it in a state that depends on nothing but the devices in use. So two
nodes with the same devices in use are one state, whichever pods hold them. Two pods whose claims differ only in
selectors count as one if the selectors match the same devices of the node. If devices take CPU of their node, what
pods request of the node is a part of its state, so no two states are compared.

A pod that fits nowhere is suggested a new node of each group that may take it.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Final

from allocator import ClaimSpec, PoolId, Reason, Usage
from allocator.obstacles import RemedyKind
from allocator.pools import Candidate
from extender.autoscaler.scale_up.plan import NodeDemand, NodeGroup
from extender.autoscaler.simulated_cluster import REJECTED, World
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.cycle import feasible_on
from extender.framework.decisions.solver import No, Solver
from extender.framework.pods.node_resources import is_counted
from extender.planning.changes import ProposedChange, Suggestion
from extender.planning.kube_scheduler import SchedulerChecks, rejection
from extender.planning.node_room import free_devices
from extender.planning.planner import Planner
from extender.planning.templates import HOSTNAME, Catalog, Group, Supply, with_new_node


@dataclass(frozen=True, slots=True, eq=False)
class PodShape:
    """All that decides about a pod on a new node. Pods of one shape are interchangeable.

    Attributes:
        groups: names of the node groups that may take it; None: all of them.
        devices: number of what it wants of devices; pods of other shapes may want the same.
        specs: of its claims that are not allocated.
        form: number of what it wants of devices, the selectors of its claims aside.
        least: devices that it can't do without.
        size: devices, cpu, memory; larger ones go first.
        is_alone: it shares a claim, has one already, or has rules: no other pod is like it.
        has_rules: a rule of its namespace compares the devices that it and the pods before have got.
    """

    demand: NodeDemand
    groups: frozenset[str] | None
    devices: int
    specs: tuple[ClaimSpec, ...]
    form: int
    least: int
    size: tuple[int, ...]
    is_alone: bool
    has_rules: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Fill:
    """The pods that a new node takes.

    Attributes:
        offered: shape to how many pods of it there were.
        takes: shape to how many of them it takes.
        stranded: devices of the node from which these pods take nothing.
        after: the cluster with them, if something outside of the node is held; None: the next node takes the same.
    """

    offered: Mapping[PodShape, int]
    takes: Mapping[PodShape, int]
    stranded: int
    after: Snapshot | None

    def repeats(self, waiting: Mapping[PodShape, int]) -> bool:
        """Whether another node takes the same of what waits now, if nothing elsewhere is held (`after` is None).

        Of a shape that ran out, a node might have taken more.
        """
        if any(shape not in self.offered for shape in waiting):
            return False
        return all(
            waiting.get(shape, 0) == count if count == self.offered[shape] else waiting.get(shape, 0) >= count
            for shape, count in self.takes.items()
        )


@dataclass(frozen=True, slots=True)
class Option:
    """The nodes that a group would add for the waiting pods.

    Attributes:
        nodes: for each new node, the number of pods of each shape on it.
        stranded: devices of these nodes from which the pods take nothing.
        after: the cluster with these nodes and pods.
    """

    nodes: tuple[Mapping[PodShape, int], ...]
    stranded: int
    after: Snapshot

    @property
    def shapes(self) -> frozenset[PodShape]:
        """The shapes that the plan helps."""
        return frozenset(shape for node in self.nodes for shape in node)


@dataclass(frozen=True, slots=True, eq=False)
class Filling:
    """A new node that is being filled.

    Attributes:
        snapshot: the cluster with the node and what is in use on it.
        free: devices that pods may still get on it, at most.
        kind: of the node.
        is_local: the pods hold nothing outside of the node.
        after: number of what a pod wants of devices to the node with that pod, or to why it takes none; grows.
    """

    node: str
    snapshot: Snapshot
    free: float
    kind: "NodeKind"
    is_local: bool = True
    after: dict[int, "Filling | No"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class NodeKind:
    """Empty nodes that give the same devices to a pod, and what was found out about them.

    Attributes:
        pools: that the node brings.
        models: one of each of its devices that no selector tells apart; None: it reaches other devices, too.
        wants: number of what a pod wants of devices to the first number that wants the same of these nodes; grows.
        firsts: what is wanted of these nodes to that first number; grows.
        fillings: what is in use of the pools to a node in that state; grows.
    """

    pools: tuple[PoolId, ...]
    models: tuple[Candidate, ...] | None
    wants: dict[int, int] = field(default_factory=dict)
    firsts: dict[Hashable, int] = field(default_factory=dict)
    fillings: dict[Hashable, Filling] = field(default_factory=dict)

    def state(self, usage: Usage) -> Hashable:
        """What is in use of the pools."""
        return tuple([usage.pools.get(pool) for pool in self.pools])


class NewNodes:
    """New nodes of some groups in one cluster.

    Args:
        cluster: the simulated cluster.
        groups: of the nodes.
        solver: the allocator, for as long as the call has time.
        differ: nodes of two groups never count as alike: what pods want may depend on a node's labels.
    """

    def __init__(self, cluster: World, groups: Sequence[NodeGroup], solver: Solver, *, differ: bool) -> None:
        self._groups = groups
        self._solver = solver
        self._planner = Planner.remembering(solver)
        self._differ = differ or bool(cluster.snapshot.inventory.roaming) or cluster.snapshot.placed is not None
        self.blueprints = [cluster.supply.blueprints(group.room.node.node) for group in groups]
        self._base = cluster.snapshot
        self._empty: dict[Hashable, Filling] = {}

    def begin(self, snapshot: Snapshot) -> None:
        """Look at empty nodes in this cluster from now on."""
        if snapshot is not self._base:
            self._base = snapshot
            self._empty.clear()

    def empty(self, index: int, number: int, snapshot: Snapshot) -> Filling:
        """One more new node of a group. While nothing outside of new nodes is held, they are all alike.

        Args:
            index: of the group.
            number: how many of the group there are.
            snapshot: the cluster, with what pods on other new nodes hold.
        """
        if snapshot is not self._base:
            return self._made(index, number, snapshot)
        kind = self._kind(index)
        known = self._empty.get(kind)
        if known is None:
            known = self._empty[kind] = self._made(index, number, snapshot)
        return known

    def filled(self, filling: Filling, shape: PodShape, pod: Pod) -> Filling | No:
        """The node with one more pod, which is of the shape.

        Raises:
            TimeoutError: time was up.
        """
        wants = self._wants(filling, shape) if filling.is_local else shape.devices
        known = filling.after.get(wants)
        if known is None:
            known = filling.after[wants] = self._after_placing(filling, shape, pod)
        return known

    def _after_placing(self, filling: Filling, shape: PodShape, pod: Pod) -> Filling | No:
        self._solver.look()
        snapshot = filling.snapshot
        if snapshot.placed is not None and (
            rejected := SchedulerChecks(snapshot, [filling.node]).rejections(pod).get(filling.node)
        ):
            return No(Reason(REJECTED, detail=rejected))
        node = snapshot.nodes[filling.node]
        if shape.has_rules and isinstance(refused := feasible_on(pod, node, snapshot, self._solver), No):
            return refused
        found = self._planner.take(pod, filling.node, snapshot)
        if isinstance(found, No):
            return found
        kind = filling.kind
        # Devices in use are not the whole state where more counts.
        counts = snapshot.placed is not None or is_counted(snapshot, self._solver.features)
        if counts or not filling.is_local or shape.is_alone or not found.pools.issubset(kind.pools):
            after = found.held(pod, filling.node, filling.snapshot)
            return replace(filling, snapshot=after, free=self._free(after, filling.node), is_local=False, after={})
        usage = found.used(filling.snapshot.usage)
        state = kind.state(usage)
        known = kind.fillings.get(state)
        if known is None:
            after = filling.snapshot._replace(usage=usage)
            known = replace(filling, snapshot=after, free=self._free(after, filling.node), after={})
            kind.fillings[state] = known
        return known

    def _free(self, snapshot: Snapshot, node: str) -> float:
        return free_devices(snapshot, node, self._solver.features)

    def _wants(self, filling: Filling, shape: PodShape) -> int:
        """The number of the first shape that wants the same of the node's devices."""
        kind = filling.kind
        known = kind.wants.get(shape.devices)
        if known is None:
            selection = None
            if kind.models is not None and not shape.is_alone:
                selection = self._solver.selection(shape.specs, filling.snapshot.classes, kind.models)
            same = shape.devices if selection is None else (shape.form, selection)
            known = kind.wants[shape.devices] = kind.firsts.setdefault(same, shape.devices)
        return known

    # --- nodes ----------------------------------------------------------------------------------------------

    def _kind(self, index: int) -> Hashable:
        """The key by which kinds of empty nodes are told apart. Devices elsewhere may depend on a node's labels."""
        if self._differ:
            return index
        of_group = self._groups[index].room.node
        plugins = frozenset((name, amount.nano) for name, amount in of_group.allocatable.items())
        resources = frozenset(() if self._base.node_requests is None else of_group.resources.items())
        return tuple(map(id, self.blueprints[index])), of_group.node.declared_features, plugins, resources

    def _made(self, index: int, number: int, snapshot: Snapshot) -> Filling:
        """One more new node of a group. No real node can have such a name."""
        group = self._groups[index]
        name = f"{group.name}/{number}"
        of_group = group.room.node
        labels = {**of_group.node.labels, **({HOSTNAME: name} if HOSTNAME in of_group.node.labels else {})}
        node = replace(of_group, node=replace(of_group.node, name=name, labels=labels))
        snapshot = with_new_node(node, self.blueprints[index], snapshot)
        pools = tuple(snapshot.inventory.local.get(name, ()))
        views = snapshot.inventory.for_node(snapshot.nodes[name].node, self._solver.features)
        has_others = any(view.id not in pools for view in views)
        models = None if has_others else _models(each for view in views for each in view.candidates)
        return Filling(name, snapshot, self._free(snapshot, name), NodeKind(pools, models))


def _models(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """One of each that no selector tells apart, because they share everything that an expression can read."""
    found: dict[Hashable, Candidate] = {}
    for each in candidates:
        device = each.device
        shared = (id(device.attributes), id(device.quantities))
        found.setdefault((device.driver, *shared, device.allow_multiple_allocations, each.unsupported), each)
    return tuple(found.values())


MOST_GROUPS: Final = 64
"""Groups that are suggested, those whose nodes bring the fewest devices."""


@dataclass(frozen=True, slots=True)
class SuggestedNodes:
    """Suggests a new node of a group; implements `extender.planning.changes.Suggest`.

    Attributes:
        catalog: what nodes of a group bring.
    """

    catalog: Catalog

    def __call__(self, pod: Pod, snapshot: Snapshot, solver: Solver) -> Iterator[Suggestion]:
        """A node of each group that kube-scheduler would take; those with the fewest devices come first."""
        supply = Supply(self.catalog, snapshot)
        found = []
        for group in supply.groups():
            solver.look()
            if not rejection(pod.requirements, group.node):
                found.append(_suggestion(group, supply, snapshot))
        found.sort(key=lambda each: each.changes[0].weight)
        yield from found[:MOST_GROUPS]


def _suggestion(group: Group, supply: Supply, snapshot: Snapshot) -> Suggestion:
    name = next(name for number in count(1) if (name := f"new-{group.name}-{number}") not in snapshot.nodes)
    node = group.node_called(name)
    blueprints = supply.blueprints(node.node)

    origin = ", ".join(each.origin for each in blueprints) or "it brings no devices of its own"
    labels = ", ".join(f"{key}: {value}" for key, value in group.labels.items())
    change = ProposedChange(
        RemedyKind.ADD_NODE,
        f"node group {group.name}",
        f"add a node of group {group.name} ({origin})",
        f"to the nodes with the labels {{{labels}}}; dra-extender template {group.name} prints such a node",
        partial(with_new_node, node, blueprints),
        weight=sum(each.device_count for each in blueprints),
    )
    return Suggestion((change,), name)
