"""The search for the seats of a gang: one pod after the other gets the best node by its policy.

A plan has a seat for each pod, or says why there is none. If a pod finds no node, the search goes back and gives an
earlier pod another node, or the same node in another way, if the claims of the pod leave a choice. Pods of one kind
that may go to the same nodes are interchangeable: a place that did not help one of them is not tried for the next.

A topology domain is all nodes that have the same value of a label, or all devices that have the same value of an
attribute. A PodGroup names the label or attribute, or the annotations of pods do (`extender.cluster.objects.pods`).
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, TypeAlias

from allocator import AllocationResult, Claim, DeviceId, Features
from allocator.policies import Merit, Policy
from extender.cluster.objects.pods import Keeping, Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.cycle import policy_of
from extender.framework.decisions.solver import No
from extender.framework.decisions.verdict import Reasons
from extender.framework.filter import Bounds, FilterResult, ask
from extender.framework.pods.extended_resources import request_nouns
from extender.framework.pods.reduced_claims import left_out
from extender.planning.planner import Grant, Planner


@dataclass(frozen=True, slots=True)
class Seat:
    """The node and devices that are to be kept for one pod.

    Attributes:
        pod: as it is once that is written.
    """

    pod: Pod

    @property
    def keeping(self) -> Keeping:
        """The node and the devices."""
        return self.pod.kept


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Why there is no plan.

    Attributes:
        placed: the largest number of pods that had devices at the same time.
        wanted: the number of pods that need devices.
        reason: why the next pod found no node.
        is_final: everything was tried; otherwise a limit has stopped the search.
        next: the next pod, and the fork in which the pods before it have devices; None: it is not known.
    """

    placed: int
    wanted: int
    reason: str
    is_final: bool = True
    next: tuple[Pod, Snapshot] | None = field(default=None, compare=False, repr=False)


GangPlan = tuple[Seat, ...]


@dataclass(frozen=True, slots=True)
class Seating:
    """Seats, and the cluster in which their pods have them."""

    seats: GangPlan
    fork: Snapshot


@dataclass(frozen=True, slots=True)
class Domain:
    """A part of the cluster.

    Attributes:
        value: of the label or the attribute; empty for the whole cluster.
        nodes: the names of its nodes; None: all nodes.
        devices: the devices that pods may get there; None: all devices.
    """

    value: str = ""
    nodes: frozenset[str] | None = None
    devices: frozenset[DeviceId] | None = None

    def among(self, names: Sequence[str]) -> Sequence[str]:
        """The nodes among these that are in the domain."""
        nodes = self.nodes
        return names if nodes is None else [name for name in names if name in nodes]


EVERYWHERE: Final = Domain()


def domains_of(key: str, snapshot: Snapshot, features: Features) -> Sequence[Domain]:
    """The domains of a label of nodes, or of an attribute of devices if no node has the label.

    Domains with fewer free devices come first: a gang that fits in a small domain leaves the large ones to others.

    Args:
        key: the label, or ``domain/name`` of an attribute; empty: there are no domains.
        snapshot: the cluster.
        features: which pools nodes see.
    """
    if not key:
        return ()
    found = _of_label(key, snapshot) or _of_attribute(key, snapshot, features)
    return sorted(found, key=lambda domain: (_free(domain, snapshot, features), domain.value))


def _of_label(key: str, snapshot: Snapshot) -> list[Domain]:
    values: dict[str, set[str]] = {}
    for name, node in snapshot.nodes.items():
        value = node.node.labels.get(key)
        if value is not None:
            values.setdefault(value, set()).add(name)
    return [Domain(value, frozenset(names)) for value, names in values.items()]


def _of_attribute(key: str, snapshot: Snapshot, features: Features) -> list[Domain]:
    nodes: dict[str, set[str]] = {}
    devices: dict[str, set[DeviceId]] = {}
    for name in snapshot.nodes:
        for device, value in _values(key, name, snapshot, features):
            nodes.setdefault(value, set()).add(name)
            devices.setdefault(value, set()).add(device)
    return [Domain(value, frozenset(nodes[value]), frozenset(devices[value])) for value in nodes]


def _values(key: str, name: str, snapshot: Snapshot, features: Features) -> Iterator[tuple[DeviceId, str]]:
    """The devices that a node reaches, with their values of an attribute."""
    for view in snapshot.inventory.for_node(snapshot.nodes[name].node, features):
        for candidate in view.candidates:
            value = candidate.device.attributes.get(key)
            if value is not None:
                yield candidate.device.id, str(value)


def _free(domain: Domain, snapshot: Snapshot, features: Features) -> int:
    """The number of devices of a domain that no claim uses, about."""
    total = 0
    for name in domain.nodes or ():
        for view in snapshot.inventory.for_node(snapshot.nodes[name].node, features):
            total += len(view.candidates) - len(snapshot.usage.pools.get(view.id, ()))
    return total


