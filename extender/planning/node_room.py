"""The room of nodes for pods: resources, the number of pods and ports, as kube-scheduler counts them; and devices.

Source, apart from devices: the plugins NodeResourcesFit and NodePorts of Kubernetes 1.37. What a kubelet always
reports, and a node of manifests does not say, is not compared. Extended resources that a node does not offer are left
to device classes. No search for devices begins if a node has fewer left than the claims need at least.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from allocator import AllocationMode, ClaimSpec, DeviceRequest, Features
from allocator.model.optional import required
from allocator.usage import NOTHING_USED
from extender.cluster.objects.extended_resources import asked
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pod_conditions import HostPort
from extender.cluster.objects.pods import Pod, is_extended
from extender.cluster.resources import NONE, Amounts, added, counted
from extender.cluster.snapshot import Snapshot

_PODS: Final = "pods"
_REPORTED: Final = frozenset({"cpu", "memory", "ephemeral-storage", _PODS})
"""What a kubelet always reports."""

TOO_MANY: Final = "Too many pods"
NO_PORT: Final = "node(s) didn't have free ports for the requested pod ports"


class Demand(NamedTuple):
    """The demand of a pod. Pods of equal demands suit the same nodes.

    Attributes:
        amounts: resource and amount in kube-scheduler's units, by name, without those of which nothing is asked.
        is_counted: the pod itself counts, too.
    """

    amounts: tuple[tuple[str, int], ...] = ()
    ports: tuple[HostPort, ...] = ()
    is_counted: bool = True


def demand_of(pod: Pod, *, is_whole: bool) -> Demand:
    """What a pod asks for: with its ports and all resources, or only those that device plugins offer.

    What its claims take of the node counts once it has the node.
    """
    extended = counted(asked(pod.containers)) if pod.containers else NONE
    if not is_whole:
        return Demand(_listed(extended), is_counted=False)
    others = pod.conditions.amounts
    own = pod.resources.total if pod.node_name else pod.resources.with_claims(())
    amounts = added(counted(own), extended, counted(others) if others else NONE)
    return Demand(_listed(amounts), pod.conditions.ports)


def _listed(amounts: Amounts) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount > 0))


class NodeRoom:
    """The room of one node: what it offers, and what its pods take of it."""

    __slots__ = ("_offered", "_ports", "_taken")

    def __init__(self, node: NodeObject, demands: Iterable[Demand]) -> None:
        self._offered = {**node.resources, **node.others, **counted(_nano(node))}
        self._taken: Counter[str] = Counter()
        self._ports: Counter[HostPort] = Counter()
        for each in demands:
            self.take(each)

    def take(self, demand: Demand) -> None:
        """Count a pod that is placed here."""
        for name, amount in demand.amounts:
            self._taken[name] += amount
        self._taken[_PODS] += demand.is_counted
        self._ports.update(demand.ports)

    def lacks(self, demand: Demand) -> tuple[str, ...]:
        """What keeps a pod off the node, in kube-scheduler's words; only ports, if these do."""
        if demand.ports and any(mine.collides(other) for mine in demand.ports for other in self._ports):
            return (NO_PORT,)
        found = tuple(f"Insufficient {name}" for name in self.short_of(demand))
        return (TOO_MANY, *found) if demand.is_counted and self._amount_left(_PODS) < 1 else found

    def short_of(self, demand: Demand) -> Iterator[str]:
        """The resources that do not suffice."""
        return (name for name, amount in demand.amounts if self._amount_left(name) < amount)

    def remedies(self, demand: Demand, node: str) -> Iterator[str]:
        """What a person can do about each thing that `lacks` says, in its order."""
        taken = [str(mine) for mine in demand.ports if any(mine.collides(other) for other in self._ports)]
        if taken:
            yield f"use other host ports than {', '.join(taken)}, which are taken on node {node}"
            return
        if demand.is_counted and self._amount_left(_PODS) < 1:
            yield f"delete a pod of node {node}, which takes {self._offered[_PODS]} pods at most"
        for name, amount in demand.amounts:
            if (left := self._amount_left(name)) < amount:
                yield f"request less {name} than {_shown(name, amount)}: node {node} has {_shown(name, left)} left"

    def _amount_left(self, name: str) -> float:
        offered = self._offered.get(name, 0)
        is_left_to_others = (not self._offered or name in _REPORTED) and name not in self._offered
        return float("inf") if is_left_to_others or (not offered and is_extended(name)) else offered - self._taken[name]


