"""Answers questions: the waiting pods get their nodes today and then, by the code of the verbs.

Pods have their turns in kube-scheduler's order. Each gets the best of the nodes that take it, and the pods after it
find what is left. Controllers of negotiated claims are not asked, and pods of groups are judged alone.

A running service answers one question at a time on each listener, and verbs go first. A question that nobody waits for
any more ends.
"""

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import anyio.to_thread

from extender.answers.asking import ANSWER_SECONDS, Asking, patient
from extender.answers.explain.explanation import PreemptionReport, unknown_pod
from extender.answers.explain.made_up_nodes import devices_of, made_up_node, picture_of
from extender.answers.explain.preemption import preemption_of
from extender.answers.observe.overview import Overview
from extender.answers.whatif.answer import MOST_PREEMPTIONS, Difference, Fate, PodAnswer, WaitReason, WhatIfAnswer
from extender.answers.whatif.edits import Fork, editable
from extender.answers.whatif.question import Question
from extender.cluster.objects.pods import Pod
from extender.cluster.priority_classes import ONLY_BUILT_IN, PriorityClasses, read_priority_classes
from extender.cluster.snapshot import Snapshot
from extender.cluster.whole_pods import ListedPods
from extender.framework.decisions.solver import Solver
from extender.framework.pods.extended_resources import request_nouns, request_words
from extender.kube.api import ObjectKey
from extender.planning.kube_scheduler import Attempts, SchedulerChecks, not_modeled
from extender.planning.planner import LateError, Planner, Queued, Turns, as_planned
from extender.planning.queue import waiting_pods
from extender.planning.templates import Catalog, Supply

_GANG: Final = "pods of groups are judged one by one here, not as a group"
_CONTROLLERS: Final = "controllers of negotiated claims are not asked: their claims wait here"
_NO_CLASSES: Final = "priority classes can't be read, so new pods without a priority have priority 0 here: {}"
_LATE: Final = "the time was up before all pods had their turn: drain fewer nodes, or ask about fewer pods, at once"
_ORDER: Final = {difference: number for number, difference in enumerate(Difference)}