@dataclass(frozen=True, slots=True)
class Options:
    """The nodes that take a pod in a fork.

    Attributes:
        places: each node, in the order asked, with the position of its merit.
        merits: what speaks for the nodes; few are distinct.
        policy: of the pod.
        reasons: against other nodes.
    """

    places: Mapping[str, int]
    merits: tuple[Merit, ...]
    policy: Policy
    reasons: Reasons

    def best_first(self, without: Collection[str]) -> Iterator[str]:
        """The nodes, except some: those with the highest score first; of equal nodes those that were asked first."""
        scores = self.policy.scores({place: self.merits[place] for place in set(self.places.values())})
        for score in sorted(set(scores.values()), reverse=True):
            for name, place in self.places.items():
                if scores[place] == score and name not in without:
                    yield name

    def with_node(self, name: str, merit: Merit | None) -> "Options":
        """The nodes after one of them has changed; without a merit, it does not take the pod any more."""
        places, merits = dict(self.places), self.merits
        if merit is None:
            places.pop(name, None)
        else:
            known = (place for place, each in enumerate(merits) if each is merit)  # equal nodes share a merit
            places[name] = next(known, len(merits))
            merits = merits if places[name] < len(merits) else (*merits, merit)
        return Options(places, merits, self.policy, self.reasons)


def options_of(pod: Pod, names: Sequence[str], fork: Snapshot, planner: Planner) -> Options:
    """The nodes among these that take a pod.

    Raises:
        TimeoutError: the planner's time is up.
    """
    return _options(pod, planner.filter(pod, names, fork), planner.solver.policy)


def options_after(before: Options, pod: Pod, node: str, fork: Snapshot, planner: Planner) -> Options | None:
    """The nodes that take the next pod of a kind, after one of the kind has got a node and devices of only that node.

    None if what other nodes answer may have changed: because of a claim that the pods share, or of a quota that depends
    on the devices.

    Args:
        before: the nodes that took the pod before.
        pod: the next pod.
        node: of the pod before.
        fork: the cluster in which that pod has its node.
        planner: for as long as there is time.

    Raises:
        TimeoutError: the planner's time is up.
    """
    solver = planner.solver
    question = ask(pod, [node], fork, solver, planner.decider, bounds=Bounds(solver.until))
    if isinstance(question, FilterResult):
        return None if question.passed else _options(pod, question, solver.policy)
    claims = question.cycle.claims
    if question.checks or claims.allocated or claims.negotiated or claims.withheld:
        return None
    return before.with_node(node, question.result().merits.get(node))


def _options(pod: Pod, result: FilterResult, default: Policy) -> Options:
    policy = policy_of(pod, default) or default
    if not result.merits:
        return Options(dict.fromkeys(result.passed, 0), (Merit(),), policy, result.unresolvable)
    places = dict(zip(result.passed, result.merits.codes_of(result.passed), strict=True))
    return Options(places, tuple(result.merits.kinds), policy, result.unresolvable)


_Place: TypeAlias = tuple[str, int]
"""A node, and the number of the way in which the pod is served there."""


@dataclass(slots=True)
class _Step:
    """One pod of the search, and the places that are left to try.

    Attributes:
        number: of the pod in the queue.
        fork: the cluster before.
        seats: of the pods before.
        left: the places that are left to try; None at the end: the pod stays without a node.
        tried: places that were tried for this pod, and that need not be tried for later pods of its kind.
        options: the nodes that take the pod in the first way; None: there is no pod to place.
    """

    number: int
    fork: Snapshot
    seats: GangPlan
    left: Iterator[_Place | None] = field(default_factory=lambda: iter(()))
    tried: set[_Place] = field(default_factory=set)
    options: Options | None = None


