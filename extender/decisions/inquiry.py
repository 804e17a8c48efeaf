"""Finding the verdicts of one question: of a node view that is equivalent to a known one, or from the solver."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from allocator import Allocation, Claim, Merit, NotFound, SearchLimitError
from extender.decisions.cache import KnownVerdicts, SignatureCache
from extender.decisions.node_index import NodeIndex
from extender.decisions.node_view import NodeView, Numbers
from extender.decisions.shapes import Weigher
from extender.decisions.solver import No, Solver, stopped_by
from extender.decisions.verdict import NOT_KNOWN, TOO_LATE, UNDECIDED, Verdict

MOST_NEW_NODES: Final = 32
"""New nodes that a lookup examines. That takes about a millisecond, if nothing is searched."""

MOST_NEW_DEVICES: Final = 1024
"""Devices of such nodes, in pools of their own. A node with more devices is examined by the solver, in a thread."""

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

    def known_of(self, name: str) -> Verdict:
        """The verdict on a node, without a search. `UNDECIDED` if it takes one, or if too many nodes are new."""
        node_view = self.node_index.known_view(name)
        found = None if node_view is None else self.known.by_node_view.get(node_view)
        if found is not None:
            return found
        node = self.node_index.snapshot.nodes.get(name)
        if node is None:
            return NOT_KNOWN
        self._examined += 1
        self._devices += self.node_index.snapshot.inventory.local_devices(name)
        if self._examined <= MOST_NEW_NODES and self._devices <= MOST_NEW_DEVICES:
            found = self.verdict(self.node_index.node_view(node))
        if found is None:
            self.undecided += 1
            return UNDECIDED
        return found

    def weighed(self, name: str, weigher: Weigher) -> Verdict:
        """As `known_of`, with the loss on the node.

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

    def verdict(self, node_view: NodeView, until: float = float("inf")) -> Verdict | None:
        """The verdict on a node view; None if there is no solver and it takes a search.

        Args:
            node_view: the view of a node.
            until: when to begin no more nodes, by the solver's clock.

        Raises:
            InvalidClaimError, SelectorError: the claims can be allocated nowhere.
        """
        known = self.known
        key = self.cache.key(node_view, self.numbers)
        found = known.by_key.get(key) or self._passing.get(key)
        if found is None:
            solver, began = self.solver, 0.0
            if solver is not None:
                began = solver.clock()
                if began > until:
                    return TOO_LATE
                solver = solver.patient(sum(self.hard.values()))
            try:
                settled = self.cache.settled(node_view, key, solver)
                known_now = known.by_key.get(settled) or self._passing.get(settled)
                found = known_now or self._new(settled, node_view, solver)
            except SearchLimitError as error:
                settled, found = key, self._counted(stopped_by(error))
            except TimeoutError:
                return TOO_LATE
            finally:
                if solver is not None and (took := solver.clock() - began) > HARD_SECONDS:
                    self.hard[node_view.node.name] = took
            if found is None:
                return None
            (known.by_key if found.lasting else self._passing).update({key: found, settled: found})
        if found.lasting:
            known.by_node_view[node_view] = found
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
