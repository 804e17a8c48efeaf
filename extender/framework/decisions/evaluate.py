"""Verdicts on nodes, shared by all claims of one signature: `lookup` finds known ones, `evaluate` makes the others.

A verdict depends on the signature of the claims (what they ask for, without names), on the view of the node, and on
what of the roaming pools is in use. A node gets another view when something changes for it, so a verdict that is kept
by node view is never stale. Nodes that are equivalent for a signature share a verdict.

`Decider.lookup` says what is known and what is missing; `Decider.evaluate` finds out what is missing.

Calls may come from several threads. Threads only add values, which every thread would make alike, or replace something
as a whole in one assignment: at worst, work is done twice. Only a `VerdictIndex` has a lock; no thread waits for it.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Optional

from allocator import Allocation, Claim, DeviceClass, SearchLimitError
from allocator.equivalence import AttributeReads, KnownFacts, KnownRuns, NotFound, Single, is_single
from allocator.policies import Merit, Policy
from allocator.tools import Recent
from allocator.usage import PoolUsage
from extender.cluster.kinds import Topic
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.snapshot import Snapshot
from extender.cluster.timeline import Reach, Timeline, View
from extender.framework.decisions.node_index import (
    NodeIndex,
    NodeView,
    NodeViewBuilder,
    Numbers,
    VerdictIndex,
    fingerprints_of,
)
from extender.framework.decisions.shapes import Weigher, Weighing
from extender.framework.decisions.solver import No, Solver, stopped_by
from extender.framework.decisions.verdict import NOT_KNOWN, TOO_LATE, UNDECIDED, Verdict, Verdicts


def signature_of(claims: Sequence[Claim], classes: Mapping[str, DeviceClass], policy: Policy) -> Hashable:
    """Equal for claims that get the same answer from every node, with the same merit.

    Requests keep their names, which constraints refer to and reasons mention; configuration decides nothing.
    """
    asked = tuple(claim.spec.asked for claim in claims)
    names = {a.device_class for requests, _, _ in asked for request in requests for a in request.alternatives}
    if policy.weighs_classes:
        names = set(classes)
    return (
        policy.name,
        policy.reads,
        asked,
        frozenset((name, found.selectors) for name in names if (found := classes.get(name)) is not None),
    )


_WEIGHED: Final = 2
"""Weighers of one signature that are remembered: pods with equal claims mostly request equal CPU."""


@dataclass(slots=True, eq=False)
class KnownVerdicts:
    """The verdicts of one signature while one amount of the roaming pools is in use.

    Attributes:
        by_key: by what equivalent node views have in common: the fingerprint and the state, or as
            `SignatureCache.counted` and `settled` have it.
        verdict_index: by node name, for the cluster that is followed.
        weighed: the same with losses, by weigher.
    """

    roaming: tuple[PoolUsage, ...]
    by_node_view: dict[NodeView | None, Verdict] = field(default_factory=dict)
    by_key: dict[Hashable, Verdict] = field(default_factory=dict)
    verdict_index: VerdictIndex = field(default_factory=VerdictIndex)
    weighed: Recent[VerdictIndex] = field(default_factory=lambda: Recent(_WEIGHED))

    def index(self, weigher: Weigher | None) -> VerdictIndex:
        """The verdicts by node name, with losses if there is a weigher."""
        if weigher is None:
            return self.verdict_index
        return self.weighed.find(weigher) or self.weighed.keep(weigher, VerdictIndex())


_SPARE_DEVICES: Final = 50_000
"""Devices in node views that came, beside those that there are, after which a signature looks at all its node views."""

_LARGE_VIEW: Final = 4096
"""After a node view of more devices came, a signature looks at all its node views at once. What it remembers of 20,480
devices takes 0.4 MB, and a driver may change one of them all the time."""


@dataclass(slots=True, eq=False)
class SignatureCache:
    """The memory of one signature.

    Attributes:
        single_of: makes the `Single` of a node view; None unless the signature asks for one device and nothing else.
        known_runs: the runs of slices.
        fingerprints: of each node view.
        singles: by fingerprint, what tells the answer without a search; None if nothing does.
        runs: by fingerprint, which devices are interchangeable.
        known: the verdicts.
        devices: in the node views that came since `trim` has looked at them all.
        room: devices of node views that may come until then.
        is_full: more devices came, or a node view with very many devices.
    """

    reads: AttributeReads
    single_of: Callable[[Solver, NodeView], Single | None] | None
    known_runs: KnownRuns
    fingerprints: dict[NodeView, Hashable] = field(default_factory=dict)
    singles: dict[Hashable, Single | None] = field(default_factory=dict)
    runs: dict[Hashable, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    known: KnownVerdicts = field(default_factory=lambda: KnownVerdicts(()))
    devices: int = 0
    room: int = _SPARE_DEVICES
    is_full: bool = False

    def under(self, roaming: tuple[PoolUsage, ...]) -> KnownVerdicts:
        """The verdicts while this much of the roaming pools is in use."""
        known = self.known
        if known.roaming is not roaming:
            known = self.known = KnownVerdicts(roaming)
        return known

    def key(self, node_view: NodeView, numbers: Numbers) -> tuple[Hashable, int]:
        """Fingerprint and state: equal for node views that are equivalent to the signature."""
        found = self.fingerprints.get(node_view)
        if found is None:
            found = self.learn((node_view,), numbers)[node_view]
        return found, node_view.state

    def learn(self, node_views: Iterable[NodeView | None], numbers: Numbers) -> Mapping[NodeView, Hashable]:
        """Find the fingerprints of node views, all of them at once. Returns those that are known."""
        known = self.fingerprints
        new = [each for each in node_views if each is not None and each not in known]
        known.update(zip(new, fingerprints_of(new, self.reads, numbers), strict=True))
        came = [each.devices for each in new]
        self.devices += sum(came)
        self.is_full = self.is_full or self.devices > self.room or max(came, default=0) > _LARGE_VIEW
        return known

    def answer(self, node_view: NodeView, fingerprint: Hashable, node_index: NodeIndex) -> Merit | NotFound | None:
        """A node's answer, if it is told without a search and without evaluating selectors; else None."""
        single = self.singles.get(fingerprint)
        states = None if single is None else node_index.states(node_view)
        return None if single is None or states is None else single.answer(states)

    def counted(self, node_view: NodeView, fingerprint: Hashable) -> tuple[Hashable, tuple[int, ...]] | None:
        """Equal for node views on which as many devices are held; None if it matters which ones."""
        single = self.singles.get(fingerprint)
        if single is None or not single.is_counted or node_view.held is None:
            return None
        return fingerprint, node_view.held

    def settled(
        self, node_view: NodeView, key: tuple[Hashable, int], node_index: NodeIndex, solver: Solver | None
    ) -> Hashable:
        """Equal for node views that differ only in which of several identical devices are in use.

        A `Merit` or `NotFound` if a node's answer is known without a search. None if selectors would have to be
        evaluated and there is no solver.

        Args:
            node_view: the view of a node.
            key: the key of the node view.
            node_index: of the snapshot that the question is about.
            solver: evaluates selectors.

        Raises:
            InvalidClaimError, SearchLimitError, TimeoutError: as `Solver.single`.
        """
        if self.reads.in_order:
            return key
        fingerprint = key[0]
        if self.single_of is not None:
            if fingerprint not in self.singles:
                if solver is None:
                    return None
                self.singles[fingerprint] = self.single_of(solver, node_view)
            answer = self.answer(node_view, fingerprint, node_index)
            if answer is not None:
                return answer
        return self._with_runs(node_view, fingerprint)

    def _with_runs(self, node_view: NodeView, fingerprint: Hashable) -> Hashable:
        runs = self.runs.get(fingerprint)
        if runs is None:
            views = [pool_fingerprint.view for pool_fingerprint in node_view.pool_fingerprints]
            runs = self.runs[fingerprint] = self.known_runs.of(views)
        return fingerprint, node_view.interchangeable(runs)

    def trim(self, node_index: NodeIndex) -> None:
        """Forget everything if most of it is about node views that no node has any more.

        Where nodes have many devices, forget what is about node views that no node has any more: a node with 20,480
        devices, some of which change all the time, has a new view of half a megabyte after each change.
        """
        nodes = len(node_index.snapshot.nodes)
        if max(len(self.fingerprints), len(self.known.by_node_view), len(self.known.by_key)) > 4 * nodes + 1000:
            self.fingerprints, self.singles, self.runs, self.known = {}, {}, {}, KnownVerdicts(self.known.roaming)
            self.devices, self.is_full = 0, False
        elif self.is_full:
            self._forget_past(set(node_index.present_views()))

    def _forget_past(self, present: AbstractSet[NodeView]) -> None:
        """Forget what is about node views that are not present."""
        known = self.known
        self.fingerprints = {view: found for view, found in [*self.fingerprints.items()] if view in present}
        fingerprints = set(self.fingerprints.values())
        self.singles = {each: single for each, single in [*self.singles.items()] if each in fingerprints}
        self.runs = {each: runs for each, runs in [*self.runs.items()] if each in fingerprints}
        by_node_view = {view: found for view, found in [*known.by_node_view.items()] if view is None or view in present}
        self.known = replace(known, by_node_view=by_node_view, by_key={})
        self.devices, self.room = 0, _SPARE_DEVICES + sum(view.devices for view in self.fingerprints)
        self.is_full = False


