"""What is known of one shape: verdicts, and what nodes have in common that get the same.

Several threads may add to it at once; see `extender.decisions.evaluate`.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from allocator.equivalence.fingerprint import AttributeReads, runs_of
from allocator.equivalence.single_device import Found, NotFound, Single
from allocator.usage import PoolUsage
from extender.decisions.index import Page
from extender.decisions.node_view import Numbers, Outlook
from extender.decisions.solver import Solver
from extender.decisions.verdict import NotAtHandError, Verdict


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Verdicts under one usage of the roaming pools, by outlook and by what outlooks have in common.

    Attributes:
        page: by the names of the followed cluster's nodes, for questions that are to be answered at once.
    """

    roaming: tuple[PoolUsage, ...]
    by_outlook: dict[Outlook | None, Verdict] = field(default_factory=dict)
    by_key: dict[Hashable, Verdict] = field(default_factory=dict)
    page: Page = field(default_factory=Page)


@dataclass(slots=True, eq=False)
class Memory:
    """What is known of one shape.

    Attributes:
        single_of: where the shape is one device and nothing else.
        singles: by picture, what tells the answer without a search.
        runs: by picture, which devices may stand for each other.
    """

    lens: AttributeReads
    single_of: Callable[[Solver, Outlook], Single | None] | None
    keys: dict[Outlook, tuple[Hashable, int]] = field(default_factory=dict)
    singles: dict[Hashable, Single | None] = field(default_factory=dict)
    runs: dict[Hashable, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    known: Known = field(default_factory=lambda: Known(()))

    def under(self, roaming: tuple[PoolUsage, ...]) -> Known:
        """The verdicts under a usage of the roaming pools."""
        known = self.known
        if known.roaming is not roaming:
            known = self.known = Known(roaming)
        return known

    def key(self, outlook: Outlook, numbers: Numbers) -> tuple[Hashable, int]:
        """The same for outlooks that are alike to the shape: picture and state."""
        found = self.keys.get(outlook)
        if found is None:
            found = self.keys[outlook] = (outlook.picture(self.lens, numbers), outlook.state)
        return found

    def settled(self, outlook: Outlook, key: tuple[Hashable, int], solver: Solver | None) -> Hashable:
        """The same for outlooks that are as good as alike: other devices are held, but such that look the same.

        Where the answer can be told without a search, it is that.

        Args:
            outlook: of a node.
            key: the outlook's.
            solver: finds out what tells the answer; None: there is no time for that.

        Raises:
            InvalidClaimError, SearchLimitError, TimeoutError: as `Solver.single`.
            NotAtHandError: there is no time for that.
        """
        if self.lens.in_order:
            return key
        answer = self._told(outlook, key[0], solver)
        return self._with_runs(outlook, key[0]) if answer is None else answer

    def _told(self, outlook: Outlook, picture: Hashable, solver: Solver | None) -> Found | NotFound | None:
        if self.single_of is None or None in outlook.used:
            return None
        singles = self.singles
        if picture not in singles:
            if solver is None:
                # Selectors would be evaluated on the devices.
                raise NotAtHandError
            singles[picture] = self.single_of(solver, outlook)
        single = singles[picture]
        return None if single is None else single.answer(outlook.states)

    def _with_runs(self, outlook: Outlook, picture: Hashable) -> Hashable:
        runs = self.runs.get(picture)
        if runs is None:
            runs = self.runs[picture] = runs_of([ground.view for ground in outlook.grounds], self.lens)
        return picture, outlook.settled(runs)

    def trim(self, nodes: int) -> None:
        """Forget all when most of it is about outlooks that are no more."""
        if max(len(self.keys), len(self.known.by_outlook), len(self.known.by_key)) > 4 * nodes + 1000:
            self.keys, self.singles, self.runs, self.known = {}, {}, {}, Known(self.known.roaming)
