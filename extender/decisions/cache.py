"""What is known of one signature: verdicts, and what nodes have in common that get the same.

Several threads may add to it at once; see `extender.decisions.evaluate`.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from allocator import AttributeReads, Found, NotFound, PoolUsage, Single, runs_of
from extender.decisions.node_view import NodeView, Numbers
from extender.decisions.solver import Solver
from extender.decisions.verdict import NotAtHandError, Verdict
from extender.decisions.verdict_index import VerdictIndex


@dataclass(frozen=True, slots=True, eq=False)
class KnownVerdicts:
    """Verdicts under one usage of the roaming pools, by node view and by what node views have in common.

    Attributes:
        page: by the names of the followed cluster's nodes, for questions that are to be answered at once.
    """

    roaming: tuple[PoolUsage, ...]
    by_node_view: dict[NodeView | None, Verdict] = field(default_factory=dict)
    by_key: dict[Hashable, Verdict] = field(default_factory=dict)
    verdict_index: VerdictIndex = field(default_factory=VerdictIndex)


@dataclass(slots=True, eq=False)
class SignatureCache:
    """What is known of one signature.

    Attributes:
        single_of: where the signature is one device and nothing else.
        singles: by fingerprint, what tells the answer without a search.
        runs: by fingerprint, which devices may stand for each other.
    """

    reads: AttributeReads
    single_of: Callable[[Solver, NodeView], Single | None] | None
    keys: dict[NodeView, tuple[Hashable, int]] = field(default_factory=dict)
    singles: dict[Hashable, Single | None] = field(default_factory=dict)
    runs: dict[Hashable, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    known: KnownVerdicts = field(default_factory=lambda: KnownVerdicts(()))

    def under(self, roaming: tuple[PoolUsage, ...]) -> KnownVerdicts:
        """The verdicts under a usage of the roaming pools."""
        known = self.known
        if known.roaming is not roaming:
            known = self.known = KnownVerdicts(roaming)
        return known

    def key(self, node_view: NodeView, numbers: Numbers) -> tuple[Hashable, int]:
        """Fingerprint and state: equal for node views that are equivalent to the signature."""
        found = self.keys.get(node_view)
        if found is None:
            found = self.keys[node_view] = (node_view.fingerprint(self.reads, numbers), node_view.state)
        return found

    def settled(self, node_view: NodeView, key: tuple[Hashable, int], solver: Solver | None) -> Hashable:
        """Equal for node views that differ only in which of several identical devices are held.

        Where the answer can be told without a search, it is that.

        Args:
            node_view: of a node.
            key: the node view's.
            solver: finds out what tells the answer; None: there is no time for that.

        Raises:
            InvalidClaimError, SearchLimitError, TimeoutError: as `Solver.single`.
            NotAtHandError: there is no time for that.
        """
        if self.reads.in_order:
            return key
        answer = self._told(node_view, key[0], solver)
        return self._with_runs(node_view, key[0]) if answer is None else answer

    def _told(self, node_view: NodeView, fingerprint: Hashable, solver: Solver | None) -> Found | NotFound | None:
        if self.single_of is None or None in node_view.used:
            return None
        singles = self.singles
        if fingerprint not in singles:
            if solver is None:
                # Selectors would be evaluated on the devices.
                raise NotAtHandError
            singles[fingerprint] = self.single_of(solver, node_view)
        single = singles[fingerprint]
        return None if single is None else single.answer(node_view.states)

    def _with_runs(self, node_view: NodeView, fingerprint: Hashable) -> Hashable:
        runs = self.runs.get(fingerprint)
        if runs is None:
            runs = self.runs[fingerprint] = runs_of(
                [pool_fingerprint.view for pool_fingerprint in node_view.pool_fingerprints], self.reads
            )
        return fingerprint, node_view.interchangeable(runs)

    def trim(self, nodes: int) -> None:
        """Forget all when most of it is about node views that are no more."""
        if max(len(self.keys), len(self.known.by_node_view), len(self.known.by_key)) > 4 * nodes + 1000:
            self.keys, self.singles, self.runs, self.known = {}, {}, {}, KnownVerdicts(self.known.roaming)
