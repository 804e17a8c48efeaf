"""The allocator and the plugins: everything that is the same for all pods.

A plugin is one feature's part of a scheduling cycle, as in kube-scheduler's scheduling framework. The extension points
have kube-scheduler's names where it has them. Some answers are remembered while the objects that they were made from
are the same.
"""

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeAlias, TypeVar

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
from allocator.equivalence import AttributeReads, Single, attribute_reads_of, selection_of, single_of
from allocator.policies import BEST_FIT, Policy
from allocator.pools import Candidate, NodePool
from allocator.search import SearchBudget
from allocator.tools import Recent
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.pending_reason import PendingReason
from extender.framework.decisions.shapes import Shapes, Weighing
from extender.framework.pods.claims import PodClaims
from extender.framework.pods.extended_resources.special_claim import Needs
from extender.tools.faults import Faults

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
    """What features remember of one cluster, each in an object of its own type. Threads may ask at the same time."""

    def __init__(self) -> None:
        self._of: dict[type, Any] = {}

    def of(self, kind: type[_T]) -> _T:
        """The memory of this type. It is made when it is asked for first."""
        found: _T | None = self._of.get(kind)
        return self._of.setdefault(kind, kind()) if found is None else found


_BRIEF: Final = Limits(steps=64, seconds=0.001)
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
    """

    reason: Reason
    steps: int = 0
    stopped: bool = False


def stopped_by(error: SearchLimitError) -> No:
    """A limit stopped the search."""
    return No(error.reason, error.steps, stopped=True)


def _brief(limits: Limits) -> Limits:
    return Limits(min(limits.steps, _BRIEF.steps), min(limits.seconds, _BRIEF.seconds))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a plugin refuses a pod.

    Attributes:
        reason: for the scheduler. It is the same at each try, and the same on equivalent nodes.
        detail: the same for people, with what is in use now; empty: the reason says everything.
        advice: what would help; empty: nothing is known.
    """

    reason: Reason
    detail: str = ""
    advice: str = ""

    def __str__(self) -> str:
        return self.detail or self.reason.in_words()


Check: TypeAlias = Callable[[Needs, Allocation], Refusal | None]
"""Compares what a pod would get on one node with a plugin's rule. Raises TimeoutError: there was not enough time."""


class Plugin:
    """One feature's part of a scheduling cycle. A feature overrides the points at which it has something to say.

    A cycle is one try to place one pod on a snapshot. It runs on the event loop or in a thread. So a plugin writes
    nothing, awaits nothing, and waits for no lock. All points may raise `TimeoutError`, with what takes too long.

    Attributes:
        name: unique; results, metrics and logs name the plugin by it.
        waits_for: what a pod waits for that this plugin refuses.
        event: the reason of the Event on a pod whose bind the plugin has refused; empty: there is no Event.
        wakes_its_pods: a background task of the feature wakes the pods that the plugin refuses, so requeue does not.
        of_pod: fields of pods that the plugin is about. If all are empty, `pre_enqueue` is not asked.
        of_cluster: fields of snapshots that the plugin is about. If all are empty, no other point is asked.
        of_claims: fields of the pod's claims that the plugin is about. If all are empty, `pre_filter` is not asked.
    """

    name: ClassVar[str]
    waits_for: ClassVar[PendingReason]
    event: ClassVar[str] = ""
    wakes_its_pods: ClassVar[bool] = False
    of_pod: ClassVar[Sequence[str]] = ()
    of_cluster: ClassVar[Sequence[str]] = ()
    of_claims: ClassVar[Sequence[str]] = ()

    def is_slow(self, pod: Pod, snapshot: Snapshot, solver: "Solver") -> bool:
        """Whether `pre_filter` may take longer than a millisecond. It is asked in a thread then."""
        return False

    def pre_enqueue(self, pod: Pod, snapshot: Snapshot) -> Refusal | None:
        """Why a pod is not to be tried at all now, whatever its claims are; None: it may be."""

    def withhold(self, pod: Pod, claims: PodClaims, snapshot: Snapshot, solver: "Solver") -> PodClaims:
        """The claims without the optional requests that the pod may not have."""
        return claims

    def pre_filter(self, pod: Pod, claims: PodClaims, snapshot: Snapshot, solver: "Solver") -> Refusal | Check | None:
        """Why a pod can run on no node, or what to compare on each node where its devices are found; None: neither."""

    def reserve(
        self, pod: Pod, claims: PodClaims, needs: Needs, found: Allocation, snapshot: Snapshot, solver: "Solver"
    ) -> Refusal | None:
        """Why a pod may not be bound with what was found for it, by the newest snapshot; None: it may be."""

    def verify(self, claim: ClaimObject, pod: Pod, snapshot: Snapshot, solver: "Solver") -> Refusal | None:
        """Why a pod may not have an allocation that was written for it, by the newest snapshot; None: it may.

        Earlier allocations count alone: if two replicas allocate the last device, the later one gives it back.
        """


class Refused(NamedTuple):
    """A refusal, and the plugin that refuses."""

    by: str
    refusal: Refusal


