"""Verdicts on nodes: kept for as long as they hold, and passed from one claim to others of its shape.

A verdict depends on the shape of the claims, on the node's outlook, and on what is held of roaming pools. Outlooks are
replaced when something changes for their nodes, so a verdict that is kept by its outlook never needs to be dropped.
Between nodes that are alike to a shape, a verdict is passed on.

Calls may come from several threads. What is shared is only ever added to, with values that every thread would make
alike, or replaced as a whole in one assignment: at worst, work is done twice.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeGuard

from allocator.cel.selectors import Recent
from allocator.equivalence.single_device import Found, NotFound, Single, is_single
from allocator.errors import SearchLimitError
from allocator.model import Claim
from allocator.outcome import Allocation
from extender.decisions.cache import Known, Memory
from extender.decisions.index import Page
from extender.decisions.node_view import Numbers, Outlook, Surveyor
from extender.decisions.node_views import Terrain
from extender.decisions.signature import shape_of
from extender.decisions.solver import No, Solver, stopped_by
from extender.decisions.verdict import NOT_KNOWN, TOO_LATE, NotAtHandError, Verdict, Verdicts
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
        shapes: how many shapes to remember, about; those asked for longest ago are forgotten first.
    """

    def __init__(
        self, solver: Solver, changes_since: Callable[[int], Sequence[Change] | None], *, shapes: int = 64
    ) -> None:
        self.solver = solver
        self._changes_since = changes_since
        self._surveyor = Surveyor(solver.features)
        self._memories: Recent[Memory] = Recent(shapes)
        self._terrain: Terrain | None = None
        self.asked = self.solved = self.stopped = 0

    def follow(self, snapshot: Snapshot) -> None:
        """The cluster as it is now: decisions there cost what has changed since the last time.

        Args:
            snapshot: as the cluster's state gave it out; no fork.
        """
        terrain = self._terrain
        if terrain is None:
            self._terrain = Terrain.of(snapshot, self._surveyor)
        elif terrain.snapshot is not snapshot and terrain.snapshot.version <= snapshot.version:
            self._terrain = terrain.moved(snapshot, self._changes_since(terrain.snapshot.version))

    def is_near(self, snapshot: Snapshot) -> bool:
        """Whether little has changed up to a snapshot, so that to follow it is soon done."""
        terrain = self._terrain
        if terrain is None:
            return False
        changes = self._changes_since(terrain.snapshot.version)
        return terrain.snapshot is snapshot or (changes is not None and len(changes) <= AT_HAND)

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
        terrain = self._over(world)
        outlooks = _outlooks(terrain, names, sent)
        memory = self._memory(claims, terrain.snapshot, asked)
        known = memory.under(terrain.roaming)
        verdicts = list(map(known.by_outlook.get, outlooks))
        if _is_complete(verdicts):
            self.asked += len(verdicts)
            return Decided(Verdicts.of(verdicts), 0)
        unknown = [index for index, verdict in enumerate(verdicts) if verdict is None]
        inquiry = _Inquiry(asked, tuple(claims), terrain.snapshot, memory, known, self._surveyor.numbers)
        for index in unknown:
            outlook = outlooks[index]
            verdicts[index] = NOT_KNOWN if outlook is None else inquiry.verdict(outlook, until)
        memory.trim(len(terrain.snapshot.nodes))
        self.asked += len(verdicts)
        self.solved += inquiry.solved
        self.stopped += inquiry.stopped
        return Decided(Verdicts.of([verdict for verdict in verdicts if verdict is not None]), inquiry.steps)

    def glance(self, claims: Sequence[Claim], names: Sequence[str], world: Snapshot) -> Decided:
        """The same, if that takes no more than about a millisecond; to be asked from one thread.

        Raises:
            NotAtHandError: it takes more.
        """
        terrain = self._over(world)
        memory = self._recalled(shape_of(claims, terrain.snapshot.classes))
        if memory is None:
            raise NotAtHandError
        known = memory.under(terrain.roaming)
        inquiry = _Inquiry(None, tuple(claims), terrain.snapshot, memory, known, self._surveyor.numbers)
        page = known.page if terrain is self._terrain else Page()
        verdicts = page.look(names, terrain, _Glance(terrain, inquiry).verdict)
        memory.trim(len(terrain.snapshot.nodes))
        self.asked += len(verdicts)
        return Decided(verdicts, 0)

    def _over(self, world: Snapshot) -> Terrain:
        terrain = self._terrain
        return Terrain.of(world, self._surveyor) if terrain is None else terrain.forked(world)

    def _recalled(self, shape: Hashable) -> Memory | None:
        return self._memories.get(shape) or self._memories.recall(shape)

    def _memory(self, claims: Sequence[Claim], snapshot: Snapshot, solver: Solver) -> Memory:
        shape = shape_of(claims, snapshot.classes)
        memory = self._recalled(shape)
        if memory is None:
            memory = Memory(solver.lens(claims, snapshot.classes), _single_of(claims, snapshot))
            self._memories.keep(shape, memory)
        return memory


