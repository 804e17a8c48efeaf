"""Suggestions: sets of changes that other parts of the service know of. They are tried out as all others are."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.decisions.solver import Solver
from extender.explain.change import ProposedChange


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Changes that may make a pod fit on a node.

    Attributes:
        node: of the cluster after the changes.
    """

    changes: tuple[ProposedChange, ...]
    node: str


class Suggest(Protocol):
    """Finds suggestions."""

    def __call__(self, pod: Pod, snapshot: Snapshot, solver: Solver) -> Iterable[Suggestion]:
        """Suggestions for a pod that fits nowhere, the best first.

        Args:
            pod: waits, and fits on no node.
            snapshot: the cluster.
            solver: for as long as there is time.

        Raises:
            TimeoutError: the solver's time is up.
        """
        ...
