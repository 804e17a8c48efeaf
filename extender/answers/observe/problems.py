"""The problems of a cluster: found in the background, remembered since when they are there, told by Events."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final

from allocator.tools import printable
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.events import Note
from extender.framework.asked import Asked
from extender.framework.decision_log import DecisionLog
from extender.framework.decisions.solver import Solver
from extender.framework.pods.stand_in import stand_in
from extender.framework.problem import Find, Look, Problem
from extender.framework.task import BackgroundTask
from extender.kube.resources import CLAIMS, PODS
from extender.tools.fairness.fair_memory import FairMemory
from extender.tools.offload import Offload
from extender.tools.table import Row, TableView, duration, matches

MOST_PROBLEMS: Final = 1024
"""Problems that are remembered, in shares by namespace."""

_LONGEST_TEXT: Final = 512
"""The most characters of what is wrong, and of what to do: names and selectors are as long as their authors want."""

_SECONDS: Final = 10.0
"""Between two looks in the background, at least."""

_SHARE: Final = 20
"""The pause after a look, in times of the look's length: looks at a large cluster take a twentieth of a core."""

CELLS: Final = {"age": duration}
"""How the text shows columns that JSON has in another form."""

EVENT: Final = "DRAProblem"
"""The reason of the Event on a pod or a claim with a problem."""

CAUSES: Final = (
    "unreadable",
    "incomplete-pool",
    "driver-stopped",
    "invalid-pool",
    "gone-node",
    "unprepared",
    "unmatched-class",
    "resource-class",
    "missing",
    "selector",
    "engines-disagree",
    "tainted-in-use",
    "two-masters",
    "gang",
    "quota",
    "gate",
    "admission-check",
    "unmarked",
    "scheduler-settings",
)


@dataclass(frozen=True, slots=True)
class Known:
    """A problem, and since when it is known: by its object, else since the first look that has found it."""

    problem: Problem
    since: str

    @property
    def id(self) -> str:
        """An id that is the same at each look."""
        return _id(self.problem)


def _id(problem: Problem) -> str:
    return "\n".join((problem.cause, problem.kind, *problem.key, problem.text))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


class Problems:
    """Looks for problems.

    Args:
        finds: those of each feature.
        solver: evaluates selectors.
        decision_log: has what schedulers have asked.
        now: the time.
    """

    def __init__(
        self, finds: Sequence[Find], solver: Solver, decision_log: DecisionLog, now: Callable[[], datetime]
    ) -> None:
        self._finds = finds
        self._solver = solver
        self._decision_log = decision_log
        self._now = now
        self.known: tuple[Known, ...] = ()

    def look(self, snapshot: Snapshot, pause: Callable[[], None]) -> tuple[Known, ...]:
        """The problems of a snapshot, each with the time when it began; to be called in a thread."""
        now = self._now()
        look = Look(snapshot, self._solver, now, self._decision_log.entries, pause)
        before = {each.id: each.since for each in self.known}
        found = FairMemory[Known](MOST_PROBLEMS)
        for problem in (problem for find in self._finds for problem in find(look)):
            kept = replace(problem, text=_cut(problem.text), advice=_cut(problem.advice))
            since = problem.since or before.get(_id(kept)) or now.isoformat(timespec="seconds")
            found.keep(problem.key.namespace, _id(kept), Known(kept, since))
        self.known = tuple(found.values())
        return self.known

    def counts(self) -> Mapping[str, int]:
        """The number of problems that the latest look has found, by cause."""
        counted = Counter(each.problem.cause for each in self.known)
        return {cause: counted[cause] for cause in CAUSES}


def problems(
    find: Callable[[], Sequence[Known]], now: datetime, *, kind: str = "", namespace: str = "", names: bool = True
) -> TableView:
    """The problems, of one kind of objects, or of one namespace and of objects without one.

    Args:
        find: looks for them, when the first row is made.
        now: the time, for the ages.
        kind: empty for all.
        namespace: empty for all.
        names: whether names of objects of namespaces may be told.
    """
    columns = ("cause", "kind", "object", "age", "problem", "cost", "advice")

    def rows() -> Iterator[Row]:
        wanted = [each for each in find() if names or not each.problem.key.namespace]
        for each in sorted(wanted, key=lambda each: (each.problem.kind, each.problem.key, each.id)):
            problem = each.problem
            if matches(kind, problem.kind) and (not problem.key.namespace or matches(namespace, problem.key.namespace)):
                age = now - datetime.fromisoformat(each.since)
                item = {
                    "cause": problem.cause,
                    "kind": problem.kind,
                    "object": str(problem.key),
                    "since": each.since,
                    "age": max(0, int(age.total_seconds())),
                    "problem": problem.text,
                    "cost": problem.cost,
                    "advice": problem.advice,
                }
                yield Row((problem.kind, *problem.key, each.id), partial(dict, item))

    return TableView(columns, rows(), CELLS)


class ProblemsKeeper(BackgroundTask):
    """Looks for problems now and then, and tells pods and claims of theirs by an Event.

    Args:
        state: the cluster. While it is not known, there is nothing to look at.
        found: remembers them.
        pause: lets verbs go first.
        off_loop: where a look is taken.
        clock: seconds, from any point.
        tell: writes an Event on a pod.
        asked: knows whether a scheduler asks this process. Otherwise another replica writes the Events.
    """

    def __init__(
        self,
        state: ClusterState,
        found: Problems,
        pause: Callable[[], None],
        off_loop: Offload,
        clock: Callable[[], float],
        tell: Callable[[Pod, Note], None],
        asked: Asked,
    ) -> None:
        self._state = state
        self._found = found
        self._pause = pause
        self._off_loop = off_loop
        self._clock = clock
        self._tell = tell
        self._asked = asked
        self._next = clock()
        self._told: Collection[str] = frozenset()

    @property
    def idle_seconds(self) -> float:
        """Until the next look."""
        return self._next - self._clock()

    async def tick(self) -> None:
        """Look again, if it is time."""
        if self._state.not_ready or self._clock() < self._next:
            return
        snapshot, started = self._state.snapshot, self._clock()
        known = await self._off_loop(partial(self._found.look, snapshot, self._pause))
        ended = self._clock()
        self._next = ended + max(_SECONDS, _SHARE * (ended - started))
        if self._asked.schedulers:
            for each in known:
                if each.id not in self._told:
                    self._tell_of(each.problem, snapshot)
            self._told = frozenset(each.id for each in known)

    def _tell_of(self, problem: Problem, snapshot: Snapshot) -> None:
        text = printable(f"{problem.text}; {problem.advice}")
        pod, claim = snapshot.pods.get(problem.key), snapshot.claims.get(problem.key)
        if problem.kind == PODS.kind and pod is not None:
            self._tell(pod, Note(EVENT, text))
        elif problem.kind == CLAIMS.kind and claim is not None:
            self._tell(stand_in(claim.claim), Note(EVENT, text, of_claim=True))
