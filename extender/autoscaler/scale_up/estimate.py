"""The numbers of nodes to add to groups, so that pending pods get a place; and which group to expand next.

The method is first-fit decreasing, as in the Cluster Autoscaler's own estimator. For each group, the largest pods are
put onto a new node first; when the node is full, the next one follows. The expander chooses one group. The pods on the
chosen nodes have a place, and the other pods are offered to the groups again, until no group takes a pod.

What makes it quick: equal pods are one *shape*, and new nodes of a group are alike. If the pods on a node hold only
devices of that node, the next node takes the same pods without another solve. A node that has fewer free devices than a
pod needs is not asked. Devices that are attached to the network belong to the whole cluster: what pods hold of them is
carried on from node to node and from group to group.

A gang is served whole or not at all (`whole_gangs`), and pods of a namespace with a quota count together (`together`).

The next group is the answer of the gRPC expander. A Cluster Autoscaler adds nodes of one group, and then looks again.
Two rules propose a group: `most_pods` helps the most pods now, and `least_waste` is the default of `estimate`. If they
disagree, each rule's plan is made, and the first group of the better plan is the answer. So a chain of answers needs no
more nodes than `estimate`.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from allocator.equivalence import without_selectors
from extender.autoscaler.scale_up.new_nodes import Fill, NewNodes, Option, PodShape
from extender.autoscaler.scale_up.plan import (
    Expander,
    GroupPlan,
    NodeDemand,
    NodeGroup,
    Offer,
    PendingPod,
    ScaleUpPlan,
    least_waste,
    most_pods,
)
from extender.autoscaler.scale_up.together import Gangs, Wanted, by_rules, with_groups
from extender.autoscaler.simulated_cluster import World
from extender.cluster.objects.pods import GangKey, Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.solver import No, Solver
from extender.framework.pods.claims import Blocked, PodClaims, claims_of
from extender.framework.pods.extended_resources import class_serving
from extender.planning.kube_scheduler import Attempts, not_modeled_on_new_nodes
from extender.planning.node_room import least_devices, stranded_devices, typical_devices
from extender.planning.planner import Planner
from extender.planning.queue import likeness_of_resources

AT_LIMIT: Final = "node group is at its limit"
NO_GROUPS: Final = "there are no node groups"
NOT_OFFERED: Final = "node group is not for the pod, says the autoscaler"
NO_GANGS: Final[Mapping[GangKey, str]] = {}
_PATIENCE: Final = 5
"""A node that has refused this many shapes with one number of devices is asked about no further shape of that number.

