"""Answers a question: the waiting pods get their nodes today and then, by the code of the verbs.

Pods have their turns in kube-scheduler's order. Each gets the best of the nodes that take it, and the pods after it
find what is left. Controllers of negotiated claims are not asked, and pods of groups are judged alone.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from extender.decisions.solver import Solver
from extender.defragmentation.rehearsal import Queued, Rehearsed
from extender.defragmentation.shapes import waiting_pods
from extender.explain.explanation import PreemptionReport
from extender.explain.preemption import preemption_of
from extender.pods.extended_resources.requests import request_words
from extender.scheduler.attempts import no_attempt
from extender.scheduler.checks import SchedulerChecks
from extender.state.objects import Pod
from extender.state.snapshot import Snapshot
from extender.whatif.answer import Answer, Difference, Fate, Origin, PodAnswer
from extender.whatif.applying import Applying, Changed
from extender.whatif.new_nodes import devices_of, node_answer, picture_of
from extender.whatif.question import Question
from extender.whatif.turns import Turns

MOST_PREEMPTIONS: Final = 10
"""Waiting pods for which evictions are looked for: those whose fate the question is about come first."""

_GANG: Final = "pods of groups are judged one by one here, not as a group"
_CONTROLLERS: Final = "controllers of negotiated claims are not asked: their claims wait here"
_LATE: Final = "there was not enough time to look for evictions for every waiting pod"
_FEW: Final = f"evictions were looked for only for {MOST_PREEMPTIONS} waiting pods"
_ORDER: Final = {difference: number for number, difference in enumerate(Difference)}


@dataclass(frozen=True, slots=True)
class _Round:
    """The waiting pods after each had its turn.

    Attributes:
        queue: in the order of the turns.
        end: the cluster then.
    """

    queue: tuple[Queued, ...]
    end: Rehearsed
    checks: SchedulerChecks
    waiting: dict[Hashable, Fate] = field(default_factory=dict)

    def fate(self, each: Queued) -> Fate:
        """Where a pod of the queue is, or why it waits."""
        if node := self.end.nodes.get(each.pod.uid):
            return Fate(node, devices_of(each.pod, self.end.snapshot))
        words = request_words(each.pod)
        known = each.shape, frozenset(words.items())  # to count the reasons of all nodes takes long
        if known not in self.waiting:
            self.waiting[known] = self._refused(each, words)
        return self.waiting[known]

    def _refused(self, each: Queued, words: Mapping[str, str]) -> Fate:
        refusal = self.end.refusals[each.shape].in_words(words)
        if refusal.is_blocked:
            return Fate(reasons=tuple((reason, 0) for reason in dict.fromkeys(refusal.unresolvable.values())))
        against = {**self.checks.rejections(each.pod), **refusal.unresolvable, **refusal.failed}
        return Fate(reasons=tuple(Counter(against.values()).most_common()) or (("there are no nodes", 0),))


@dataclass(frozen=True, slots=True)
class Answering:
    """Answers one question over a snapshot.

    Attributes:
        solver: for as long as there is time.
        schedulers: names of the schedulers that call the extender; empty: not known.
        preempts: device preemption is on.
    """

    solver: Solver
    applying: Applying
    schedulers: Sequence[str]
    preempts: bool

    def answer(self, question: Question, snapshot: Snapshot) -> Answer:
        """What would be.

        Raises:
            QuestionError: something that the question names does not exist, or cannot be changed.
            TimeoutError: the solver's time is up.
        """
        changed = self.applying.changed(question, snapshot)
        today, then = self._round(snapshot), self._round(changed.snapshot)
        notes: list[str] = []
        found = self._with_evictions(list(self._pods(today, then, changed)), then, notes)
        features, end = self.solver.features, then.end.snapshot
        placed = [each.pod for each in then.queue if each.pod.uid in then.end.nodes]
        if any(each.gang is not None for each in snapshot.pods.values() if each.is_pending):
            notes.append(_GANG)
        if snapshot.controllers:
            notes.append(_CONTROLLERS)
        nodes = tuple(node_answer(each.name, each.origin, end, features) for each in changed.nodes)
        pools = [pool for node in nodes for pool in node.pools]
        return Answer(
            pods=tuple(found),
            nodes=nodes,
            drained=question.drained,
            staying=changed.staying,
            unmodeled=tuple(sorted({what for pod in placed for what in pod.unmodeled})),
            notes=tuple(notes),
            picture=picture_of(pools, end, features),
        )

    def _round(self, snapshot: Snapshot) -> _Round:
        snapshot, queue = waiting_pods(snapshot, self.solver, self.schedulers)
        end = Turns(self.solver).run(queue, snapshot)
        plugged = (pod for pod in end.snapshot.pods.values() if pod.containers)
        return _Round(queue, end, SchedulerChecks(snapshot.nodes, plugged))

    def _pods(self, today: _Round, then: _Round, changed: Changed) -> Iterator[PodAnswer]:
        before = {each.pod.uid: today.fate(each) for each in today.queue}
        new, edited = set(changed.new), set(changed.edited)
        leaving = {each.pod.uid: each for each in changed.leaving}
        for uid, each in leaving.items():
            before[uid] = Fate(each.pod.node_name, devices_of(each.pod, today.end.snapshot))
        fates = {each.pod.uid: (each.pod, then.fate(each)) for each in then.queue}
        for pod in self._untried(changed):
            fates[pod.uid] = (pod, Fate(reasons=((no_attempt(pod, self.schedulers), 0),)))
        found = []
        for uid, (pod, fate) in fates.items():
            left = leaving.get(uid)
            origin = Origin.NEW if pod.key in new else Origin.PENDING if left is None else Origin.DRAINED
            caution = "" if left is None else left.caution
            is_edited, was = pod.key in edited, None if origin is Origin.NEW else before.get(uid, Fate())
            found.append(PodAnswer(str(pod), origin, pod.priority, is_edited, was, fate, caution))
        yield from sorted(found, key=_turn)

    def _untried(self, changed: Changed) -> Iterator[Pod]:
        """The pods that the question is about, and that no scheduler of ours tries."""
        for key in (*changed.edited, *(each.pod.key for each in changed.leaving)):
            pod = changed.snapshot.pods[key]
            if no_attempt(pod, self.schedulers):
                yield pod

    def _with_evictions(self, found: list[PodAnswer], then: _Round, notes: list[str]) -> list[PodAnswer]:
        """The pods, with who would be evicted for those that wait."""
        if not self.preempts:
            return found
        queued = {str(each.pod): each.pod for each in then.queue}
        looked = 0
        for index, each in enumerate(found):
            pod = queued.get(each.pod)
            if each.then.node or pod is None or pod.nominated_node or not pod.may_preempt:
                continue
            if looked == MOST_PREEMPTIONS or self.solver.is_late:
                notes.append(_FEW if looked == MOST_PREEMPTIONS else _LATE)
                break
            looked += 1
            found[index] = replace(each, preemption=self._preemption(pod, then))
        return found

    def _preemption(self, pod: Pod, then: _Round) -> PreemptionReport | None:
        snapshot = then.end.snapshot.with_pod(pod)
        rejected = then.checks.rejections(pod)
        nodes = [node for name, node in sorted(snapshot.nodes.items()) if name not in rejected]
        return preemption_of(pod, nodes, snapshot, self.solver)


def _turn(each: PodAnswer) -> tuple[bool, int, int, str]:
    """Pods that the question names first, then those with the greatest difference."""
    is_named = each.is_edited or each.origin is not Origin.PENDING
    return not is_named, _ORDER[each.difference], -each.priority, each.pod
