"""Moves that a running service is asked for. Nothing is written."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio.to_thread

from extender.answers.asking import SECONDS, Asking, patient
from extender.answers.defragmentation.advice import Advice
from extender.answers.defragmentation.defragment import SearchBounds, defragment, why_not
from extender.answers.observe.overview import Overview
from extender.cluster.snapshot import Snapshot
from extender.cluster.whole_pods import ListedPods
from extender.kube.api import ObjectKey
from extender.tools.table import QueryError

_TOO_LONG: Final = (
    f"{SECONDS:g} s are not enough to look at the pending pods: ask about one pod, or use dra-extender defragment"
)


@dataclass(frozen=True, slots=True)
class AskedMoves:
    """Finds out which few moves would make room for pending pods, one question after the other.

    Attributes:
        overview: of the cluster.
        schedulers: names of the schedulers that call the extender; empty: not known.
    """

    overview: Overview
    schedulers: Sequence[str] = ()
    _asking: Asking = field(default_factory=lambda: Asking(_TOO_LONG))

    async def ask(self, only: ObjectKey | None, moves: int, caller: str = "") -> Advice:
        """The moves. A caller that is cancelled ends the search.

        Args:
            only: a pending pod, to look for room for its shape; None: for all.
            moves: the most pods that a proposal moves.
            caller: whose place the search takes.

        Raises:
            QueryError: there is no such pod, or it does not wait for a node.
            RefusedError: the cluster is not known well enough, or the search takes too long.
            CrowdedError: others wait.
        """
        return await self._asking.answer(caller, partial(self._worked, only, moves))

    async def _worked(self, only: ObjectKey | None, moves: int, gone: threading.Event) -> Advice:
        listed = await self.overview.listed_pods()
        snapshot = self.overview.state.known()
        return await anyio.to_thread.run_sync(partial(self._found, snapshot, listed, only, moves, gone))

    def _found(
        self, snapshot: Snapshot, listed: ListedPods, only: ObjectKey | None, moves: int, gone: threading.Event
    ) -> Advice:
        whole = listed.beside(snapshot)
        if only is not None and (problem := why_not(only, whole, self.schedulers)):
            raise QueryError(problem)
        solver = patient(self.overview.decider.solver, self.overview.verb_priority.turn(), gone)
        bounds = SearchBounds(moves, SECONDS)
        return defragment(whole, solver, only=only, bounds=bounds, schedulers=self.schedulers)
