"""Where the pending pods of a gang go: a node and devices for each, or none.

One pod after the other gets the best node by its policy. If a pod finds no node, the search goes back and gives an
earlier pod another node. After a failure, the search begins again, with the pods first that found no node. Pods of one
kind that may go to the same nodes are interchangeable: a node that did not help one of them is not tried for the next.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from immutables import Map

from allocator import DeviceId
from extender.decisions.evaluate import Decider
from extender.decisions.solver import No, Solver
from extender.gangs.node_ranking import Options, options_after, options_of
from extender.gangs.topology import EVERYWHERE, Domain, domains_of
from extender.kube.api import ObjectKey
from extender.pods.gangs import Gang
from extender.pods.kinds import kind_of
from extender.pods.nominated import held_for_nominated
from extender.scheduler.checks import SchedulerChecks
from extender.state.consumers import claim_keys
from extender.state.objects import Pod
from extender.state.pod_conditions import NOTHING_KEPT, Keeping
from extender.state.snapshot import Snapshot
from extender.verbs.placing import Grant, grant, place

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
            for spares in (True, False) if self._may_take_kept(gang) else (False,):
                fork = self._begun(gang, spares=spares)
                if fork is None:
                    return Shortfall(
                        0, wanted, "another claim has a device that was kept for a pod, or its node is gone"
                    )
                with suppress(TimeoutError):
                    hasty = replace(self, solver=self.solver.share(4))
                    for domain in self._domains(gang):
                        found = hasty._search(gang, wanted, fork, domain)
                        if not isinstance(found, Shortfall):
                            return found
                found = self._search(gang, wanted, fork, EVERYWHERE)
                if not isinstance(found, Shortfall):
                    return found
                nowhere = found
        except TimeoutError:
            return replace(nowhere, is_final=False)
        return nowhere

    def _may_take_kept(self, gang: Gang) -> bool:
        """Whether devices are kept for a pod of lower priority."""
        return any(pod.kept.devices and pod.priority < gang.members[0].priority for pod in _nominated(self.snapshot))

    def _begun(self, gang: Gang, *, spares: bool) -> Snapshot | None:
        """The cluster in which others have what is kept from the gang, and members have what is kept for them.

        The pods of other gangs are placed, so that their devices count for quotas, and their CPU on the node.
        """
        bare = self.snapshot
        for pod in gang.kept:
            bare = bare.with_pod(_alone(pod))
        asking = _alone(gang.members[0])
        for pod in _kept_in_gangs(bare):
            if spares or pod.priority >= asking.priority:
                bare = self._with_kept(pod, bare) or bare
        fork = held_for_nominated(asking, bare, self.solver, spares=spares)
        fork = fork._replace(nominated=Map())
        for pod in gang.kept:
            placed = self._with_kept(pod, fork)
            if placed is None:
                return None
            fork = placed
        return fork

    def _with_kept(self, pod: Pod, fork: Snapshot) -> Snapshot | None:
        """The cluster in which a pod has what is kept for it; None if that is impossible."""
        solver = replace(self.solver, among=frozenset(pod.kept.devices)) if pod.kept.devices else self.solver
        there = pod.kept.node in fork.nodes
        found = place(_alone(pod), pod.kept.node, fork, solver) if there else No("")
        return None if isinstance(found, No) else found

    def _domains(self, gang: Gang) -> Sequence[Domain]:
        """The domains that the gang may share, those of its members with a node first."""
        found = domains_of(gang.topology, self.snapshot, self.solver.features)
        nodes = {pod.node_name or pod.kept.node for pod in gang.members} - {""}
        return sorted(found, key=lambda domain: not nodes.issubset(domain.nodes or ())) if nodes else found

    def _kinds(self, pods: Sequence[Pod], fork: Snapshot) -> Mapping[Hashable, Sequence[Pod]]:
        """The pods by their kind, their nodes, and the claims that they share with other pods of the gang."""
        kinds: dict[Hashable, list[Pod]] = {}
        shared = shared_claims(pods)
        for pod in pods:
            own = tuple(key for key in claim_keys(pod) if key in shared)
            kinds.setdefault((kind_of(pod, fork), own, tuple(self.names_of(pod))), []).append(pod)
        return kinds

    def _search(self, gang: Gang, wanted: int, fork: Snapshot, domain: Domain) -> Plan | Shortfall:
        """Seats in one domain. After a failure, the pods go first that found no node."""
        kinds = self._kinds(gang.free, fork)
        is_simple = len(kinds) == 1 and not (shared_claims(gang.free) or self.snapshot.inventory.roaming)
        front: list[Hashable] = []
        best = Shortfall(0, wanted, "")
        most = 2 * wanted
        while True:
            order = [*front, *(kind for kind in kinds if kind not in front)]
            queue = [(kind, _alone(pod)) for kind in order for pod in kinds[kind]]
            search = _Search(self, queue, wanted, domain, most, backtracks=not is_simple)
            found = search.run(fork)
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
        fork: the cluster before.
        seats: of the pods before.
        left: the nodes that are left to try; None at the end: the pod stays without a node.
        tried: nodes that were tried for this pod, and that need not be tried for later pods of its kind.
        options: the nodes that take the pod; None: there is no pod to place.
    """

    number: int
    fork: Snapshot
    seats: Plan
    left: Iterator[str | None] = field(default_factory=lambda: iter(()))
    tried: set[str] = field(default_factory=set)
    options: Options | None = None


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

    def run(self, fork: Snapshot) -> Plan | None:
        """Seats for as many pods as are wanted; None if none are found.

        Raises:
            TimeoutError: the solver's time is up.
        """
        trail = [self._step(0, fork, ())]
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
        for name in step.left:
            if name is None:
                return self._step(step.number + 1, step.fork, step.seats, step.tried, step.options)
            if self.left <= 0:
                return None
            self.left -= 1
            self.planner.solver.look()
            before = frozenset(step.tried)
            step.tried.add(name)
            found = self._grant(self.queue[step.number][1], name, step.fork)
            if found is not None:
                return self._placed(step, found, name, before)
        return None

    def _grant(self, pod: Pod, name: str, fork: Snapshot) -> Grant | None:
        solver, among = self.planner.solver, self.domain.devices
        found = grant(pod, name, fork, solver if among is None else replace(solver, among=among))
        return None if isinstance(found, No) else found

    def _placed(self, step: _Step, found: Grant, name: str, tried: Collection[str]) -> _Step:
        """The step after the pod has got a node. ``tried`` as in `_step`."""
        planner, pod, number = self.planner, self.queue[step.number][1], step.number + 1
        fork = found.held(pod, name, step.fork)
        seats = (*step.seats, Seat(pod, Keeping(name, tuple(sorted(_devices(found, planner.snapshot))))))
        options = None
        is_local = found.pools.issubset(fork.inventory.local.get(name, ()))
        if is_local and step.options is not None and len(seats) < self.wanted and self._is_same_kind(number):
            following = self.queue[number][1]
            options = options_after(step.options, following, name, fork, planner.solver, planner.decider)
        return self._step(number, fork, seats, tried, options)

    def _is_same_kind(self, number: int) -> bool:
        """Whether the pod at this place of the queue is of the kind of the pod before."""
        return 0 < number < len(self.queue) and self.queue[number - 1][0] == self.queue[number][0]

    def _step(
        self, number: int, fork: Snapshot, seats: Plan, tried: Collection[str] = (), options: Options | None = None
    ) -> _Step:
        """The step of a pod.

        Args:
            number: of the pod in the queue.
            fork: the cluster before.
            seats: of the pods before.
            tried: nodes that need not be tried for another pod of the kind of the pod before.
            options: the nodes that take another pod of that kind; None: they are not known.
        """
        if number == len(self.queue) or len(seats) == self.wanted:
            return _Step(number, fork, seats)
        kind, pod = self.queue[number]
        is_same = self._is_same_kind(number)
        known = set(tried) if is_same else set()
        if options is None or not is_same or options.places.keys() <= known:
            options = self._options(pod, fork, known)
        if not options.places:
            self._note(kind, options, len(seats))
        left: Iterator[str | None] = options.best_first(known)
        if len(self.queue) - number > self.wanted - len(seats):
            left = chain(left, (None,))
        return _Step(number, fork, seats, left, known, options)

    def _options(self, pod: Pod, fork: Snapshot, tried: Collection[str]) -> Options:
        """The nodes that take a pod, of those that were not tried."""
        planner = self.planner
        names = [name for name in self.domain.among(planner.names_of(pod)) if name not in tried]
        return options_of(pod, names, fork, planner.solver, planner.decider)

    def _note(self, kind: Hashable, options: Options, placed: int) -> None:
        if self.stuck is None:
            self.stuck = kind
        if placed >= self.shortfall.placed:
            self.shortfall = Shortfall(placed, self.wanted, _commonest(options.reasons))


