"""What is known of one signature: verdicts, and the keys that equivalent nodes have in common.

The signature of claims says what they ask for, without names. Claims with equal signatures get equal verdicts.

Several threads may add to it at once; see `extender.decisions.evaluate`.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from allocator import AttributeReads, Claim, DeviceClass, Policy, PoolUsage, Single, runs_of
from allocator.tools import Recent
from extender.decisions.node_view import NodeView, Numbers
from extender.decisions.shapes import Weigher
from extender.decisions.solver import Solver
from extender.decisions.verdict import Verdict
from extender.decisions.verdict_index import VerdictIndex


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
        by_key: by what equivalent node views have in common; see `SignatureCache.key` and `settled`.
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


@dataclass(slots=True, eq=False)
class SignatureCache:
    """What is known of one signature.

    Attributes:
        single_of: makes the `Single` of a node view; None unless the signature asks for one device and nothing else.
        keys: the key of each node view.
        singles: by fingerprint, what tells the answer without a search; None if nothing does.
        runs: by fingerprint, which devices are interchangeable.
        known: the verdicts.
    """

    reads: AttributeReads
    single_of: Callable[[Solver, NodeView], Single | None] | None
    keys: dict[NodeView, tuple[Hashable, int]] = field(default_factory=dict)
    singles: dict[Hashable, Single | None] = field(default_factory=dict)
    runs: dict[Hashable, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    known: KnownVerdicts = field(default_factory=lambda: KnownVerdicts(()))

    def under(self, roaming: tuple[PoolUsage, ...]) -> KnownVerdicts:
        """The verdicts while this much of the roaming pools is in use."""
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
        """Equal for node views that differ only in which of several identical devices are in use.

        A `Merit` or `NotFound` if a node's answer is known without a search. None if selectors would have to be
        evaluated and there is no solver.

        Args:
            node_view: the view of a node.
            key: the key of the node view.
            solver: evaluates selectors.

        Raises:
            InvalidClaimError, SearchLimitError, TimeoutError: as `Solver.single`.
        """
        if self.reads.in_order:
            return key
        fingerprint = key[0]
        if self.single_of is not None and None not in node_view.used:
            singles = self.singles
            if fingerprint not in singles:
                if solver is None:
                    return None
                singles[fingerprint] = self.single_of(solver, node_view)
            single = singles[fingerprint]
            answer = None if single is None else single.answer(node_view.states)
            if answer is not None:
                return answer
        return self._with_runs(node_view, fingerprint)

    def _with_runs(self, node_view: NodeView, fingerprint: Hashable) -> Hashable:
        runs = self.runs.get(fingerprint)
        if runs is None:
            runs = self.runs[fingerprint] = runs_of(
                [pool_fingerprint.view for pool_fingerprint in node_view.pool_fingerprints], self.reads
            )
        return fingerprint, node_view.interchangeable(runs)

    def trim(self, nodes: int) -> None:
        """Forget everything if most of it is about node views that no node has any more."""
        if max(len(self.keys), len(self.known.by_node_view), len(self.known.by_key)) > 4 * nodes + 1000:
            self.keys, self.singles, self.runs, self.known = {}, {}, {}, KnownVerdicts(self.known.roaming)
