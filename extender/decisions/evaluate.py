"""Verdicts on nodes, shared by all claims of one signature: `lookup` finds known ones, `evaluate` makes the others.

A verdict depends on the signature of the claims, on the view of the node, and on what of the roaming pools is in use.
A node gets another view when something changes for it, so a verdict that is kept by node view is never stale. Nodes
that are equivalent for a signature share a verdict.

`Decider.lookup` says what is known and what is missing; `Decider.evaluate` finds out what is missing.

Calls may come from several threads. Threads only add values, which every thread would make alike, or replace something
as a whole in one assignment: at worst, work is done twice. Only a `VerdictIndex` has a lock; no thread waits for it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Optional

from allocator import Claim, DeviceClass, Policy, Single, is_single
from allocator.tools import Recent
from extender.cluster.change_log import Change
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.snapshot import Snapshot
from extender.decisions.cache import SignatureCache, signature_of
from extender.decisions.inquiry import MOST_NEW_NODES, Inquiry
from extender.decisions.node_index import NodeIndex
from extender.decisions.node_view import NodeView, NodeViewBuilder
from extender.decisions.shapes import Weigher, Weighing
from extender.decisions.solver import Solver
from extender.decisions.verdict import NOT_KNOWN, UNDECIDED, Verdict, Verdicts


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
    """What is known of the answer to a question.

    Attributes:
        names: the nodes.
        sent: the nodes as they were sent, if they were.
        node_index: of the snapshot that the question is about.
        cache: what is known of the signature of the claims; None: nothing.
        verdicts: one for each node, in the order asked; `UNDECIDED` for those that are missing.
        missing: the positions of nodes that must be evaluated.
        steps: devices tried so far.
        weighing: adds losses to verdicts; None if the policy weighs nothing.
    """

    claims: tuple[Claim, ...]
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
        left, names = self.node_index.snapshot.cpu_left, [self.names[place] for place in self.missing]
        return [self.weighing.of(verdict, left(name)) for name, verdict in zip(names, verdicts, strict=True)]


class Decider:
    """Decides claims on many nodes at once, and remembers the verdicts.

    Attributes:
        solver: decides what is not known.
        asked: nodes that were asked about so far.
        solved: those of them that were neither known nor equivalent to known ones.
        stopped: those of the solved ones whose search was stopped; the solver will be asked again.

    Args:
        changes_since: the changes of the followed cluster since a version; None if they are not kept that far back.
        signatures: number of signatures to remember, about; those not asked for lately are forgotten first.
        origin: follows a similar cluster; this decider begins with the node views that are the same there.
    """

    def __init__(
        self,
        solver: Solver,
        changes_since: Callable[[int], Sequence[Change] | None],
        *,
        signatures: int = 64,
        origin: Optional["Decider"] = None,
    ) -> None:
        self.solver = solver
        self._changes_since = changes_since
        self._origin = origin
        self._builder: NodeViewBuilder = NodeViewBuilder(solver.features) if origin is None else origin._builder
        self._caches: Recent[SignatureCache] = Recent(signatures)
        self._node_index: NodeIndex | None = None
        self.asked = self.solved = self.stopped = 0

    def follow(self, snapshot: Snapshot) -> None:
        """Move on to the present snapshot of the cluster, at the cost of what has changed since the last one.

        Args:
            snapshot: from the cluster's state; not a fork.
        """
        node_index = self._node_index
        if node_index is None:
            self._node_index = (self._origin or self)._over(snapshot)
        elif node_index.snapshot is not snapshot and node_index.snapshot.version <= snapshot.version:
            self._node_index = node_index.moved(snapshot, self._changes_since(node_index.snapshot.version))

    def is_near(self, snapshot: Snapshot) -> bool:
        """Whether so little has changed up to a snapshot that `follow` takes no time to speak of."""
        node_index = self._node_index
        if node_index is None:
            return False
        changes = self._changes_since(node_index.snapshot.version)
        return node_index.snapshot is snapshot or (changes is not None and len(changes) <= MOST_NEW_NODES)

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
        cache, asked = self._caches.find(signature_of(claims, node_index.snapshot.classes, policy)), tuple(claims)
        if cache is None or sent is not None:
            nothing = Verdicts((UNDECIDED,), bytes(len(names)))
            missing: Sequence[int] = range(len(names))
            return Lookup(asked, policy, names, sent, node_index, cache, nothing, missing, weighing=weighing)
        inquiry = self._inquiry(asked, node_index, cache)
        verdicts = self._remembered(inquiry, names, None if weighing is None else weighing.weigher)
        missing = verdicts.places(UNDECIDED) if inquiry.undecided else ()
        self._note(inquiry)
        return Lookup(asked, policy, names, sent, node_index, cache, verdicts, missing, inquiry.steps, weighing)

    def _remembered(self, inquiry: Inquiry, names: Sequence[str], weigher: Weigher | None) -> Verdicts:
        """The verdicts that are found without a search."""
        node_index = inquiry.node_index
        find = inquiry.known_of if weigher is None else partial(inquiry.weighed, weigher=weigher)
        verdicts = None
        if node_index is self._node_index:
            verdicts = inquiry.known.index(weigher).look(names, node_index, find)
        return Verdicts.of(map(find, names)) if verdicts is None else verdicts

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
        asked = replace(solver or self.solver, policy=lookup.policy)
        cache = lookup.cache or self._cache(lookup, asked)
        inquiry = self._inquiry(lookup.claims, lookup.node_index, cache, asked)
        known = inquiry.known.by_node_view
        verdicts = [
            NOT_KNOWN if node_view is None else known.get(node_view) or inquiry.verdict(node_view, until) or UNDECIDED
            for node_view in _node_views(lookup)
        ]
        self._note(inquiry)
        found = lookup.verdicts.with_verdicts(lookup.missing, lookup.weighed(verdicts))
        return Decided(found, lookup.steps + inquiry.steps, inquiry.hard)

    def _inquiry(
        self, claims: tuple[Claim, ...], node_index: NodeIndex, cache: SignatureCache, solver: Solver | None = None
    ) -> Inquiry:
        return Inquiry(claims, node_index, cache, cache.under(node_index.roaming), self._builder.numbers, solver)

    def _note(self, inquiry: Inquiry) -> None:
        inquiry.cache.trim(len(inquiry.node_index.snapshot.nodes))
        self.solved += inquiry.solved
        self.stopped += inquiry.stopped

    def _over(self, world: Snapshot) -> NodeIndex:
        node_index = self._node_index
        return NodeIndex.of(world, self._builder) if node_index is None else node_index.forked(world)

    def _cache(self, lookup: Lookup, solver: Solver) -> SignatureCache:
        """A cache for a signature that is new, if no other thread has made one."""
        claims, classes = lookup.claims, lookup.node_index.snapshot.classes
        signature = signature_of(claims, classes, solver.policy)
        found = self._caches.find(signature)
        return found or self._caches.keep(
            signature, SignatureCache(solver.reads(claims, classes), _single_of(claims, classes))
        )


def _single_of(
    claims: tuple[Claim, ...], classes: Mapping[str, DeviceClass]
) -> Callable[[Solver, NodeView], Single | None] | None:
    if not is_single(claims):
        return None
    return lambda solver, seen: solver.single(
        claims, classes, seen.node, tuple([fingerprint.view for fingerprint in seen.pool_fingerprints])
    )


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