def likely_nodes(snapshot: Snapshot) -> Callable[[Pod], Sequence[str]]:
    """The nodes on which kube-scheduler might bind a pod, as far as its conditions are known here."""
    plugged = (pod for pod in snapshot.pods.values() if pod.containers)
    checks, names = SchedulerChecks(snapshot.nodes, plugged), sorted(snapshot.nodes)
    known: dict[Hashable, Sequence[str]] = {}

    def likely(pod: Pod) -> Sequence[str]:
        kind = pod.requirements, pod.containers
        if kind not in known:
            rejected = checks.rejections(pod)
            known[kind] = tuple(name for name in names if name not in rejected)
        return known[kind]

    return likely


def _nominated(snapshot: Snapshot) -> Iterator[Pod]:
    return (pod for name in snapshot.nominated for pod in snapshot.nominated_to(name))


def _kept_in_gangs(snapshot: Snapshot) -> Sequence[Pod]:
    """The nominated pods of gangs, in the order of held devices."""
    found = (pod for pod in _nominated(snapshot) if pod.kept.node and pod.gang_key is not None and not pod.deleting)
    return sorted(found, key=lambda pod: (-pod.priority, pod.created, pod.uid))


def shared_claims(pods: Iterable[Pod]) -> Collection[ObjectKey]:
    """The claims that more than one of the pods uses."""
    users = Counter(key for pod in pods for key in claim_keys(pod))
    return {key for key, number in users.items() if number > 1}


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
