"""The allocator for one node of a snapshot, with what is the same for all pods.

Some answers are remembered while the objects that they were made from are the same.
"""

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from allocator import (
    Allocation,
    AllocationMode,
    AllocatorError,
    Claim,
    ClaimSpec,
    Clock,
    DeviceClass,
    DeviceId,
    Features,
    Limits,
    Node,
    NodeUnsuitableError,
    Reason,
    SearchLimitError,
    Selectors,
    Task,
    Unsatisfiable,
    Usage,
    allocate,
)
from allocator.equivalence import AttributeReads, KnownFacts, Single, attribute_reads_of, selection_of, single_of
from allocator.policies import BEST_FIT, Policy
from allocator.pools import Candidate, NodePool
from allocator.search import SearchBudget
from allocator.tools import Recent
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.shapes import Shapes, Weighing
from extender.kube.api import ObjectKey
from extender.tools.faults import Faults

if TYPE_CHECKING:  # the solver carries the plugins, and their points name the solver
    from extender.framework.plugin import Plugins

_T = TypeVar("_T")

_MOST: Final = 10_000


class Remembered(Generic[_T]):
    """One answer for each key. Objects are compared by identity: values of a snapshot are the same until they change.

    Safe to use from several threads: at worst an answer is lost.
    """

    def __init__(self) -> None:
        self._known: Recent[tuple[tuple[object, ...], _T]] = Recent(_MOST)

    def find(self, key: Hashable, basis: tuple[object, ...]) -> _T | None:
        """The answer that was made from these very objects; None if there is none."""
        found = self._known.find(key)
        is_same = found is not None and len(found[0]) == len(basis) and all(map(is_, found[0], basis))
        return found[1] if found is not None and is_same else None

    def keep(self, key: Hashable, basis: tuple[object, ...], answer: _T) -> None:
        """Remember an answer in place of the one before."""
        self._known.keep(key, (basis, answer))


class Memories:
    """The memories of features about one cluster, each an object of its own type. Threads may ask at the same time."""

    def __init__(self) -> None:
        self._of: dict[type, Any] = {}

    def of(self, kind: type[_T]) -> _T:
        """The memory of this type. It is made when it is asked for first."""
        found: _T | None = self._of.get(kind)
        return self._of.setdefault(kind, kind()) if found is None else found


_BRIEF: Final = Limits(steps=64, seconds=0.001)
_OVER_SECONDS: Final = 1.0
"""A search that nobody wants any more finds the clock so long after its deadline."""

_LEAST_SECONDS: Final = 0.002
"""What a node has in any case: an ordinary one is searched in less."""

_FEW_DEVICES: Final = 256
"""The most devices of a node that can be listed in less than a millisecond."""


@dataclass(frozen=True, slots=True)
class No:
    """The claims can't be allocated on a node.

    Attributes:
        steps: devices tried.
        stopped: a limit stopped the search, so the claims may fit.
        by: the plugin that refuses the pod there; empty: none does.
    """

    reason: Reason
    steps: int = 0
    stopped: bool = False
    by: str = ""


def stopped_by(error: SearchLimitError) -> No:
    """A limit stopped the search."""
    return No(error.reason, error.steps, stopped=True)


def _may_ask(pod: Pod, snapshot: Snapshot) -> bool:
    """Whether a claim of the pod may have to be allocated: not all of its claims are there, with an allocation."""
    names = [each.claim_name or pod.claim_statuses.get(each.name) or "" for each in pod.claims]
    claims = [snapshot.claims.get(ObjectKey(pod.namespace, name)) for name in names]
    return bool(pod.containers) or any(each is None or each.claim.allocation is None for each in claims)


def _brief(limits: Limits) -> Limits:
    return Limits(min(limits.steps, _BRIEF.steps), min(limits.seconds, _BRIEF.seconds))


