"""Questions to a running service: one at a time on each listener, in fair turns of the callers. Verbs go first.

A question that nobody waits for any more ends.
"""

import asyncio
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import anyio.to_thread

from extender.cluster.snapshot import Snapshot
from extender.explain.explanation import unknown_pod
from extender.fairness.places import Place, Places
from extender.kube.api import ObjectKey
from extender.planning.planned_pods import as_planned
from extender.planning.templates.catalog import Catalog
from extender.service import Service
from extender.tools.faults import RefusedError
from extender.whatif.answer import WhatIfAnswer
from extender.whatif.answering import Answering
from extender.whatif.edits.edit_request import editable
from extender.whatif.question import Question

SECONDS: Final = 10.0
"""Of work for one answer; to wait for other questions does not count."""

MOST_OFFERED: Final = 1000
"""Names of nodes among which the console offers a choice. A node that is not offered can be typed."""

_LATE: Final = f"the answer takes longer than {SECONDS:g} s, because many pods get a place; ask about less at once"


@dataclass(slots=True)
class WhatIf:
    """Answers questions about a service's cluster. Nothing is written.

    Attributes:
        catalog: the node templates.
        preempts: device preemption is on.
    """

    service: Service
    catalog: Catalog
    preempts: bool
    _places: Places = field(default_factory=lambda: Places(1, 1, time.monotonic))

    async def ask(self, question: Question, caller: str = "") -> WhatIfAnswer:
        """The answer. A caller that is cancelled ends the work.

        Raises:
            RefusedError: the cluster is not known well enough, or the answer takes too long.
            CrowdedError: others wait.
            QuestionError: something that the question names does not exist, or cannot be changed.
        """
        place = await self._places.take(caller)
        gone = threading.Event()
        try:
            work = asyncio.create_task(self._worked(question, gone))
            work.add_done_callback(partial(_ended, place))
            return await asyncio.shield(work)
        except TimeoutError:
            raise RefusedError(_LATE) from None
        finally:
            gone.set()

    async def _worked(self, question: Question, gone: threading.Event) -> WhatIfAnswer:
        snapshot = self.service.overview.state.known()
        return await anyio.to_thread.run_sync(partial(self._answer, question, snapshot, gone))

    def names(self) -> Mapping[str, list[str]]:
        """Names that a question may use: of node templates, and of nodes, unless there are very many."""
        nodes = sorted(self.service.overview.state.known().nodes)[:MOST_OFFERED]
        return {"templates": [each.name for each in self.catalog.templates], "nodes": nodes}

    def requests(self, key: ObjectKey) -> tuple[Mapping[str, object], ...] | str:
        """The requests of a pending pod that can be edited; a text if there is no such pod.

        Raises:
            RefusedError: the cluster is not known well enough.
        """
        snapshot = self.service.overview.state.known()
        pod = snapshot.pods.get(key)
        if pod is None:
            return unknown_pod(key, snapshot.pods)
        return tuple(editable(*as_planned(pod, snapshot))) if pod.is_pending else f"pod {key} is not pending"

    def _answer(self, question: Question, snapshot: Snapshot, gone: threading.Event) -> WhatIfAnswer:
        overview = self.service.overview
        solver, pause = overview.decider.solver, self.service.verb_priority.turn()

        def clock() -> float:
            """The time. Verbs go first; for a caller who is gone, all time is up."""
            pause()
            return math.inf if gone.is_set() else solver.clock()

        own = replace(solver.still(), clock=clock, until=solver.clock() + SECONDS)
        now = overview.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        return Answering(own, self.catalog, now, overview.schedulers, self.preempts).answer(question, snapshot)


def _ended(place: Place, work: asyncio.Task[WhatIfAnswer]) -> None:
    """The place is left with the work: a caller that goes leaves a thread, until it looks at the clock."""
    place.leave()
    if not work.cancelled():
        work.exception()  # the caller may be gone