MOST_NEW_NODES: Final = 32
"""New nodes that a lookup examines. That takes about a millisecond, if nothing is searched."""

MOST_NEW_DEVICES: Final = 1024
"""Devices that such nodes reach. A node with more devices is examined by the solver, in a thread."""

_FEW_NODES: Final = 64
"""For no more nodes than these, a fork is asked about each: to find the nodes that differ takes longer."""

HARD_SECONDS: Final = 0.01
"""A node is hard if its search takes longer: an ordinary one is searched in a millisecond or two."""

MOST_NEW_LOSSES: Final = 1000
"""Nodes whose losses a lookup finds. That takes a few milliseconds."""


@dataclass(slots=True, eq=False)
class Inquiry:
    """Finds the verdicts of one question.

    Attributes:
        cache: what is known of the signature of the claims.
        known: the verdicts in it while this much of the roaming pools is in use.
        solver: None: nothing is searched, and no selector is evaluated.
        steps: devices tried so far.
        solved: nodes so far that were neither known nor equivalent to known ones.
        stopped: those of them whose search was stopped.
        undecided: nodes so far that a lookup has left to the solver.
        hard: the hard nodes so far, by name, each with the seconds that its search has taken.
    """

    claims: tuple[Claim, ...]
    node_index: NodeIndex
    cache: SignatureCache
    known: KnownVerdicts
    numbers: Numbers
    solver: Solver | None = None
    steps: int = 0
    solved: int = 0
    stopped: int = 0
    undecided: int = 0
    hard: dict[str, float] = field(default_factory=dict)
    _examined: int = 0
    _devices: int = 0
    _weighed: int = 0
    _passing: dict[Hashable, Verdict] = field(default_factory=dict)

    def finding(self, weigher: Weigher | None) -> Callable[[str], Verdict]:
        """`known_of`, or `weighed` with a weigher."""
        return self.known_of if weigher is None else partial(self.weighed, weigher=weigher)

    def take_over(self, other: "Inquiry") -> None:
        """Go on with what another inquiry has counted, which has begun with the counts of this one."""
        self.steps, self.solved, self.stopped = other.steps, other.solved, other.stopped
        self.undecided, self._weighed = other.undecided, other._weighed
        self._examined, self._devices = other._examined, other._devices

    def known_of(self, name: str) -> Verdict:
        """The verdict on a node, without a search. `UNDECIDED` if it takes one, or if too many nodes are new."""
        node_view = self.node_index.known_view(name)
        found = None if node_view is None else self.known.by_node_view.get(node_view)
        if found is not None:
            return found
        node = self.node_index.snapshot.nodes.get(name)
        if node is None:
            return NOT_KNOWN
        devices = self._devices + self.node_index.snapshot.inventory.local_devices(name)
        if self._examined < MOST_NEW_NODES and devices <= MOST_NEW_DEVICES:
            node_view = self.node_index.node_view(node)
            self._examined, self._devices = self._examined + 1, self._devices + node_view.reached
            found = self.verdict(node_view) if self._devices <= MOST_NEW_DEVICES else None
        if found is None:
            self.undecided += 1
            return UNDECIDED
        return found

    def weighed(self, name: str, weigher: Weigher) -> Verdict:
        """Like `known_of`, with the loss on the node.

        `UNDECIDED` also if too many losses are new, or if one takes long to find.
        """
        verdict = self.known_of(name)
        if verdict.merit is None:
            return verdict
        self._weighed += 1
        found = None
        if self._weighed <= MOST_NEW_LOSSES:
            found = weigher.known(verdict, self.node_index.snapshot.cpu_left(name))
        if found is None:
            self.undecided += 1
            return UNDECIDED
        return found

    def verdicts(self, node_views: Sequence[NodeView | None], until: float) -> list[Verdict]:
        """The verdicts on node views, `NOT_KNOWN` where there is none; as `verdict`."""
        known, by_key = self.known.by_node_view, self.known.by_key
        fingerprints, counts = self.cache.learn(node_views, self.numbers), self.cache.single_of is not None
        verdicts: list[Verdict] = []
        for node_view in node_views:
            found = NOT_KNOWN if node_view is None else known.get(node_view)
            if found is None and node_view is not None:
                fingerprint = fingerprints[node_view]
                found = by_key.get((fingerprint, node_view.held)) if counts else None
                found = found or by_key.get((fingerprint, node_view.state))
                if found is None:
                    found = self.verdict(node_view, until) or UNDECIDED
                else:
                    known[node_view] = found
            verdicts.append(found or UNDECIDED)
        return verdicts

    def verdict(self, node_view: NodeView, until: float = float("inf")) -> Verdict | None:
        """The verdict on a node view; None if there is no solver and it takes a search.

        Args:
            node_view: the view of a node.
            until: when to begin no more nodes, by the solver's clock.

        Raises:
            InvalidClaimError, SelectorError: the claims can be allocated nowhere.
        """
        known, solver = self.known, self.solver
        key = self.cache.key(node_view, self.numbers)
        found = known.by_key.get(key) or known.by_key.get((key[0], node_view.held)) or self._passing.get(key)
        if found is None:
            if solver is not None and solver.clock() > until:
                return TOO_LATE
            answer = self.cache.answer(node_view, key[0], self.node_index)
            found = self._searched(node_view, key) if answer is None else self._settled(answer, node_view, solver)
            if found is None or found is TOO_LATE:
                return found
            if found.lasting:
                known.by_key[self.cache.counted(node_view, key[0]) or key] = found
            else:
                self._passing[key] = found
        if found.lasting:
            known.by_node_view[node_view] = found
        return found

    def _searched(self, node_view: NodeView, key: tuple[Hashable, int]) -> Verdict | None:
        """The verdict on a node view that may take a search; as `verdict`."""
        solver, began = self.solver, 0.0
        if solver is not None:
            began = solver.clock()
            solver = solver.patient(sum(self.hard.values()))
        try:
            return self._settled(self.cache.settled(node_view, key, self.node_index, solver), node_view, solver)
        except SearchLimitError as error:
            return self._counted(stopped_by(error))
        except TimeoutError:
            return TOO_LATE
        finally:
            if solver is not None and (took := solver.clock() - began) > HARD_SECONDS:
                self.hard[node_view.node.name] = took

    def _settled(self, settled: Hashable, node_view: NodeView, solver: Solver | None) -> Verdict | None:
        """The verdict on a node view with what `SignatureCache.settled` has found."""
        by_key = self.known.by_key
        found = by_key.get(settled) or self._passing.get(settled)
        if found is None:
            found = self._new(settled, node_view, solver)
            if found is not None:
                (by_key if found.lasting else self._passing)[settled] = found
        return found

    def _new(self, settled: Hashable, node_view: NodeView, solver: Solver | None) -> Verdict | None:
        if isinstance(settled, Merit):
            self.steps += 1
            self.solved += 1
            return Verdict(settled)
        if isinstance(settled, NotFound):
            return self._counted(No(settled.reason))
        if solver is None:
            return None
        return self._counted(solver.judge(self.node_index.snapshot, node_view.node, self.claims))

    def _counted(self, answer: Allocation | No) -> Verdict:
        self.steps += answer.steps
        self.solved += 1
        self.stopped += answer.stopped
        if isinstance(answer, Allocation):
            return Verdict(answer.merit, lasting=not answer.stopped)
        return Verdict(reason=answer.reason, lasting=not answer.stopped)