@dataclass(frozen=True, slots=True)
class _Round:
    """The waiting pods after each had its turn.

    Attributes:
        queue: in the order of the turns.
        end: the cluster then.
        untried: the pods that no scheduler of ours tries, by uid, with the reason.
    """

    queue: tuple[Queued, ...]
    end: Turns
    checks: SchedulerChecks
    untried: Mapping[str, tuple[Pod, Fate | None]]
    waiting: dict[Hashable, Fate] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether each pod had its turn before the time was up."""
        return all(self._has_turned(each) for each in self.queue)

    def fate(self, each: Queued) -> Fate | None:
        """The fate of a pod of the queue: where it is, or why it waits; None if it had no turn."""
        if node := self.end.nodes.get(each.pod.uid):
            return Fate(node, devices_of(each.pod, self.end.snapshot))
        if not self._has_turned(each):
            return None
        words = request_words(each.pod)
        known = each.shape, frozenset(words.items())  # to count the reasons of all nodes takes long
        if known not in self.waiting:
            self.waiting[known] = self._refused(each, request_nouns(each.pod))
        return self.waiting[known]

    def _has_turned(self, each: Queued) -> bool:
        return each.pod.uid in self.end.nodes or each.shape in self.end.refusals

    def _refused(self, each: Queued, noun: Callable[[str], str]) -> Fate:
        refusal = self.end.refusals[each.shape]
        if refusal.is_blocked:
            return Fate(reasons=tuple((reason, 0) for reason in refusal.unresolvable.counts(noun)))
        failed, unresolvable = refusal.failed.in_words(noun), refusal.unresolvable.in_words(noun)
        against = {**self.checks.rejections(each.pod), **unresolvable, **failed}
        return Fate(reasons=tuple(Counter(against.values()).most_common()) or (("there are no nodes", 0),))


@dataclass(frozen=True, slots=True)
class Answering:
    """Answers one question over a snapshot.

    Attributes:
        solver: for as long as there is time.
        catalog: what new nodes bring.
        now: the time at which new pods are made, as the API writes it.
        schedulers: names of the schedulers that call the extender; empty: not known.
        preempts: device preemption is on.
        priorities: what new pods get of their priority classes.
        unread: what of the cluster is not known, and why, in words.
    """

    solver: Solver
    catalog: Catalog
    now: str
    schedulers: Sequence[str]
    preempts: bool
    priorities: PriorityClasses = ONLY_BUILT_IN
    unread: Sequence[str] = ()

    def answer(self, question: Question, snapshot: Snapshot) -> WhatIfAnswer:
        """Answer a question.

        Raises:
            QuestionError: something that the question names does not exist, or cannot be changed.
            TimeoutError: the solver's time is up before it is known what happens today.
        """
        supply = Supply(self.catalog, snapshot)
        fork = Fork(supply, self.solver.features, self.now, self.schedulers, self.priorities)
        question.apply(fork)
        today = self._round(snapshot)
        if not today.is_complete:
            raise TimeoutError
        then = self._round(fork.snapshot)
        found, unexamined = self._with_evictions(list(self._pods(today, then, fork)), then)
        notes = [*self.unread] if then.is_complete else [*self.unread, _LATE]
        if self.priorities.unread:
            notes.append(_NO_CLASSES.format(self.priorities.unread))
        features, end = self.solver.features, then.end.snapshot
        placed = [each.pod for each in then.queue if each.pod.uid in then.end.nodes]
        if any(each.gang is not None for each in snapshot.pods.values() if each.is_pending):
            notes.append(_GANG)
        if snapshot.controllers:
            notes.append(_CONTROLLERS)
        nodes = tuple(made_up_node(each.name, each.origin, end, features) for each in fork.nodes)
        pools = [pool for node in nodes for pool in node.pools]
        return WhatIfAnswer(
            pods=tuple(found),
            nodes=nodes,
            drained=tuple(fork.drained),
            staying=tuple(fork.staying),
            unmodeled=not_modeled(placed, end),
            unexamined=unexamined,
            notes=tuple(notes),
            picture=picture_of(pools, end, features),
        )

    def _round(self, snapshot: Snapshot) -> _Round:
        untried = dict(_untried(snapshot, Attempts(snapshot, self.schedulers)))
        snapshot, queue = waiting_pods(snapshot, self.solver, self.schedulers)
        try:
            end = Planner.remembering(self.solver).long_turns(queue, snapshot, sorted(snapshot.nodes))
        except LateError as late:
            end = late.so_far
        return _Round(queue, end, SchedulerChecks(end.snapshot), untried)

    def _pods(self, today: _Round, then: _Round, fork: Fork) -> Iterator[PodAnswer]:
        queued = {each.pod.uid: today.fate(each) for each in today.queue}
        before = queued | {uid: fate for uid, (_, fate) in today.untried.items()}
        new, edited = set(fork.new), set(fork.edited)
        named = new | edited | {each.pod.key for each in fork.leaving}
        leaving = {each.pod.uid: each for each in fork.leaving}
        for uid, each in leaving.items():
            before[uid] = Fate(each.pod.node_name, devices_of(each.pod, today.end.snapshot))
        fates = {each.pod.uid: (each.pod, then.fate(each)) for each in then.queue}
        fates |= {uid: each for uid, each in then.untried.items() if each[0].key in named or uid in queued}
        found = []
        for uid, (pod, fate) in fates.items():
            left = leaving.get(uid)
            origin = WaitReason.NEW if pod.key in new else WaitReason.PENDING if left is None else WaitReason.DRAINED
            caution = "" if left is None else left.caution
            is_edited, was = pod.key in edited, None if origin is WaitReason.NEW else before.get(uid, Fate())
            found.append(PodAnswer(str(pod), origin, pod.priority, is_edited, was, fate, caution))
        yield from sorted(found, key=_turn)

    def _with_evictions(self, found: list[PodAnswer], then: _Round) -> tuple[list[PodAnswer], tuple[str, ...]]:
        """The pods, with who would be evicted for those that wait; and those for which nobody looked."""
        if not self.preempts:
            return found, ()
        queued = {str(each.pod): each for each in then.queue}
        reports: dict[Hashable, PreemptionReport | None] = {}  # pods of one shape have the same answer
        unexamined = []
        for index, each in enumerate(found):
            waiting = queued.get(each.pod)
            if waiting is None or each.then is None or each.then.node or not _preempts(waiting.pod, then.end.snapshot):
                continue
            if waiting.shape not in reports:
                if len(reports) == MOST_PREEMPTIONS or self.solver.is_late:
                    unexamined.append(each.pod)
                    continue
                reports[waiting.shape] = self._preemption(waiting.pod, then)
            found[index] = replace(each, preemption=reports[waiting.shape])
        return found, tuple(unexamined)

    def _preemption(self, pod: Pod, then: _Round) -> PreemptionReport | None:
        snapshot = then.end.snapshot.with_pod(pod)
        rejected = then.checks.rejections(pod)
        nodes = [node for name, node in sorted(snapshot.nodes.items()) if name not in rejected]
        return preemption_of(pod, nodes, snapshot, self.solver)


def _untried(snapshot: Snapshot, attempts: Attempts) -> Iterator[tuple[str, tuple[Pod, Fate | None]]]:
    """The pending pods with devices that no scheduler of ours tries, by uid."""
    for pod in snapshot.pods.values():
        if pod.is_pending and pod.needs_devices and (why := attempts.hindrance(pod)):
            yield pod.uid, (pod, Fate(reasons=((why, 0),)))


def _preempts(pod: Pod, snapshot: Snapshot) -> bool:
    return not (pod.nominated_node or snapshot.never_preempts(pod))


def _turn(each: PodAnswer) -> tuple[bool, int, int, str]:
    """Pods that the question names first, then those with the greatest difference."""
    return not each.is_named, _ORDER[each.difference], -each.priority, each.pod


MOST_OFFERED: Final = 1000
"""Names of nodes among which the console offers a choice. A node that is not offered can be typed."""

_TOO_LONG: Final = (
    f"the answer takes longer than {ANSWER_SECONDS:g} s, because many pods get a place; ask about less at once"
)


@dataclass(slots=True)
class WhatIf:
    """Answers questions about a cluster. Nothing is written.

    Attributes:
        overview: of the cluster.
        catalog: the node templates.
        preempts: device preemption is on.
    """

    overview: Overview
    catalog: Catalog
    preempts: bool
    _asking: Asking = field(default_factory=lambda: Asking(_TOO_LONG))

    async def ask(self, question: Question, caller: str = "") -> WhatIfAnswer:
        """The answer. A caller that is cancelled ends the work.

        Raises:
            RefusedError: the cluster is not known well enough, or the answer takes too long.
            CrowdedError: others wait.
            QuestionError: something that the question names does not exist, or cannot be changed.
        """
        return await self._asking.answer(caller, partial(self._worked, question))

    async def _worked(self, question: Question, gone: threading.Event) -> WhatIfAnswer:
        classes = ONLY_BUILT_IN
        if question.needs_priorities:
            classes = await read_priority_classes(self.overview.api)
        listed = await self.overview.listed_pods()
        snapshot = self.overview.state.known()
        return await anyio.to_thread.run_sync(partial(self._answer, question, snapshot, listed, classes, gone))

    def names(self) -> Mapping[str, list[str]]:
        """Names that a question may use: of node templates, and of nodes, unless there are very many."""
        nodes = sorted(self.overview.state.known().nodes)[:MOST_OFFERED]
        return {"templates": [each.name for each in self.catalog.templates], "nodes": nodes}

    def requests(self, key: ObjectKey) -> tuple[Mapping[str, object], ...] | str:
        """The requests of a pending pod that can be edited; a text if there is no such pod.

        Raises:
            RefusedError: the cluster is not known well enough.
        """
        snapshot = self.overview.state.known()
        pod = snapshot.pods.get(key)
        if pod is None:
            return unknown_pod(key, snapshot.pods)
        return tuple(editable(*as_planned(pod, snapshot))) if pod.is_pending else f"pod {key} is not pending"

    def _answer(
        self,
        question: Question,
        snapshot: Snapshot,
        listed: ListedPods,
        classes: PriorityClasses,
        gone: threading.Event,
    ) -> WhatIfAnswer:
        overview = self.overview
        own = patient(overview.decider.solver, overview.verb_priority.turn(), gone)
        now = overview.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        answering = Answering(
            own, self.catalog, now, overview.schedulers, self.preempts, classes, unread=listed.problems
        )
        return answering.answer(question, listed.beside(snapshot))