@dataclass(slots=True, eq=False)
class _Inquiry:
    """Finding out what is not known, for one question.

    Attributes:
        solver: None: there is no time for searching.
    """

    solver: Solver | None
    claims: tuple[Claim, ...]
    snapshot: Snapshot
    memory: Memory
    known: Known
    numbers: Numbers
    steps: int = 0
    solved: int = 0
    stopped: int = 0
    _passing: dict[Hashable, Verdict] = field(default_factory=dict)

    def verdict(self, outlook: Outlook, until: float) -> Verdict:
        """The verdict on an outlook: that of one that is alike, or a new one."""
        key = self.memory.key(outlook, self.numbers)
        found = self.known.by_key.get(key) or self._passing.get(key)
        if found is None:
            found = self._by_likeness(outlook, key, until)
        if found.lasting:
            self.known.by_outlook[outlook] = found
        return found

    def _by_likeness(self, outlook: Outlook, key: tuple[Hashable, int], until: float) -> Verdict:
        if self.solver is not None and self.solver.clock() > until:
            return TOO_LATE
        try:
            settled = self.memory.settled(outlook, key, self.solver)
            found = self.known.by_key.get(settled) or self._passing.get(settled) or self._found_out(settled, outlook)
        except SearchLimitError as error:
            settled, found = key, self._new(stopped_by(error))
        except TimeoutError:
            return TOO_LATE
        (self.known.by_key if found.lasting else self._passing).update({key: found, settled: found})
        return found

    def _found_out(self, settled: Hashable, outlook: Outlook) -> Verdict:
        if self.solver is None:
            raise NotAtHandError
        if isinstance(settled, Found):
            self.steps += 1
            self.solved += 1
            return Verdict(settled.merit)
        if isinstance(settled, NotFound):
            return self._new(No(settled.reason))
        return self._new(self.solver.judge(self.snapshot, outlook.node, self.claims))

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

    terrain: Terrain
    inquiry: _Inquiry
    looked: int = 0

    def verdict(self, name: str) -> Verdict:
        """What becomes of a node."""
        outlook = self.terrain.outlooks.get(name)
        found = None if outlook is None else self.inquiry.known.by_outlook.get(outlook)
        if found is not None:
            return found
        self.looked += 1
        if self.looked > AT_HAND:
            raise NotAtHandError
        node = self.terrain.snapshot.nodes.get(name)
        return NOT_KNOWN if node is None else self.inquiry.verdict(self.terrain.outlook(node), float("inf"))


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


def _single_of(claims: Sequence[Claim], snapshot: Snapshot) -> Callable[[Solver, Outlook], Single | None] | None:
    if not is_single(claims):
        return None
    asked, classes = tuple(claims), snapshot.classes
    return lambda solver, seen: solver.single(asked, classes, seen.node, tuple([g.view for g in seen.grounds]))


def _is_complete(verdicts: list[Verdict | None]) -> TypeGuard[list[Verdict]]:
    return all(verdicts)


def _outlooks(terrain: Terrain, names: Sequence[str], sent: Mapping[str, NodeObject] | None) -> list[Outlook | None]:
    """What each node sees; None where it is not known."""
    nodes = terrain.snapshot.nodes
    if sent is not None:
        return [_seen(terrain, sent[name]) for name in names]
    outlooks = list(map(terrain.outlooks.get, names))
    if not all(outlooks):
        for index in [i for i, outlook in enumerate(outlooks) if outlook is None]:
            node = nodes.get(names[index])
            outlooks[index] = None if node is None else terrain.outlook(node)
    return outlooks


def _seen(terrain: Terrain, node: NodeObject) -> Outlook:
    known = terrain.snapshot.nodes.get(node.name)
    return terrain.outlook(known) if known is not None and known.node == node.node else terrain.look(node.node)