@dataclass(frozen=True, slots=True)
class Decided:
    """The answer to one question.

    Attributes:
        verdicts: one for each node, in the order asked.
        steps: devices tried to find them.
        hard: the nodes that were hard to search, by name, each with the seconds that its search has taken.
    """

    verdicts: Verdicts
    steps: int = 0
    hard: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """The part of an answer that is known.

    Attributes:
        signature: of the claims.
        names: the nodes.
        sent: the nodes as they were sent, if they were.
        node_index: of the snapshot that the question is about.
        cache: what is known of the signature; None: nothing.
        verdicts: one for each node, in the order asked; `UNDECIDED` for those that are missing.
        missing: the positions of nodes that must be evaluated.
        steps: devices tried so far.
        weighing: adds losses to verdicts; None if the policy weighs nothing.
    """

    claims: tuple[Claim, ...]
    signature: Hashable
    policy: Policy
    names: Sequence[str]
    sent: Mapping[str, NodeObject] | None
    node_index: NodeIndex
    cache: SignatureCache | None
    verdicts: Verdicts
    missing: Sequence[int]
    steps: int = 0
    weighing: Weighing | None = None

    def weighed(self, verdicts: Sequence[Verdict]) -> Sequence[Verdict]:
        """The verdicts on the missing nodes, with the losses there; `TOO_LATE` if there was no time to find a loss."""
        if self.weighing is None:
            return verdicts
        names = [self.names[place] for place in self.missing]
        return self.weighing.of_each(verdicts, self.node_index.snapshot.cpu_left_on(names))