class Plugins:
    """The plugins, in the order in which they are asked. The first refusal counts.

    Attributes:
        waits_for: name of each plugin to what a pod waits for that it refuses.
        events: name of each plugin to the reason of its Events; empty: it has none.
        self_waking: the names of the plugins whose feature wakes its pods.
    """

    def __init__(self, table: Sequence[Plugin] = ()) -> None:
        def overriding(point: str) -> tuple[Plugin, ...]:
            return tuple(each for each in table if getattr(type(each), point) is not getattr(Plugin, point))

        self.waits_for = {each.name: each.waits_for for each in table}
        self.events = {each.name: each.event for each in table}
        self.self_waking = frozenset(each.name for each in table if each.wakes_its_pods)
        self._slow, self._pre_enqueue, self._withhold = map(overriding, ("is_slow", "pre_enqueue", "withhold"))
        self._pre_filter, self._reserve, self._verify = map(overriding, ("pre_filter", "reserve", "verify"))

    def are_slow(self, pod: Pod, snapshot: Snapshot, solver: "Solver") -> bool:
        """Whether `pre_filter` may take longer than a millisecond."""
        return any(_has_any(snapshot, each.of_cluster) and each.is_slow(pod, snapshot, solver) for each in self._slow)

    def pre_enqueue(self, pod: Pod, snapshot: Snapshot) -> Refused | None:
        """Who refuses to try a pod at all, and why; None if nobody does."""
        for each in self._pre_enqueue:
            refusal = each.pre_enqueue(pod, snapshot) if _has_any(pod, each.of_pod) else None
            if refusal is not None:
                return Refused(each.name, refusal)
        return None

    def withheld(self, pod: Pod, claims: PodClaims, snapshot: Snapshot, solver: "Solver") -> PodClaims:
        """The claims without the optional requests that the pod may not have."""
        for each in self._withhold:
            if _has_any(snapshot, each.of_cluster):
                claims = each.withhold(pod, claims, snapshot, solver)
        return claims

    def pre_filter(
        self, pod: Pod, claims: PodClaims, snapshot: Snapshot, solver: "Solver"
    ) -> Refused | Sequence[tuple[str, Check]]:
        """Who refuses a pod on all nodes, and why; or what is to be compared on each node, each with its plugin.

        Raises:
            TimeoutError: there was not enough time.
        """
        checks: list[tuple[str, Check]] = []
        for each in self._pre_filter:
            is_concerned = _has_any(snapshot, each.of_cluster) and _has_any(claims, each.of_claims)
            found = each.pre_filter(pod, claims, snapshot, solver) if is_concerned else None
            if isinstance(found, Refusal):
                return Refused(each.name, found)
            if found is not None:
                checks.append((each.name, found))
        return checks

    def reserve(
        self, pod: Pod, claims: PodClaims, needs: Needs, found: Allocation, snapshot: Snapshot, solver: "Solver"
    ) -> Refused | None:
        """Who refuses to bind a pod with what was found for it, and why; None if nobody does.

        Raises:
            TimeoutError: there was not enough time.
        """
        for each in self._reserve:
            is_concerned = _has_any(snapshot, each.of_cluster)
            refusal = each.reserve(pod, claims, needs, found, snapshot, solver) if is_concerned else None
            if refusal is not None:
                return Refused(each.name, refusal)
        return None

    def verify(self, claim: ClaimObject, pod: Pod, snapshot: Snapshot, solver: "Solver") -> Refused | None:
        """Who refuses an allocation that was written for a pod, and why; None if nobody does.

        Raises:
            TimeoutError: there was not enough time.
        """
        for each in self._verify:
            refusal = each.verify(claim, pod, snapshot, solver) if _has_any(snapshot, each.of_cluster) else None
            if refusal is not None:
                return Refused(each.name, refusal)
        return None


def _has_any(value: Pod | PodClaims | Snapshot, fields: Sequence[str]) -> bool:
    """Whether one of the fields is not empty; True if there are no fields. It costs less than to ask the plugin."""
    return not fields or any(getattr(value, field) for field in fields)


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
    plugins: Plugins
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
        return replace(self, policy=self.shapes.policy)

    def still(self) -> "Solver":
        """The solver that learns nothing of shapes: people ask about pods that do not exist."""
        return self if self.shapes is None else replace(self, shapes=self.shapes.still())

    def is_learning(self, pod: Pod, snapshot: Snapshot) -> bool:
        """Whether `informed` may take long for a pod, if the policy weighs what is left."""
        return self.shapes is not None and self.shapes.is_due(pod, snapshot.classes)

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
        try:
            outcome = self.solve(snapshot, node, claims)
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
        seen = sum(len(view.candidates) for view in snapshot.inventory.for_node(node, self.features))
        if seen > _FEW_DEVICES or not self._are_quick(claims, snapshot.classes):
            return None
        found = replace(self, limits=_brief(self.limits)).judge(snapshot, node, claims)
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
        self, claims: tuple[Claim, ...], classes: Mapping[str, DeviceClass], node: Node, views: tuple[NodePool, ...]
    ) -> Single | None:
        """Tells the answer of nodes that differ from this one only in usage; None if that takes a search.

        Args:
            claims: ask for one device.
            classes: by name.
            node: one of the nodes.
            views: what it sees of the pools.

        Raises:
            SearchLimitError: a limit was reached.
            TimeoutError: the deadline has passed.
        """
        task = Task(node=node, claims=claims, classes=classes, pools=views, usage=Usage(), features=self.features)
        return self._asked(
            claims, lambda limits: single_of(task, self.selectors, self.policy, SearchBudget(limits, self.clock))
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