@dataclass(slots=True)
class GangSearch:
    """One search with a given order of the pods.

    Attributes:
        snapshot: the cluster that the search begins with, or a fork.
        planner: for as long as there is time.
        names_of: the nodes on which kube-scheduler might bind a pod, apart from devices.
        queue: the pods, each with its kind; those of one kind together. Each pod stands there once for each way to
            serve it, in the order in which the ways are tried. Pods of one kind have the same ways.
        wanted: the number of pods that need a seat.
        domain: where the seats are.
        left: places that may be tried.
        backtracks: earlier pods may get other nodes. Not if each node takes as many pods in whatever order.
        shortfall: the largest number of pods that had seats at the same time, and why there was no further one.
        stuck: the kind of the first pod that found no node.
        is_complete: everything was tried.
    """

    snapshot: Snapshot
    planner: Planner
    names_of: Callable[[Pod], Sequence[str]]
    queue: Sequence[tuple[Hashable, Sequence[Pod]]]
    wanted: int
    domain: Domain
    left: int
    backtracks: bool
    shortfall: Shortfall = field(init=False)
    stuck: Hashable = None
    is_complete: bool = False

    def __post_init__(self) -> None:
        self.shortfall = Shortfall(0, self.wanted, "")

    def run(self, fork: Snapshot) -> Seating | None:
        """Seats for as many pods as are wanted; None if none are found.

        Raises:
            TimeoutError: the planner's time is up.
        """
        trail = [self._step(0, fork, ())]
        while trail:
            step = trail[-1]
            if len(step.seats) == self.wanted:
                return Seating(step.seats, step.fork)
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
        """The step after the next place that takes the pod; None if there is none."""
        for place in step.left:
            if place is None:
                return self._step(step.number + 1, step.fork, step.seats, step.tried, step.options)
            if self.left <= 0:
                return None
            self.left -= 1
            self.planner.solver.look()
            before = frozenset(step.tried)
            step.tried.add(place)
            name, way = place
            pod = self.queue[step.number][1][way]
            found = self._grant(pod, name, step.fork)
            if found is not None:
                return self._placed(step, found, pod, name, before)
        return None

    def _grant(self, pod: Pod, name: str, fork: Snapshot) -> Grant | None:
        among, planner = self.domain.devices, self.planner
        found = (planner if among is None else planner.among(among)).take(pod, name, fork)
        return None if isinstance(found, No) else found

    def _placed(self, step: _Step, found: Grant, pod: Pod, name: str, tried: Collection[_Place]) -> _Step:
        """The step after a pod, in one of its ways, has got a node. ``tried`` as in `_step`."""
        number = step.number + 1
        fork = found.held(pod, name, step.fork)
        seats = (*step.seats, Seat(replace(pod, nominated_node=name, kept=_keeping(found, name, self.snapshot))))
        options = None
        is_local = found.pools.issubset(fork.inventory.local.get(name, ()))
        if is_local and step.options is not None and len(seats) < self.wanted and self._is_same_kind(number):
            following = self.queue[number][1][0]
            options = options_after(step.options, following, name, fork, self.planner)
        return self._step(number, fork, seats, tried, options)

    def _is_same_kind(self, number: int) -> bool:
        """Whether the pod at this place of the queue is of the kind of the pod before."""
        return 0 < number < len(self.queue) and self.queue[number - 1][0] == self.queue[number][0]

    def _step(
        self,
        number: int,
        fork: Snapshot,
        seats: GangPlan,
        tried: Collection[_Place] = (),
        options: Options | None = None,
    ) -> _Step:
        """The step of a pod.

        Args:
            number: of the pod in the queue.
            fork: the cluster before.
            seats: of the pods before.
            tried: places that need not be tried for another pod of the kind of the pod before.
            options: the nodes that take another pod of that kind in the first way; None: they are not known.
        """
        if number == len(self.queue) or len(seats) == self.wanted:
            return _Step(number, fork, seats)
        is_same = self._is_same_kind(number)
        known = set(tried) if is_same else set()
        if options is None or not is_same or options.places.keys() <= _names(known, 0):
            options = self._options(self.queue[number][1][0], fork, _names(known, 0))
        left: Iterator[_Place | None] = self._places(number, fork, len(seats), known, options)
        if len(self.queue) - number > self.wanted - len(seats):
            left = chain(left, (None,))
        return _Step(number, fork, seats, left, known, options)

    def _places(
        self, number: int, fork: Snapshot, placed: int, known: Collection[_Place], first: Options
    ) -> Iterator[_Place]:
        """The places that take a pod and are not known, for each way the best node first.

        ``first`` are the nodes of the first way.
        """
        kind, ways = self.queue[number]
        is_stuck = True
        for way, pod in enumerate(ways):
            options = self._options(pod, fork, _names(known, way)) if way else first
            is_stuck = is_stuck and not options.places
            yield from ((name, way) for name in options.best_first(()) if (name, way) not in known)
        if is_stuck:
            self._note(kind, ways[0], first, placed, fork)

    def _options(self, pod: Pod, fork: Snapshot, tried: Collection[str]) -> Options:
        """The nodes that take a pod, of those that were not tried."""
        names = [name for name in self.domain.among(self.names_of(pod)) if name not in tried]
        return options_of(pod, names, fork, self.planner)

    def _note(self, kind: Hashable, pod: Pod, options: Options, placed: int, fork: Snapshot) -> None:
        if self.stuck is None:
            self.stuck = kind
        if placed >= self.shortfall.placed:
            counts = options.reasons.counts(request_nouns(pod))
            commonest = max(counts, key=lambda reason: (counts[reason], reason), default="there is no node for it")
            self.shortfall = Shortfall(placed, self.wanted, commonest, next=(pod, fork))


def _names(places: Collection[_Place], way: int) -> set[str]:
    """The nodes of the places of one way."""
    return {name for name, each in places if each == way}


def _keeping(found: Grant, name: str, snapshot: Snapshot) -> Keeping:
    """What is to be kept for a pod of a fork: what its claims do not hold in the cluster yet."""
    results: list[tuple[Claim, AllocationResult]] = []
    for pending, result in zip(found.needs.pending, found.results, strict=True):
        results.append((pending.claim, result))
    for each in found.claims.allocated:  # perhaps for another pod of this plan
        known = snapshot.claim(each.claim.uid)
        if each.claim.allocation is not None and known is not None and known.claim.allocation is None:
            results.append((each.claim, each.claim.allocation))
    devices = {each.device for _, result in results for each in result.results}
    without = dict.fromkeys(label for claim, result in results for label in left_out(claim, result))
    return Keeping(name, tuple(sorted(devices)), without=tuple(without))
