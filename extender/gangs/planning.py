"""Where the pending pods of a gang go: a node and devices for each, or none.

One pod after the other gets the best node by its policy. If a pod finds no node, the search goes back and gives an
earlier pod another node. After a failure, the search begins again, with the pods first that found no node. Pods of one
kind that may go to the same nodes are interchangeable: a node that did not help one of them is not tried for the next.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from immutables import Map

from allocator import DeviceId
from extender.decisions.evaluate import Decider
from extender.decisions.solver import No, Solver
from extender.gangs.topology import EVERYWHERE, Domain, domains_of
from extender.pods.gangs import Gang
from extender.pods.kinds import kind_of
from extender.pods.nominated import held_for_nominated
from extender.pods.policy import policy_of
from extender.scheduler.checks import SchedulerChecks
from extender.state.objects import Pod
from extender.state.pod_conditions import NOTHING_KEPT, Keeping
from extender.state.snapshot import Snapshot
from extender.verbs.filter import Bounds, FilterResult, filter_nodes
from extender.verbs.placing import Grant, grant, place
from extender.verbs.prioritize import score_nodes

_MORE: Final = 256
"""In one search, this number of places is tried beyond four for each pod."""


@dataclass(frozen=True, slots=True)
class Seat:
    """What is to be kept for one pod."""

    pod: Pod
    keeping: Keeping


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Why there is no plan.

    Attributes:
        placed: the largest number of pods that had devices at the same time.
        wanted: the number of pods that need devices.
        reason: why the next pod found no node.
        is_final: everything was tried; otherwise a limit has stopped the search.
    """

    placed: int
    wanted: int
    reason: str
    is_final: bool = True