def _shown(name: str, amount: float) -> str:
    if name == "cpu":
        return f"{amount / 1000:g}"
    units = ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"))
    unit, suffix = next(((size, text) for size, text in units if amount and amount % size == 0), (1, ""))
    return f"{amount / unit:.0f}{suffix}"


def _nano(node: NodeObject) -> Amounts:
    return {name: amount.nano for name, amount in node.allocatable.items()}


class NodeRooms:
    """The room of all nodes. What is found for a demand is remembered, and looked at again where a pod was placed.

    Args:
        nodes: by name.
        pods_at: the pods of a node.
        names: the nodes that are asked about.
        is_whole: all that pods ask for is known; else only what device plugins offer is compared.
    """

    def __init__(
        self,
        nodes: Mapping[str, NodeObject],
        pods_at: Callable[[str], Iterable[Pod]],
        names: Collection[str],
        *,
        is_whole: bool,
    ) -> None:
        self._nodes = nodes
        self._names = names
        self._pods_at = pods_at
        self._is_whole = is_whole
        self._rooms: dict[str, NodeRoom] = {}
        self._placed: list[str] = []
        self._known: dict[Demand, tuple[int, dict[str, tuple[str, ...]]]] = {}

    def demand(self, pod: Pod) -> Demand:
        """What is compared of a pod."""
        return demand_of(pod, is_whole=self._is_whole)

    def at(self, name: str) -> NodeRoom:
        """The room of a node."""
        if name not in self._rooms:
            self._rooms[name] = NodeRoom(self._nodes[name], map(self.demand, self._pods_at(name)))
        return self._rooms[name]

    def place(self, pod: Pod, node: str) -> None:
        """Count a pod that has got a node."""
        self.at(node).take(self.demand(pod))
        self._placed.append(node)

    def lacking(self, demand: Demand) -> Mapping[str, tuple[str, ...]]:
        """The nodes that lack something for a demand, each with what that is."""
        if not (demand.amounts or demand.is_counted):
            return {}
        seen, found = self._known.get(demand, (-1, {}))
        names: Iterable[str] = self._names if seen < 0 else set(self._placed[seen:]).intersection(self._names)
        for name in names:
            lacks = self.at(name).lacks(demand)
            if lacks:
                found[name] = lacks
            else:
                found.pop(name, None)
        self._known[demand] = len(self._placed), found
        return found


def free_devices(snapshot: Snapshot, node: str, features: Features) -> float:
    """The most devices that pods may still get on a node; infinite if some can be shared."""
    views = snapshot.inventory.for_node(snapshot.nodes[node].node, features)
    if any(each.device.allow_multiple_allocations for view in views for each in view.candidates):
        return math.inf
    held = [snapshot.usage.pools.get(view.id, NOTHING_USED) for view in views]
    pairs = ((each.device, used) for view, used in zip(views, held, strict=True) for each in view.candidates)
    return sum(device.id.device not in used for device, used in pairs)


def stranded_devices(snapshot: Snapshot, node: str, features: Features) -> int:
    """The number of a node's own devices of which nothing is taken. Partitions count once, by their counters."""
    stranded = 0
    for pool in snapshot.inventory.local.get(node, ()):
        view = snapshot.inventory.pools[pool].at(snapshot.nodes[node].node, features)
        if view is None:
            continue
        used = snapshot.usage.pools.get(pool, NOTHING_USED)
        devices = [each.device for each in view.candidates]
        parted = {
            each.counter_set for device in devices if device.id.device in used for each in device.consumes_counters
        }
        whole = (device for device in devices if not device.consumes_counters)
        stranded += sum(device.id.device not in used for device in whole) + len(view.counter_sets.keys() - parted)
    return stranded


def least_devices(spec: ClaimSpec) -> int:
    """The number of devices that a claim can't do without. Those that it gets for admin access may be in use."""
    return sum(min((_least(each) for each in request.alternatives), default=0) for request in required(spec).requests)


def typical_devices(spec: ClaimSpec) -> int:
    """The number of devices that a claim asks for, about."""
    return sum(request.alternatives[0].count for request in spec.requests if request.alternatives)


def _least(request: DeviceRequest) -> int:
    if request.admin_access:
        return 0
    return 1 if request.mode is AllocationMode.ALL else request.count