class Decider(View[NodeIndex]):
    """Decides claims on many nodes at once, and remembers the verdicts.

    Attributes:
        solver: decides what is not known.
        asked: nodes that were asked about so far.
        solved: those of them that were neither known nor equivalent to known ones.
        stopped: those of the solved ones whose search was stopped; the solver will be asked again.

    Args:
        timeline: of the cluster that is followed; None: not known what changes.
        signatures: number of signatures to remember, about; those not asked for lately are forgotten first.
        origin: follows a similar cluster; this decider begins with the node views that are the same there.
    """

    topics = frozenset({Topic.NODE, Topic.CPU, Topic.POOL, Topic.TAINT_RULE})
    bound = "a view of each node, and verdicts for the latest signatures"

    def __init__(
        self,
        solver: Solver,
        timeline: Timeline | None,
        *,
        signatures: int = 64,
        origin: Optional["Decider"] = None,
    ) -> None:
        super().__init__(timeline)
        self.solver = solver
        self._origin = origin
        self._builder: NodeViewBuilder = NodeViewBuilder(solver.features) if origin is None else origin._builder
        self._caches: Recent[SignatureCache] = Recent(signatures)
        self._fork: NodeIndex | None = None
        self.asked = self.solved = self.stopped = 0

    def follow(self, snapshot: Snapshot) -> None:
        """Move on to the present snapshot of the cluster, at the cost of what has changed since the last one.

        Args:
            snapshot: from the cluster's state; not a fork.
        """
        known = self._known
        if known is None or (known.value.snapshot is not snapshot and known.version <= snapshot.version):
            self.at(snapshot)

    def build(self, snapshot: Snapshot) -> NodeIndex:
        """The node views of a snapshot; those of the origin where they are the same."""
        return NodeIndex.of(snapshot, self._builder) if self._origin is None else self._origin._over(snapshot)

    def apply(self, value: NodeIndex, reach: Reach, snapshot: Snapshot) -> NodeIndex:
        """The node views of a later snapshot."""
        return value.moved(snapshot, reach)

    def follow_at_once(self, snapshot: Snapshot) -> bool:
        """Follow a snapshot if that takes no time to speak of; returns whether it does."""
        known = self._known
        if known is None:
            return False
        if known.value.snapshot is not snapshot and not self._since(known.version).is_within(MOST_NEW_NODES):
            return False
        self.follow(snapshot)
        return True

    def lookup(
        self,
        claims: Sequence[Claim],
        names: Sequence[str],
        world: Snapshot,
        *,
        sent: Mapping[str, NodeObject] | None = None,
        policy: Policy | None = None,
        weighing: Weighing | None = None,
    ) -> Lookup:
        """What is known of each node, if the claims are to be allocated there together.

        Takes about a millisecond at most: searches nothing, evaluates no selector, and examines few new nodes. Where
        losses are needed, they are looked up.

        Args:
            claims: without an allocation.
            names: the nodes.
            world: where to decide: the snapshot that is followed, or a fork.
            sent: the nodes as they were sent, if they count instead of those of the snapshot.
            policy: the policy of the pod; None: the policy of the decider.
            weighing: adds losses to verdicts.
        """
        policy = policy or self.solver.policy
        node_index = self._over(world)
        self.asked += len(names)
        signature, asked = signature_of(claims, node_index.snapshot.classes, policy), tuple(claims)
        cache = self._caches.find(signature)
        if cache is None or sent is not None:
            nothing = Verdicts((UNDECIDED,), bytes(len(names)))
            missing: Sequence[int] = range(len(names))
            return Lookup(asked, signature, policy, names, sent, node_index, cache, nothing, missing, weighing=weighing)
        inquiry = self._inquiry(asked, node_index, cache)
        verdicts = self._remembered(inquiry, names, None if weighing is None else weighing.weigher)
        missing = verdicts.places(UNDECIDED) if inquiry.undecided else ()
        self._note(inquiry)
        return Lookup(
            asked, signature, policy, names, sent, node_index, cache, verdicts, missing, inquiry.steps, weighing
        )

    def _remembered(self, inquiry: Inquiry, names: Sequence[str], weigher: Weigher | None) -> Verdicts:
        """The verdicts that are found without a search."""
        node_index, find = inquiry.node_index, inquiry.finding(weigher)
        followed = None if self._known is None else self._known.value
        verdicts = None
        if node_index is followed:
            verdicts = inquiry.known.index(weigher).look(names, node_index, find)
        elif followed is not None and node_index.below is followed and len(names) > _FEW_NODES:
            verdicts = self._as_below(inquiry, followed, names, weigher)
        return Verdicts.of(map(find, names)) if verdicts is None else verdicts

    @staticmethod
    def _as_below(inquiry: Inquiry, below: NodeIndex, names: Sequence[str], weigher: Weigher | None) -> Verdicts | None:
        """The verdicts on a fork, found as those on the cluster that is followed, but on nodes that differ.

        None: too many may differ, or another thread is using the index.
        """
        differing = inquiry.node_index.differing()
        if differing is None or 2 * len(differing) > len(names):
            return None
        there = replace(inquiry, node_index=below)
        verdicts = inquiry.known.index(weigher).look(names, below, there.finding(weigher))
        if verdicts is None:
            return None
        inquiry.take_over(there)
        find = inquiry.finding(weigher)
        places = [place for place, name in enumerate(names) if name in differing]
        return verdicts.with_verdicts(places, [find(names[place]) for place in places])

    def evaluate(self, lookup: Lookup, *, until: float = float("inf"), solver: Solver | None = None) -> Decided:
        """Find out what is missing in a lookup. May take long.

        Args:
            lookup: what is known.
            until: when to begin no more nodes, by the solver's clock.
            solver: the decider's with a deadline of the call, which ends every search, and with its patience.

        Raises:
            InvalidClaimError, SelectorError: the claims can be allocated nowhere. It is the error of the first node, in
                the order asked, that has one.
        """
        if not lookup.missing:
            return Decided(lookup.verdicts, lookup.steps)
        asked = solver or self.solver
        if asked.policy is not lookup.policy:
            asked = replace(asked, policy=lookup.policy)
        cache = lookup.cache or self._cache(lookup, asked)
        inquiry = self._inquiry(lookup.claims, lookup.node_index, cache, asked)
        verdicts = inquiry.verdicts(_node_views(lookup), until)
        self._note(inquiry)
        found = lookup.verdicts.with_verdicts(lookup.missing, lookup.weighed(verdicts))
        followed = None if self._known is None else self._known.value
        if lookup.sent is None and lookup.node_index is followed and len(lookup.missing) == len(lookup.names):
            weigher = None if lookup.weighing is None else lookup.weighing.weigher
            inquiry.known.index(weigher).fill(lookup.names, found, lookup.node_index)
        return Decided(found, lookup.steps + inquiry.steps, inquiry.hard)

    def _inquiry(
        self, claims: tuple[Claim, ...], node_index: NodeIndex, cache: SignatureCache, solver: Solver | None = None
    ) -> Inquiry:
        return Inquiry(claims, node_index, cache, cache.under(node_index.roaming), self._builder.numbers, solver)

    def _note(self, inquiry: Inquiry) -> None:
        inquiry.cache.trim(inquiry.node_index)
        self.solved += inquiry.solved
        self.stopped += inquiry.stopped

    def _over(self, world: Snapshot) -> NodeIndex:
        """The index of the followed snapshot or of a fork. That of the latest fork is kept for its next lookup."""
        known, fork = self._known, self._fork
        if known is None:
            return NodeIndex.of(world, self._builder)
        node_index = known.value
        if world is node_index.snapshot:
            return node_index
        if fork is None or fork.snapshot is not world or fork.below is not node_index:
            fork = node_index.forked(world)
            if fork is not node_index:
                self._fork = fork
        return fork

    def _cache(self, lookup: Lookup, solver: Solver) -> SignatureCache:
        """A cache for a signature that is new, if no other thread has made one."""
        found = self._caches.get(lookup.signature)
        if found is not None:
            return found
        claims, classes = lookup.claims, lookup.node_index.snapshot.classes
        reads = solver.reads(claims, classes)
        return self._caches.keep(
            lookup.signature, SignatureCache(reads, _single_of(claims, classes, reads, solver.policy), KnownRuns(reads))
        )