Plan = tuple[Seat, ...]


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans gangs on one snapshot.

    Attributes:
        snapshot: the cluster, or a fork.
        decider: remembers verdicts on the cluster that the fork comes from.
        solver: the decider's, for as long as there is time.
        names_of: the nodes on which kube-scheduler might bind a pod, apart from devices.
    """

    snapshot: Snapshot
    decider: Decider
    solver: Solver
    names_of: Callable[[Pod], Sequence[str]]

    def plan(self, gang: Gang) -> Plan | Shortfall:
        """Nodes and devices for members for which nothing is kept yet, so that the gang is ready; or why not.

        What is kept for members stays as it is. If possible, the members share the topology that the gang names, and
        leave alone what is kept for pods of lower priority.
        """
        wanted = gang.size - len(gang.bound) - len(gang.kept)
        nowhere = Shortfall(0, wanted, "no time was left", is_final=False)
        try:
            for spares in (True, False):
                world = self._begun(gang, spares=spares)
                if world is None:
                    return Shortfall(
                        0, wanted, "another claim has a device that was kept for a pod, or its node is gone"
                    )
                with suppress(TimeoutError):
                    hasty = replace(self, solver=self.solver.share(4))
                    for domain in self._domains(gang):
                        found = hasty._search(gang, wanted, world, domain)
                        if not isinstance(found, Shortfall):
                            return found
                found = self._search(gang, wanted, world, EVERYWHERE)
                if not isinstance(found, Shortfall):
                    return found
                nowhere = found
        except TimeoutError:
            return replace(nowhere, is_final=False)
        return nowhere

    def _begun(self, gang: Gang, *, spares: bool) -> Snapshot | None:
        """The cluster in which others have what is kept from the gang, and members have what is kept for them."""
        bare = self.snapshot
        for pod in gang.kept:
            bare = bare.with_pod(_alone(pod))
        world = held_for_nominated(_alone(gang.members[0]), bare, self.solver, spares=spares)
        world = world._replace(nominated=Map())
        for pod in gang.kept:
            solver = replace(self.solver, among=frozenset(pod.kept.devices)) if pod.kept.devices else self.solver
            there = pod.kept.node in world.nodes
            found = place(_alone(pod), pod.kept.node, world, solver) if there else No("")
            if isinstance(found, No):
                return None
            world = found
        return world

    def _domains(self, gang: Gang) -> Sequence[Domain]:
        """The domains that the gang may share, those of its members with a node first."""
        found = domains_of(gang.topology, self.snapshot, self.solver.features)
        nodes = {pod.node_name or pod.kept.node for pod in gang.members} - {""}
        return sorted(found, key=lambda domain: not nodes.issubset(domain.nodes or ())) if nodes else found

    def _search(self, gang: Gang, wanted: int, world: Snapshot, domain: Domain) -> Plan | Shortfall:
        """Seats in one domain. After a failure, the pods go first that found no node."""
        kinds: dict[Hashable, list[Pod]] = {}
        for pod in gang.free:
            kinds.setdefault((kind_of(pod, world), tuple(self.names_of(pod))), []).append(pod)
        is_simple = len(kinds) == 1 and not self.snapshot.inventory.roaming
        front: list[Hashable] = []
        best = Shortfall(0, wanted, "")
        most = 2 * wanted
        while True:
            order = [*front, *(kind for kind in kinds if kind not in front)]
            queue = [(kind, _alone(pod)) for kind in order for pod in kinds[kind]]
            search = _Search(self, queue, wanted, domain, most, backtracks=not is_simple)
            found = search.run(world)
            if found is not None:
                return found
            best = max(best, search.shortfall, key=lambda each: (each.placed, bool(each.reason)))
            if len(kinds) > 1 and search.stuck is not None and search.stuck not in front:
                front.insert(0, search.stuck)
            elif search.is_complete or most > 2 * wanted:
                return replace(best, is_final=search.is_complete)
            else:
                most = 4 * wanted + _MORE


@dataclass(slots=True)
class _Step:
    """One pod of the search, and the nodes that are left to try.

    Attributes:
        number: of the pod in the queue.
        world: the cluster before.
        seats: of the pods before.
        options: the nodes that are left; None at the end: the pod stays without a node.
        tried: nodes that were tried for this pod, and that need not be tried for later pods of its kind.
    """

    number: int
    world: Snapshot
    seats: Plan
    options: Iterator[str | None]
    tried: set[str]


@dataclass(slots=True)
class _Search:
    """One search with a given order of the pods.

    Attributes:
        queue: the pods, those of one kind together.
        left: places that may be tried.
        backtracks: earlier pods may get other nodes. Not if each node takes as many pods in whatever order.
        stuck: the kind of the first pod that found no node.
        is_complete: everything was tried.
    """

    planner: Planner
    queue: Sequence[tuple[Hashable, Pod]]
    wanted: int
    domain: Domain
    left: int
    backtracks: bool
    shortfall: Shortfall = field(init=False)
    stuck: Hashable = None
    is_complete: bool = False

    def __post_init__(self) -> None:
        self.shortfall = Shortfall(0, self.wanted, "")

    def run(self, world: Snapshot) -> Plan | None:
        """Seats for as many pods as are wanted; None if none are found.

        Raises:
            TimeoutError: the solver's time is up.
        """
        trail = [self._step(0, world, (), ())]
        while trail:
            step = trail[-1]
            if len(step.seats) == self.wanted:
                return step.seats
            if step.number == len(self.queue):
                trail.pop()
                continue
            following = self._next(step)
            if following is not None:
                trail.append(following)
            elif self.left <= 0:
                return None
            elif self.backtracks:
                trail.pop()
            else:
                break
        self.is_complete = True
        return None

    def _next(self, step: _Step) -> _Step | None:
        """The step after the next node that takes the pod; None if there is none."""
        for name in step.options:
            if name is None:
                return self._step(step.number + 1, step.world, step.seats, step.tried)
            if self.left <= 0:
                return None
            self.left -= 1
            self.planner.solver.look()
            before = frozenset(step.tried)
            step.tried.add(name)
            seat = self._seat(self.queue[step.number][1], name, step.world)
            if seat is not None:
                found, world = seat
                return self._step(step.number + 1, world, (*step.seats, found), before)
        return None

    def _seat(self, pod: Pod, name: str, world: Snapshot) -> tuple[Seat, Snapshot] | None:
        solver = self.planner.solver
        among = self.domain.devices
        found = grant(pod, name, world, solver if among is None else replace(solver, among=among))
        if isinstance(found, No):
            return None
        devices = tuple(sorted(_devices(found, self.planner.snapshot)))
        return Seat(pod, Keeping(name, devices)), found.held(pod, name, world)

    def _step(self, number: int, world: Snapshot, seats: Plan, tried: Collection[str]) -> _Step:
        """The step of a pod. ``tried``: nodes that need not be tried for another pod of the kind of the pod before."""
        if number == len(self.queue) or len(seats) == self.wanted:
            return _Step(number, world, seats, iter(()), set())
        kind, pod = self.queue[number]
        is_same = number > 0 and self.queue[number - 1][0] == kind
        known = set(tried) if is_same else set()
        options: list[str | None] = [*self._options(kind, pod, world, known, len(seats))]
        if len(self.queue) - number > self.wanted - len(seats):
            options.append(None)
        return _Step(number, world, seats, iter(options), known)

    def _options(self, kind: Hashable, pod: Pod, world: Snapshot, tried: Collection[str], placed: int) -> list[str]:
        """The nodes that take a pod, the best by its policy first."""
        planner = self.planner
        names = [name for name in self.domain.among(planner.names_of(pod)) if name not in tried]
        result = filter_nodes(
            pod, names, world, planner.solver, decider=planner.decider, bounds=Bounds(planner.solver.until)
        )
        if not result.passed:
            self._note(kind, result, placed)
            return []
        policy = policy_of(pod, planner.solver.policy) or planner.solver.policy
        scores = dict(zip(result.passed, score_nodes(result.passed, result.merits, policy), strict=True))
        return sorted(result.passed, key=lambda name: -scores[name])

    def _note(self, kind: Hashable, result: FilterResult, placed: int) -> None:
        if self.stuck is None:
            self.stuck = kind
        if placed >= self.shortfall.placed:
            self.shortfall = Shortfall(placed, self.wanted, _commonest(result.unresolvable))


def likely_nodes(snapshot: Snapshot) -> Callable[[Pod], Sequence[str]]:
    """The nodes on which kube-scheduler might bind a pod, as far as its conditions are known here."""
    plugged = (pod for pod in snapshot.pods.values() if pod.containers)
    checks = SchedulerChecks(snapshot.nodes, plugged)
    return lambda pod: [name for name in sorted(snapshot.nodes) if name not in checks.rejections(pod)]


def _alone(pod: Pod) -> Pod:
    """The pod as one that is in no gang, and for which nothing is kept."""
    return replace(pod, gang=None, kept=NOTHING_KEPT, nominated_node="")


def _devices(found: Grant, snapshot: Snapshot) -> set[DeviceId]:
    """The devices of a pod in a fork that its claims do not hold in the cluster yet."""
    results = list(found.results)
    for each in found.claims.allocated:  # perhaps for another pod of this plan
        known = snapshot.claim(each.claim.uid)
        if each.claim.allocation is not None and known is not None and known.claim.allocation is None:
            results.append(each.claim.allocation)
    return {each.device for result in results for each in result.results}


def _commonest(reasons: Mapping[str, str]) -> str:
    """The reason of most nodes."""
    counts: dict[str, int] = {}
    for reason in reasons.values():
        counts[reason] = counts.get(reason, 0) + 1
    return max(counts, key=lambda reason: (counts[reason], reason), default="there is no node for it")
