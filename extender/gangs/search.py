"""Search for seats: one pod after the other gets the best node by its policy.

If a pod finds no node, the search goes back and gives an earlier pod another node. Pods of one kind that may go to the
same nodes are interchangeable: a node that did not help one of them is not tried for the next.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from allocator import DeviceId
from extender.decisions.evaluate import Decider
from extender.decisions.solver import No, Solver
from extender.gangs.node_ranking import Options, options_after, options_of
from extender.gangs.plan import GangPlan, Seat, Shortfall
from extender.gangs.topology import Domain
from extender.state.objects.pods import Pod
from extender.state.pod_fields.conditions import Keeping
from extender.state.snapshot import Snapshot
from extender.verbs.placing import Grant, grant


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
    seats: GangPlan
    left: Iterator[str | None] = field(default_factory=lambda: iter(()))
    tried: set[str] = field(default_factory=set)
    options: Options | None = None


@dataclass(slots=True)
class GangSearch:
    """One search with a given order of the pods.

    Attributes:
        snapshot: the cluster that the search begins with, or a fork.
        decider: remembers verdicts on the cluster that the fork comes from.
        solver: the decider's, for as long as there is time.
        names_of: the nodes on which kube-scheduler might bind a pod, apart from devices.
        queue: the pods, each with its kind; those of one kind together.
        wanted: the number of pods that need a seat.
        domain: where the seats are.
        left: places that may be tried.
        backtracks: earlier pods may get other nodes. Not if each node takes as many pods in whatever order.
        shortfall: the largest number of pods that had seats at the same time, and why there was no further one.
        stuck: the kind of the first pod that found no node.
        is_complete: everything was tried.
    """

    snapshot: Snapshot
    decider: Decider
    solver: Solver
    names_of: Callable[[Pod], Sequence[str]]
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

    def run(self, fork: Snapshot) -> GangPlan | None:
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
            self.solver.look()
            before = frozenset(step.tried)
            step.tried.add(name)
            found = self._grant(self.queue[step.number][1], name, step.fork)
            if found is not None:
                return self._placed(step, found, name, before)
        return None

    def _grant(self, pod: Pod, name: str, fork: Snapshot) -> Grant | None:
        among = self.domain.devices
        found = grant(pod, name, fork, self.solver if among is None else replace(self.solver, among=among))
        return None if isinstance(found, No) else found

    def _placed(self, step: _Step, found: Grant, name: str, tried: Collection[str]) -> _Step:
        """The step after the pod has got a node. ``tried`` as in `_step`."""
        pod, number = self.queue[step.number][1], step.number + 1
        fork = found.held(pod, name, step.fork)
        seats = (*step.seats, Seat(pod, Keeping(name, tuple(sorted(_devices(found, self.snapshot))))))
        options = None
        is_local = found.pools.issubset(fork.inventory.local.get(name, ()))
        if is_local and step.options is not None and len(seats) < self.wanted and self._is_same_kind(number):
            following = self.queue[number][1]
            options = options_after(step.options, following, name, fork, self.solver, self.decider)
        return self._step(number, fork, seats, tried, options)

    def _is_same_kind(self, number: int) -> bool:
        """Whether the pod at this place of the queue is of the kind of the pod before."""
        return 0 < number < len(self.queue) and self.queue[number - 1][0] == self.queue[number][0]

    def _step(
        self, number: int, fork: Snapshot, seats: GangPlan, tried: Collection[str] = (), options: Options | None = None
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
        names = [name for name in self.domain.among(self.names_of(pod)) if name not in tried]
        return options_of(pod, names, fork, self.solver, self.decider)

    def _note(self, kind: Hashable, options: Options, placed: int) -> None:
        if self.stuck is None:
            self.stuck = kind
        if placed >= self.shortfall.placed:
            self.shortfall = Shortfall(placed, self.wanted, _commonest(options.reasons))


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