def _single_of(
    claims: tuple[Claim, ...], classes: Mapping[str, DeviceClass], reads: AttributeReads, policy: Policy
) -> Callable[[Solver, NodeView], Single | None] | None:
    if not is_single(claims):
        return None
    known = KnownFacts(policy.reads)

    def single_of(solver: Solver, seen: NodeView) -> Single | None:
        nonlocal known
        if known.is_full:
            known = KnownFacts(policy.reads)
        views = tuple([fingerprint.view for fingerprint in seen.pool_fingerprints])
        return solver.single(claims, classes, seen.node, views, reads, known)

    return single_of


def _node_views(lookup: Lookup) -> list[NodeView | None]:
    """The views of the nodes that are missing; None for a node that does not exist."""
    node_index, sent = lookup.node_index, lookup.sent
    names = [lookup.names[place] for place in lookup.missing]
    if sent is not None:
        return [_view_of_sent(node_index, sent[name]) for name in names]
    node_views = list(map(node_index.node_views.get, names))
    for place, node_view in enumerate(node_views):
        if node_view is None and (node := node_index.snapshot.nodes.get(names[place])) is not None:
            node_views[place] = node_index.node_view(node)
    return node_views


def _view_of_sent(node_index: NodeIndex, node: NodeObject) -> NodeView:
    known = node_index.snapshot.nodes.get(node.name)
    return node_index.node_view(known) if known is not None and known.node == node.node else node_index.look(node.node)