Without this limit, a thousand shapes would be tried on each node. The limit may cost an additional node. It never costs
a pod its place.
"""


def estimate(
    world: World,
    pods: Sequence[PendingPod],
    groups: Sequence[NodeGroup],
    choose: Expander,
    solver: Solver,
) -> ScaleUpPlan:
    """A plan for the pods; the world is not changed.

    Args:
        world: the cluster, with what the session did in it.
        pods: each once.
        groups: with different names.
        choose: between groups that help.
        solver: the allocator, for as long as the call has time.

    Raises:
        TimeoutError: time was up.
    """
    return Estimate.of_whole_gangs(world, pods, groups, solver).plan(choose)


class Estimate:
    """One call: the pods that wait, by shape, and what the groups have been filled with.

    Attributes:
        count: how many pods are planned: those that were asked about, and other pods of their gangs.

    Args:
        world, pods, groups, solver: as those of `estimate`.
        left_out: gangs that get no node, each with the reason.
    """

    def __init__(
        self,
        world: World,
        pods: Sequence[PendingPod],
        groups: Sequence[NodeGroup],
        solver: Solver,
        left_out: Mapping[GangKey, str] = NO_GANGS,
    ) -> None:
        self._world = world
        self._groups = groups
        self._solver = solver
        self._asked = tuple(each.pod for each in pods)
        self._blocked = {
            pod.uid: left_out[pod.gang_key] for pod in self._asked if pod.gang_key and pod.gang_key in left_out
        }
        left = [each.pod for each in pods if each.pod.uid not in self._blocked]
        self._gangs = Gangs.of(left, world.snapshot, Planner.remembering(solver))
        self._snapshot = self._gangs.snapshot
        self._blocked.update(self._gangs.blocked)
        pods = (*pods, *self._gangs.demand(pods))
        self.count = len(pods)
        self._shapes: dict[tuple[NodeDemand, int, frozenset[str] | None], PodShape] = {}
        self._wants: dict[Hashable, int] = {}
        self._forms: dict[Hashable, int] = {}
        self._sorted_pods = self._sorted(pods)
        self._waiting = {shape: list(each) for shape, each in self._sorted_pods.items()}
        self._began = self._snapshot
        self._by_classes = frozenset(self._served_by_classes())
        self._nodes: list[list[tuple[Pod, ...]]] = [[] for _ in groups]
        self._fills: list[list[Fill]] = [[] for _ in groups]
        self._refusals: dict[tuple[int, int], str] = {}
        self._options: dict[int, Option] = {}
        self._first: dict[int, Option] = {}
        self._is_first = True
        self._new = NewNodes(world, groups, solver, differ=any(shape.is_alone for shape in self._waiting))
        self._new.begin(self._began)

    @classmethod
    def of_whole_gangs(
        cls, world: World, pods: Sequence[PendingPod], groups: Sequence[NodeGroup], solver: Solver
    ) -> "Estimate":
        """An estimate without the gangs that can't run whole: the less important ones are left out, one by one.

        Raises:
            TimeoutError: time was up.
        """
        left_out: dict[GangKey, str] = {}
        pods = with_groups(pods, world.snapshot)
        while True:
            found = cls(world, pods, groups, solver, left_out)
            lacking = found._lacking_gang()
            if lacking is None:
                return found.again()
            left_out[lacking[0]] = lacking[1]

    @property
    def refused(self) -> tuple[tuple[Pod, str], ...]:
        """The pods of the request that no node helps, whatever it has, each with the reason."""
        return tuple((pod, self._blocked[pod.uid]) for pod in self._asked if pod.uid in self._blocked)

    def _lacking_gang(self) -> tuple[GangKey, str] | None:
        """The least important gang that the plan for the most pods does not serve whole, and why; None if all are."""
        if not self._gangs.waiting:
            return None
        nodes = (pods for group in self.plan(most_pods).groups for pods in group.nodes)
        return self._gangs.lacking({pod.uid for pods in nodes for pod in pods})

    def offers(self) -> tuple[Offer, ...]:
        """What each group does for the pods that wait.

        Raises:
            TimeoutError: time was up.
        """
        for index in range(len(self._groups)):
            if index not in self._options:
                self._options[index] = self._option(index)
                if self._is_first:
                    self._first[index] = self._options[index]
        return tuple(self._offer(index, option) for index, option in self._options.items() if option.nodes)

    def again(self) -> "Estimate":
        """The estimate as it began. What is known of that is not found out again."""
        if self._snapshot is not self._began:
            self._snapshot = self._began
            self._new.begin(self._snapshot)
            self._refusals.clear()
        self._fills = [[] for _ in self._groups]
        self._nodes = [[] for _ in self._groups]
        self._waiting = {shape: list(each) for shape, each in self._sorted_pods.items()}
        self._options, self._is_first = dict(self._first), True
        return self

    def plan(self, choose: Expander) -> ScaleUpPlan:
        """Fill groups until none helps.

        Raises:
            TimeoutError: time was up.
        """
        while self._waiting and (offered := self.offers()):
            chosen = choose(offered).group
            taken = self._options[chosen]
            moved = taken.after is not self._snapshot
            self._add_nodes(chosen, taken)
            self._is_first = False
            for index in [i for i, each in self._options.items() if moved or each.shapes & taken.shapes]:
                del self._options[index]
        failed = {pod.uid: reason for pod, reason in self._failures()}
        groups = (
            GroupPlan(group.name, tuple(nodes), ", ".join(each.origin for each in blueprints))
            for group, nodes, blueprints in zip(self._groups, self._nodes, self._new.blueprints, strict=True)
        )
        unmodeled = not_modeled_on_new_nodes((pod for pod in self._asked if pod.uid not in failed), self._began)
        left = tuple((pod, failed[pod.uid]) for pod in self._asked if pod.uid in failed)
        return ScaleUpPlan(tuple(groups), left, unmodeled)

    # --- pods -----------------------------------------------------------------------------------------------

    def _sorted(self, pods: Iterable[PendingPod]) -> dict[PodShape, list[Pod]]:
        """The pods by shape, the largest first; their claims are made if they are not there yet."""
        wanted: list[Wanted] = []
        attempts = Attempts(self._snapshot, ())
        for each in sorted(pods, key=lambda pending: -pending.pod.priority):
            if each.pod.uid in self._blocked:
                continue
            # A pod that nobody tries is no demand: a new node would stay empty until its gate is removed, for example.
            if hindrance := attempts.hindrance(each.pod):
                self._blocked[each.pod.uid] = hindrance
                continue
            block = partial(self._blocked.__setitem__, each.pod.uid)
            with self._solver.faults.of(f"pod {each.pod}", block):
                pod, self._snapshot = self._world.with_claims(each.pod, self._snapshot, self._solver)
                claims = claims_of(pod, self._snapshot)
                if isinstance(claims, Blocked):
                    self._blocked[pod.uid] = claims.reason.in_words()
                else:
                    wanted.append(Wanted(each, pod, claims))
        passed, comparing = by_rules(wanted, self._snapshot, self._solver, self._blocked.__setitem__)
        found: dict[PodShape, list[Pod]] = {}
        for one in passed:
            shape = self._shape(one, has_rules=one.pod.namespace in comparing)
            found.setdefault(shape, []).append(one.pod)
        return dict(sorted(found.items(), key=lambda item: item[0].size, reverse=True))

    def _shape(self, wanted: Wanted, *, has_rules: bool) -> PodShape:
        """``has_rules``: a rule of the namespace compares the devices that its pods get."""
        pod, claims = wanted.pod, wanted.claims
        demand, groups = wanted.asked.demand, wanted.asked.groups
        specs = tuple(each.claim.spec for each in claims.pending)
        is_alone = has_rules or _is_alone(pod, claims)
        resources = () if self._snapshot.node_requests is None else likeness_of_resources(pod)
        others: tuple[Hashable, ...] = (pod.containers, pod.policy, pod.priority, pod.nominated_node, resources)
        if self._snapshot.placed is not None:
            others = (*others, demand, pod.conditions, pod.namespace, tuple(sorted(pod.labels.items())))
        devices = self._wants.setdefault(pod.uid if is_alone else (specs, *others), len(self._wants))
        known = self._shapes.get((demand, devices, groups))
        if known is not None:
            return known
        form = self._forms.setdefault((tuple(map(without_selectors, specs)), *others), len(self._forms))
        amounts = dict(demand.amounts)
        size = (sum(map(typical_devices, specs)), amounts.get("cpu", 0), amounts.get("memory", 0))
        # A claim that others share may be allocated by the time that the pod is placed.
        least = 0 if is_alone else sum(map(least_devices, specs))
        shape = PodShape(demand, groups, devices, specs, form, least, size, is_alone, has_rules)
        self._shapes[(demand, devices, groups)] = shape
        return shape

    def _served_by_classes(self) -> Iterator[str]:
        """The resources that pods ask for and a device class serves."""
        names = {name for shape in self._shapes.values() for name, _ in shape.demand.amounts}
        return (name for name in names if class_serving(name, self._snapshot) is not None)

    # --- groups ---------------------------------------------------------------------------------------------

    def _option(self, index: int) -> Option:
        """What the group does for the pods that wait, up to its limit."""
        room = self._groups[index].limit - len(self._nodes[index])
        waiting = {shape: len(pods) for shape, pods in self._waiting.items() if not self._refusal(index, shape)}
        used: Counter[PodShape] = Counter()
        nodes: list[Mapping[PodShape, int]] = []
        stranded, snapshot = 0, self._snapshot
        while waiting and len(nodes) < room:
            fill = next((each for each in self._fills[index] if each.repeats(waiting)), None)
            if fill is None:
                fill = self._fill(index, len(nodes), snapshot, waiting, used)
                if fill.after is None:
                    self._fills[index].append(fill)
            if not fill.takes:
                break
            nodes.append(fill.takes)
            stranded += fill.stranded
            used.update(fill.takes)
            waiting = {shape: left for shape, n in waiting.items() if (left := n - fill.takes.get(shape, 0))}
            snapshot = fill.after or snapshot
        return Option(tuple(nodes), stranded, snapshot)

    def _fill(
        self, index: int, number: int, snapshot: Snapshot, waiting: Mapping[PodShape, int], used: Mapping[PodShape, int]
    ) -> Fill:
        """Fill one more new node of a group, the largest pods first.

        Args:
            index: of the group.
            number: how many nodes were filled before in this option.
            snapshot: the cluster with what pods on those hold.
            waiting: how many pods there are of each shape.
            used: how many of each shape are on those nodes.
        """
        room = self._groups[index].room
        filling = self._new.empty(index, len(self._nodes[index]) + number, snapshot)
        left = dict(room.amounts or {})
        takes: dict[PodShape, int] = {}
        refused: set[int] = set()
        refusals: Counter[int] = Counter()
        for shape, count in waiting.items():
            if refusals[shape.size[0]] >= _PATIENCE:
                continue
            first = used.get(shape, 0)
            for pod in self._waiting[shape][first : first + count]:
                if shape.devices in refused or shape.least > filling.free:
                    break
                if room.shortage(shape.demand, left, self._by_classes):
                    break
                found = self._new.filled(filling, shape, pod)
                if isinstance(found, No):
                    refused.add(shape.devices)
                    refusals[shape.size[0]] += 1
                    break
                filling = found
                takes[shape] = takes.get(shape, 0) + 1
                for name, amount in shape.demand.amounts:
                    left[name] = left.get(name, 0) - amount
        stranded = stranded_devices(filling.snapshot, filling.node, self._solver.features)
        return Fill(waiting, takes, stranded, None if filling.is_local else filling.snapshot)

    def _offer(self, index: int, option: Option) -> Offer:
        group = self._groups[index]
        amounts = group.room.amounts or {}
        hardware = Counter({name: amounts[name] for name in ("cpu", "memory") if name in amounts})
        for blueprint in self._new.blueprints[index]:
            hardware.update(blueprint.hardware())
        pods = sum(sum(node.values()) for node in option.nodes)
        return Offer(index, pods, len(option.nodes), hardware, group.priority, option.stranded)

    def _add_nodes(self, index: int, option: Option) -> None:
        """Add the nodes of an option; their pods wait no longer."""
        if option.after is not self._snapshot:
            self._snapshot = option.after
            self._new.begin(self._snapshot)
        for node in option.nodes:
            taken: list[Pod] = []
            for shape, count in node.items():
                pods = self._waiting[shape]
                taken += pods[:count]
                del pods[:count]
                if not pods:
                    del self._waiting[shape]
            self._nodes[index].append(tuple(taken))

    # --- reasons --------------------------------------------------------------------------------------------

    def _refusal(self, index: int, shape: PodShape) -> str:
        """Why an empty node of a group would not take such a pod; empty if it would, as far as was seen.

        A "no" is remembered: what pods hold only grows.
        """
        group = self._groups[index]
        if shape.groups is not None and group.name not in shape.groups:
            return NOT_OFFERED
        room = group.room
        unfit = room.refusal(shape.demand) or room.shortage(shape.demand, room.amounts or {}, self._by_classes)
        key = (index, shape.devices)
        if not unfit and key not in self._refusals:
            empty = self._new.empty(index, len(self._nodes[index]), self._snapshot)
            found = self._new.filled(empty, shape, self._waiting[shape][0])
            self._refusals[key] = found.reason.in_words() if isinstance(found, No) else ""
        return unfit or self._refusals[key]

    def _failures(self) -> Iterator[tuple[Pod, str]]:
        """The pods without a place, each with what an empty node of the groups lacks."""
        yield from self.refused
        self._refusals = {key: reason for key, reason in self._refusals.items() if reason}
        for shape, pods in self._waiting.items():
            counts = Counter(self._refusal(index, shape) or AT_LIMIT for index in range(len(self._groups)))
            text = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items())) or NO_GROUPS
            yield from ((pod, text) for pod in pods)


def _is_alone(pod: Pod, claims: PodClaims) -> bool:
    """Whether no other pod is like it: it shares a claim, has devices already, or a controller decides about it."""
    is_served = bool(claims.allocated or claims.negotiated or claims.special.made or claims.special.void)
    return is_served or any(each.claim.owner_uid != pod.uid for each in claims.pending)


_NAMED_PODS: Final = 3


@dataclass(frozen=True, slots=True)
class Expansion:
    """The groups that are left of those asked about.

    Attributes:
        groups: the best group. Several: no group helps that we know, and these groups are not known. None: none helps.
        reason: for people.
        nodes: how many nodes of the best group its pods need; None: not known.
    """

    groups: tuple[str, ...]
    reason: str
    nodes: int | None = None


def expand(world: World, pods: Sequence[PendingPod], groups: Sequence[NodeGroup], solver: Solver) -> Expansion:
    """The group to add nodes of; the world is not changed.

    Args:
        world: the cluster.
        pods: each once, with the groups that may take it.
        groups: with different names. The limit of each is the number of nodes that would be added.
        solver: the allocator, for as long as the call has time.

    Raises:
        TimeoutError: time was up.
    """
    if not pods or not groups:
        return Expansion((), "there are no pods" if groups else "there are no groups")
    estimate = Estimate.of_whole_gangs(world, pods, groups, solver)
    offered = estimate.offers()
    if not offered:
        return _without_offers(world, groups, estimate)
    best = most_pods(offered)
    if least_waste(offered).group != best.group:
        # Without time for plans, the rule's own answer is good, too.
        with suppress(TimeoutError):
            best = min((_plan(rule, estimate) for rule in (most_pods, least_waste)), key=lambda plan: plan[0])[1]
    group = groups[best.group]
    source = ", ".join(each.origin for each in world.supply.blueprints(group.room.node.node)) or "nothing is known"
    reason = (
        f"pods that get a place: {best.pods} of {estimate.count}; new nodes: {best.nodes}; "
        f"stranded devices: {best.stranded}; devices of a new node: {source}"
    )
    if refused := estimate.refused:
        reason += f"; pods that no node helps: {len(refused)} ({_named(refused)})"
    return Expansion((group.name,), reason, best.nodes)


def _plan(rule: Expander, estimate: Estimate) -> tuple[tuple[int, int, int], Offer]:
    """The rank of a rule's plan (pods without a place, nodes, stranded devices), and its first choice."""
    chosen: list[Offer] = []

    def choose(offered: Sequence[Offer]) -> Offer:
        chosen.append(rule(offered))
        return chosen[-1]

    plan = estimate.again().plan(choose)
    rank = (len(plan.failed), sum(each.nodes for each in chosen), sum(each.stranded for each in chosen))
    return rank, chosen[0]


def _without_offers(world: World, groups: Sequence[NodeGroup], estimate: Estimate) -> Expansion:
    """The groups whose devices are not known: the autoscaler may know more of them. The other groups do not help."""
    unknown = tuple(each.name for each in groups if not world.supply.blueprints(each.room.node.node))
    failed = estimate.plan(least_waste).failed
    why = _named(failed)
    if unknown:
        return Expansion(unknown, f"nothing is known of the devices of these groups, and no other group helps: {why}")
    return Expansion((), f"no group helps: {why}")


def _named(failed: Sequence[tuple[Pod, str]]) -> str:
    """The first of some pods, each with the reason."""
    more = f"; and {len(failed) - _NAMED_PODS} more pods" if len(failed) > _NAMED_PODS else ""
    return "; ".join(f"{pod}: {reason}" for pod, reason in failed[:_NAMED_PODS]) + more