@dataclass(frozen=True, slots=True)
class Solver:
    """Decides claims on one node of a snapshot, and has the plugins' rules.

    Attributes:
        plugins: the rules of features, in the order in which they are asked.
        faults: told of unexpected errors in the allocator, which become errors of the claims.
        until: the deadline of the call, by the clock. It ends every search.
        among: the only devices that `solve` and `judge` may give; None: any.
        shapes: what pods ask for, for policies that weigh what is left; None: nothing is known of that.
        patience: seconds that one question about many nodes may take at nodes that are hard to search. Then a node has
            two milliseconds.
        memories: what features remember of the cluster.
    """

    selectors: Selectors
    clock: Clock
    new_share_id: Callable[[], str]
    plugins: "Plugins"
    policy: Policy = BEST_FIT
    limits: Limits = field(default_factory=Limits)
    features: Features = field(default_factory=Features)
    faults: Faults = field(default_factory=Faults)
    until: float = math.inf
    among: Collection[DeviceId] | None = None
    shapes: Shapes | None = None
    patience: float = math.inf
    memories: Memories = field(default_factory=Memories)

    def within(self, until: float) -> "Solver":
        """The solver with this deadline, if it is earlier than its own."""
        return self if until >= self.until else replace(self, until=until)

    def for_call(self, seconds: float) -> "Solver":
        """The solver for a call that begins now and takes so long at most, with what is known of shapes."""
        until = min(self.until, self.clock() + seconds)
        if not self.policy.weighs_leftover or self.shapes is None:
            return replace(self, until=until)
        return replace(self, until=until, policy=self.shapes.policy)

    def while_wanted(self, is_wanted: Callable[[], bool]) -> "Solver":
        """The solver for one search with a deadline, whose time is over once nobody wants its answer any more.

        Args:
            is_wanted: is asked in the thread of the search, at each look at the clock.
        """

        def clock() -> float:
            return self.clock() if is_wanted() else self.until + _OVER_SECONDS

        return replace(self, clock=clock)

    def share(self, among: int) -> "Solver":
        """The solver with an equal share of the time that is left."""
        if self.until == math.inf:
            return self
        now = self.clock()
        return self.within(now + (self.until - now) / among)

    def patient(self, waited: float) -> "Solver":
        """The solver for the next node, after some seconds at hard nodes."""
        left = self.patience - waited
        if left >= self.limits.seconds:
            return self
        return replace(self, limits=replace(self.limits, seconds=max(left, _LEAST_SECONDS)))

    def informed(self, pod: Pod, claims: Sequence[Claim], snapshot: Snapshot) -> "Solver":
        """The solver with what is known of shapes, this pod included, if its policy weighs what is left."""
        if not self.policy.weighs_leftover or self.shapes is None:
            return self
        self.shapes.see(pod, claims, snapshot.classes)
        policy = self.shapes.policy
        return self if self.policy is policy else replace(self, policy=policy)

    def still(self, but_for: Pod | None = None) -> "Solver":
        """The solver that learns nothing of shapes: a question changes no later score, and its pod may not exist.

        Args:
            but_for: a pod that exists: it counts for this solver, and for no other.
        """
        if self.shapes is None:
            return self
        return replace(self, shapes=self.shapes.still_but_for(but_for) if but_for else self.shapes.still())

    def is_learning(self, pod: Pod, snapshot: Snapshot) -> bool:
        """Whether `informed` may take long for a pod, if the policy weighs what is left."""
        if self.shapes is None or not self.shapes.is_due(pod, snapshot.classes, asks=True):
            return False
        return _may_ask(pod, snapshot) or self.shapes.is_due(pod, snapshot.classes, asks=False)

    def weighing(self, pod: Pod, until: float = math.inf) -> Weighing | None:
        """Adds losses to verdicts for a pod, if the policy weighs what is left.

        Args:
            pod: the pod at hand.
            until: when to stop, by the clock, if that is earlier than the deadline.
        """
        if not self.policy.weighs_leftover or self.shapes is None:
            return None
        seconds = min(until, self.until) - self.clock()
        return self.shapes.weighing(pod.cpu, SearchBudget(Limits(seconds=seconds), self.clock))

    def look(self) -> None:
        """Look at the clock; raises TimeoutError if the deadline has passed."""
        if self.is_late:
            raise TimeoutError

    @property
    def is_late(self) -> bool:
        """Whether the deadline has passed."""
        return self.until < math.inf and self.clock() > self.until

    def solve(self, snapshot: Snapshot, node: Node, claims: tuple[Claim, ...]) -> Allocation | Unsatisfiable:
        """Devices for all of the claims on the node.

        Raises:
            AllocatorError: as `allocator.allocate.allocate`.
            TimeoutError: the deadline has passed.
        """
        return self._solved(snapshot, node, claims, snapshot.inventory.for_node(node, self.features))

    def _solved(
        self, snapshot: Snapshot, node: Node, claims: tuple[Claim, ...], pools: tuple[NodePool, ...]
    ) -> Allocation | Unsatisfiable:
        task = Task(
            node=node,
            claims=claims,
            classes=snapshot.classes,
            pools=pools,
            usage=snapshot.usage,
            taint_rules=snapshot.taint_rules,
            features=self.features,
            among=self.among,
        )
        return self._asked(
            claims,
            lambda limits: allocate(
                task,
                selectors=self.selectors,
                policy=self.policy,
                limits=limits,
                clock=self.clock,
                new_share_id=self.new_share_id,
            ),
        )

    def judge(self, snapshot: Snapshot, node: Node, claims: tuple[Claim, ...]) -> Allocation | No:
        """Like `solve`, but errors that concern only this node become a `No`.

        Raises:
            InvalidClaimError, SelectorError: the claims can be allocated nowhere.
            TimeoutError: the deadline has passed.
        """
        return self._judged(snapshot, node, claims, snapshot.inventory.for_node(node, self.features))

    def _judged(
        self, snapshot: Snapshot, node: Node, claims: tuple[Claim, ...], pools: tuple[NodePool, ...]
    ) -> Allocation | No:
        try:
            outcome = self._solved(snapshot, node, claims, pools)
        except NodeUnsuitableError as error:
            return No(error.reason)
        except SearchLimitError as error:
            return stopped_by(error)
        return No(outcome.reason, outcome.steps) if isinstance(outcome, Unsatisfiable) else outcome

    def at_hand(self, snapshot: Snapshot, node: Node, claims: tuple[Claim, ...]) -> Allocation | No | None:
        """Like `judge` if that takes about a millisecond at most; None if it may take longer.

        Raises:
            InvalidClaimError, SelectorError: the claims can be allocated nowhere.
            TimeoutError: the deadline has passed.
        """
        pools = snapshot.inventory.for_node(node, self.features)
        seen = sum([len(view.candidates) for view in pools])
        if seen > _FEW_DEVICES or not self._are_quick(claims, snapshot.classes):
            return None
        found = replace(self, limits=_brief(self.limits))._judged(snapshot, node, claims, pools)
        return None if found.stopped else found

    def confirmed(
        self, snapshot: Snapshot, node: Node, claims: tuple[Claim, ...], found: Allocation
    ) -> Allocation | None:
        """An allocation again, in another snapshot; None if its devices no longer suit, or if it takes long to know.

        Only these devices are judged, whatever else the pools have. A request for all devices is never confirmed.

        Raises:
            InvalidClaimError, SelectorError: the claims can be allocated nowhere.
            TimeoutError: the deadline has passed.
        """
        asked = [way for claim in claims for request in claim.spec.requests for way in request.alternatives]
        if any(way.mode is AllocationMode.ALL for way in asked) or not self._are_quick(claims, snapshot.classes):
            return None
        devices = frozenset(each.device for result in found.results for each in result.results)
        pools = tuple([pool.among(devices) for pool in snapshot.inventory.for_node(node, self.features)])
        try:
            outcome = replace(self, limits=_brief(self.limits))._solved(snapshot, node, claims, pools)
        except (NodeUnsuitableError, SearchLimitError):
            return None
        return outcome if isinstance(outcome, Allocation) and not outcome.stopped else None

    def _are_quick(self, claims: Sequence[Claim], classes: Mapping[str, DeviceClass]) -> bool:
        asked = [way for claim in claims for request in claim.spec.requests for way in request.alternatives]
        if any(way.derived_attributes or way.device_class not in classes for way in asked):
            return False
        return all(self.selectors.are_quick((*classes[way.device_class].selectors, *way.selectors)) for way in asked)

    def single(
        self,
        claims: tuple[Claim, ...],
        classes: Mapping[str, DeviceClass],
        node: Node,
        views: tuple[NodePool, ...],
        reads: AttributeReads,
        known: KnownFacts,
    ) -> Single | None:
        """Tells the answer of nodes that differ from this one only in usage; None if that takes a search.

        Args:
            claims: ask for one device.
            classes: by name.
            node: one of the nodes.
            views: what it sees of the pools.
            reads: as `reads` has it.
            known: what is known of slices for these claims.

        Raises:
            SearchLimitError: a limit was reached.
            TimeoutError: the deadline has passed.
        """
        task = Task(node=node, claims=claims, classes=classes, pools=views, usage=Usage(), features=self.features)
        return self._asked(
            claims,
            lambda limits: single_of(task, self.selectors, self.policy, reads, SearchBudget(limits, self.clock), known),
        )

    def reads(self, claims: Sequence[Claim], classes: Mapping[str, DeviceClass]) -> AttributeReads:
        """The attributes that the expressions of claims and the policy read.

        Compiling the expressions may take all of the time.

        Raises:
            TimeoutError: the deadline has passed.
        """
        budget = SearchBudget(Limits(seconds=self.until - self.clock()), self.clock)
        return self._asked(claims, lambda _: attribute_reads_of(claims, classes, self.selectors, budget, self.policy))

    def selection(
        self, specs: Sequence[ClaimSpec], classes: Mapping[str, DeviceClass], candidates: Sequence[Candidate]
    ) -> Hashable:
        """Which devices the selectors of claims match, to compare claims; None: not known (`selection_of`)."""
        budget = SearchBudget(Limits(seconds=min(self.limits.seconds, self.until - self.clock())), self.clock)
        try:
            return selection_of(specs, classes, candidates, self.selectors, budget)
        except Exception:  # noqa: BLE001 - the solve of these claims meets the error again, and tells whose it is
            return None

    def _asked(self, claims: Sequence[Claim], ask: Callable[[Limits], _T]) -> _T:
        """The allocator's answer within the time that is left. An unexpected error is an error of the claims.

        Raises:
            AllocatorError: of the allocator; `InvalidClaimError` for an unexpected error.
            TimeoutError: the deadline has passed.
        """
        try:
            return ask(self._limits())
        except SearchLimitError as error:
            if self.until < math.inf and self.clock() >= self.until:
                raise TimeoutError from error
            raise
        except (AllocatorError, TimeoutError):
            raise
        except Exception as error:
            raise self.faults.of_claims(claims, error) from error

    def _limits(self) -> Limits:
        if self.until == math.inf:
            return self.limits
        left = self.until - self.clock()
        if left <= 0:
            raise TimeoutError
        return self.limits if left >= self.limits.seconds else replace(self.limits, seconds=left)
