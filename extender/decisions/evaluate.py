"""Verdicts on nodes: kept for as long as they hold, and passed from one claim to others of its signature.

A verdict depends on the signature of the claims, on the view of the node, and on what is held of roaming pools. A node
gets another view when something changes for it, so a verdict that is kept by its node view never needs to be dropped.
Nodes that are equivalent to a signature share a verdict.

Calls may come from several threads. What is shared is only ever added to, with values that every thread would make
alike, or replaced as a whole in one assignment: at worst, work is done twice.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeGuard

from allocator import Allocation, Claim, Found, NotFound, Recent, SearchLimitError, Single, is_single
from extender.decisions.cache import KnownVerdicts, SignatureCache
from extender.decisions.node_index import NodeIndex
from extender.decisions.node_view import NodeView, NodeViewBuilder, Numbers
from extender.decisions.signature import signature_of
from extender.decisions.solver import No, Solver, stopped_by
from extender.decisions.verdict import NOT_KNOWN, TOO_LATE, NotAtHandError, Verdict, Verdicts
from extender.decisions.verdict_index import VerdictIndex
from extender.state.changes import Change
from extender.state.objects import NodeObject
from extender.state.snapshot import Snapshot

AT_HAND: Final = 32
"""Nodes that are looked at in about a millisecond, if nothing is searched."""


@dataclass(frozen=True, slots=True)
class Decided:
    """The answer to one question.

    Attributes:
        verdicts: one per node, in the order asked.
        steps: devices tried to find out what was not known.
    """

    verdicts: Verdicts
    steps: int


class Decider:
    """Decides claims on many nodes at once, and remembers what it decided.

    Attributes:
        solver: what is not known is asked of it.
        asked: nodes that were decided so far.
        solved: those of them that were neither known nor like others.
        stopped: those of these whose search was stopped, so that the solver will be asked again.

    Args:
        changes_since: the log of the cluster that is followed; None: not kept that far back.
        signatures: how many signatures to remember, about; those asked for longest ago are forgotten first.
    """

    def __init__(
        self, solver: Solver, changes_since: Callable[[int], Sequence[Change] | None], *, signatures: int = 64
    ) -> None:
        self.solver = solver
        self._changes_since = changes_since
        self._builder = NodeViewBuilder(solver.features)
        self._caches: Recent[SignatureCache] = Recent(signatures)
        self._node_index: NodeIndex | None = None
        self.asked = self.solved = self.stopped = 0

    def follow(self, snapshot: Snapshot) -> None:
        """The cluster as it is now: decisions there cost what has changed since the last time.

        Args:
            snapshot: as the cluster's state gave it out; no fork.
        """
        node_index = self._node_index
        if node_index is None:
            self._node_index = NodeIndex.of(snapshot, self._builder)
        elif node_index.snapshot is not snapshot and node_index.snapshot.version <= snapshot.version:
            self._node_index = node_index.moved(snapshot, self._changes_since(node_index.snapshot.version))

    def is_near(self, snapshot: Snapshot) -> bool:
        """Whether little has changed up to a snapshot, so that to follow it is soon done."""
        node_index = self._node_index
        if node_index is None:
            return False
        changes = self._changes_since(node_index.snapshot.version)
        return node_index.snapshot is snapshot or (changes is not None and len(changes) <= AT_HAND)

    def decide(
        self,
        claims: Sequence[Claim],
        names: Sequence[str],
        world: Snapshot,
        *,
        sent: Mapping[str, NodeObject] | None = None,
        until: float = float("inf"),
        solver: Solver | None = None,
    ) -> Decided:
        """What becomes of each node, if the claims are to be allocated there together.

        Args:
            claims: without an allocation.
            names: the nodes.
            world: where to decide: the cluster that is followed, or whatever it might be like.
            sent: the nodes as they are to be seen, if not as the snapshot has them.
            until: when to begin no more nodes, by the solver's clock.
            solver: the decider's, if not with its own time for the call: then no search goes on beyond that.

        Raises:
            InvalidClaimError, SelectorError: of the first node, in the order asked, of which this is not known to be
                no problem. The claims can be allocated nowhere.
        """
        asked = solver or self.solver
        node_index = self._over(world)
        node_views = _node_views(node_index, names, sent)
        cache = self._cache(claims, node_index.snapshot, asked)
        known = cache.under(node_index.roaming)
        verdicts = list(map(known.by_node_view.get, node_views))
        if _is_complete(verdicts):
            self.asked += len(verdicts)
            return Decided(Verdicts.of(verdicts), 0)
        unknown = [index for index, verdict in enumerate(verdicts) if verdict is None]
        inquiry = _Inquiry(asked, tuple(claims), node_index.snapshot, cache, known, self._builder.numbers)
        for index in unknown:
            node_view = node_views[index]
            verdicts[index] = NOT_KNOWN if node_view is None else inquiry.verdict(node_view, until)
        cache.trim(len(node_index.snapshot.nodes))
        self.asked += len(verdicts)
        self.solved += inquiry.solved
        self.stopped += inquiry.stopped
        return Decided(Verdicts.of([verdict for verdict in verdicts if verdict is not None]), inquiry.steps)

    def glance(self, claims: Sequence[Claim], names: Sequence[str], world: Snapshot) -> Decided:
        """The same, if that takes no more than about a millisecond; to be asked from one thread.

        Raises:
            NotAtHandError: it takes more.
        """
        node_index = self._over(world)
        cache = self._recalled(signature_of(claims, node_index.snapshot.classes))
        if cache is None:
            raise NotAtHandError
        known = cache.under(node_index.roaming)
        inquiry = _Inquiry(None, tuple(claims), node_index.snapshot, cache, known, self._builder.numbers)
        verdict_index = known.verdict_index if node_index is self._node_index else VerdictIndex()
        verdicts = verdict_index.look(names, node_index, _Glance(node_index, inquiry).verdict)
        cache.trim(len(node_index.snapshot.nodes))
        self.asked += len(verdicts)
        return Decided(verdicts, 0)

    def _over(self, world: Snapshot) -> NodeIndex:
        node_index = self._node_index
        return NodeIndex.of(world, self._builder) if node_index is None else node_index.forked(world)

    def _recalled(self, signature: Hashable) -> SignatureCache | None:
        return self._caches.get(signature) or self._caches.recall(signature)

    def _cache(self, claims: Sequence[Claim], snapshot: Snapshot, solver: Solver) -> SignatureCache:
        signature = signature_of(claims, snapshot.classes)
        cache = self._recalled(signature)
        if cache is None:
            cache = SignatureCache(solver.reads(claims, snapshot.classes), _single_of(claims, snapshot))
            self._caches.keep(signature, cache)
        return cache


@dataclass(slots=True, eq=False)
class _Inquiry:
    """Finding out what is not known, for one question.

    Attributes:
        solver: None: there is no time for searching.
    """

    solver: Solver | None
    claims: tuple[Claim, ...]
    snapshot: Snapshot
    cache: SignatureCache
    known: KnownVerdicts
    numbers: Numbers
    steps: int = 0
    solved: int = 0
    stopped: int = 0
    _passing: dict[Hashable, Verdict] = field(default_factory=dict)

    def verdict(self, node_view: NodeView, until: float) -> Verdict:
        """The verdict on an node view: that of one that is alike, or a new one."""
        key = self.cache.key(node_view, self.numbers)
        found = self.known.by_key.get(key) or self._passing.get(key)
        if found is None:
            found = self._by_likeness(node_view, key, until)
        if found.lasting:
            self.known.by_node_view[node_view] = found
        return found

    def _by_likeness(self, node_view: NodeView, key: tuple[Hashable, int], until: float) -> Verdict:
        if self.solver is not None and self.solver.clock() > until:
            return TOO_LATE
        try:
            settled = self.cache.settled(node_view, key, self.solver)
            found = self.known.by_key.get(settled) or self._passing.get(settled) or self._found_out(settled, node_view)
        except SearchLimitError as error:
            settled, found = key, self._new(stopped_by(error))
        except TimeoutError:
            return TOO_LATE
        (self.known.by_key if found.lasting else self._passing).update({key: found, settled: found})
        return found

    def _found_out(self, settled: Hashable, node_view: NodeView) -> Verdict:
        if self.solver is None:
            raise NotAtHandError
        if isinstance(settled, Found):
            self.steps += 1
            self.solved += 1
            return Verdict(settled.merit)
        if isinstance(settled, NotFound):
            return self._new(No(settled.reason))
        return self._new(self.solver.judge(self.snapshot, node_view.node, self.claims))

    def _new(self, answer: Allocation | No) -> Verdict:
        self.steps += answer.steps
        self.solved += 1
        if isinstance(answer, Allocation):
            return Verdict(answer.merit)
        self.stopped += answer.stopped
        return Verdict(reason=answer.reason, lasting=not answer.stopped)


@dataclass(slots=True, eq=False)
class _Glance:
    """A look at single nodes, of which few may be new.

    Attributes:
        looked: new ones so far.
    """

    node_index: NodeIndex
    inquiry: _Inquiry
    looked: int = 0

    def verdict(self, name: str) -> Verdict:
        """What becomes of a node."""
        node_view = self.node_index.node_views.get(name)
        found = None if node_view is None else self.inquiry.known.by_node_view.get(node_view)
        if found is not None:
            return found
        self.looked += 1
        if self.looked > AT_HAND:
            raise NotAtHandError
        node = self.node_index.snapshot.nodes.get(name)
        return NOT_KNOWN if node is None else self.inquiry.verdict(self.node_index.node_view(node), float("inf"))


@dataclass(frozen=True, slots=True)
class AtHand:
    """A decider that answers at once, or not at all; for one thread."""

    decider: Decider

    def decide(
        self,
        claims: Sequence[Claim],
        names: Sequence[str],
        world: Snapshot,
        *,
        sent: Mapping[str, NodeObject] | None = None,
        until: float = float("inf"),
        solver: Solver | None = None,
    ) -> Decided:
        """As `Decider.decide`.

        Raises:
            NotAtHandError: it would take a search, or a look at many nodes.
        """
        del until, solver
        if sent is not None:
            raise NotAtHandError
        return self.decider.glance(claims, names, world)


def _single_of(claims: Sequence[Claim], snapshot: Snapshot) -> Callable[[Solver, NodeView], Single | None] | None:
    if not is_single(claims):
        return None
    asked, classes = tuple(claims), snapshot.classes
    return lambda solver, seen: solver.single(
        asked, classes, seen.node, tuple([g.view for g in seen.pool_fingerprints])
    )


def _is_complete(verdicts: list[Verdict | None]) -> TypeGuard[list[Verdict]]:
    return all(verdicts)


def _node_views(
    node_index: NodeIndex, names: Sequence[str], sent: Mapping[str, NodeObject] | None
) -> list[NodeView | None]:
    """What each node sees; None where it is not known."""
    nodes = node_index.snapshot.nodes
    if sent is not None:
        return [_seen(node_index, sent[name]) for name in names]
    node_views = list(map(node_index.node_views.get, names))
    if not all(node_views):
        for index in [i for i, node_view in enumerate(node_views) if node_view is None]:
            node = nodes.get(names[index])
            node_views[index] = None if node is None else node_index.node_view(node)
    return node_views


def _seen(node_index: NodeIndex, node: NodeObject) -> NodeView:
    known = node_index.snapshot.nodes.get(node.name)
    return node_index.node_view(known) if known is not None and known.node == node.node else node_index.look(node.node)
