"""Which rejected pods would fit now, in their order of priority."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from allocator import Allocation
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Keeping, Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.cluster_with_kept import ClusterWithKept, WithKept, counting_kept_of
from extender.framework.cycle import holding
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import Solver
from extender.framework.held_devices import found_on
from extender.framework.likeness import likeness_of
from extender.framework.rejected_pods import LOOK_SECONDS, MOST_AT_ONCE, POD_SECONDS, Candidate, RejectedPod
from extender.planning.planner import Planner, UndecidedError
from extender.tools.fairness.turns import Turns


@dataclass(frozen=True, slots=True)
class Judged:
    """The pods that would fit, each after those before; those that would not; and those whose search was stopped."""

    fitting: list[tuple[RejectedPod, Keeping]] = field(default_factory=list)
    refused: list[RejectedPod] = field(default_factory=list)
    undecided: list[RejectedPod] = field(default_factory=list)


def judge_pods(candidates: Iterable[Candidate], snapshot: Snapshot, kept: ClusterWithKept, turns: Turns) -> Judged:
    """Judge pods, the first first, but in fair turns of their namespaces; those not got to in time are in no list."""
    decider = kept.of_cluster
    decider.follow(snapshot)
    until = decider.solver.clock() + LOOK_SECONDS
    with_kept = kept.at(snapshot, decider.solver.within(until)) if snapshot.kept.users else None
    judging = _Judging(snapshot, decider, with_kept, until)
    for each, pod, names in turns.ordered(candidates, lambda candidate: candidate[1].namespace):
        refuse = partial(judging.refuse, each)
        with turns.of(pod.namespace), decider.solver.faults.of(f"pod {pod}", refuse):
            judging.judge(each, pod, names)
        if judging.is_over or decider.solver.clock() > judging.until:
            break
    return judging.judged


@dataclass(slots=True)
class _Judging:
    """One look at pods.

    Attributes:
        snapshot: with what is kept for those before.
        with_kept: the cluster without those before, in which what is kept is held; None: not known.
        until: when it ends, by the solver's clock.
        given: those before, and what they would get.
        hopeless: kind of pods to nodes that will not do for it.
        too_hard: kinds of pods whose search was stopped.
        is_over: the rest is for the next look.
    """

    snapshot: Snapshot
    decider: Decider
    with_kept: WithKept | None
    until: float
    judged: Judged = field(default_factory=Judged)
    given: list[tuple[Pod, Allocation]] = field(default_factory=list)
    hopeless: dict[Hashable, set[str]] = field(default_factory=dict)
    too_hard: set[Hashable] = field(default_factory=set)
    is_over: bool = False

    def judge(self, rejected: RejectedPod, pod: Pod, names: Sequence[str]) -> None:
        """Judge the next pod."""
        # There is only ever less: where one pod found nothing, the next of its kind finds nothing.
        kind = likeness_of(pod, self.snapshot)
        if self.hopeless.get(kind, set()).issuperset(names):
            self.judged.refused.append(rejected)
            return
        if kind in self.too_hard:
            self.judged.undecided.append(rejected)
            return
        world, decider = self._world_of(pod)
        stopped, until = decider.stopped, min(self.until, decider.solver.clock() + POD_SECONDS)
        try:
            found = _devices_on_first_node(pod, names, world, decider, until)
        except UndecidedError:
            self.judged.undecided.append(rejected)
            self.too_hard.add(kind)
        except TimeoutError:
            if decider.stopped > stopped:
                # Not all of the look is remembered: another one at once would get no further.
                self.judged.undecided.append(rejected)
        else:
            self._note(rejected, pod, names, kind, found)

    def _world_of(self, pod: Pod) -> tuple[Snapshot, Decider]:
        """The cluster as the pod finds it, and who remembers verdicts on it.

        If possible, it is the one that most pods find: in the snapshot, what is kept for each pod is held anew.
        """
        now, own = self.with_kept, claim_keys(pod)
        if now is None or any(
            other.priority < pod.priority or not set(own).isdisjoint(claim_keys(other)) for other, _ in self.given
        ):
            return self.snapshot, self.decider
        world = now.beside(pod, self.decider.solver.within(self.until))
        if world is None:
            return self.snapshot, self.decider
        for _, found in self.given:
            world = holding(found, world)
        return counting_kept_of(self.snapshot, world), now.decider

    def refuse(self, rejected: RejectedPod, _fault: str) -> None:
        """A pod at which something failed is as one for which there is no node."""
        self.judged.refused.append(rejected)

    def _note(
        self, rejected: RejectedPod, pod: Pod, names: Sequence[str], kind: Hashable, found: "_Found | None"
    ) -> None:
        if found is None:
            self.judged.refused.append(rejected)
            self.hopeless.setdefault(kind, set()).update(names)
            return
        self.judged.fitting.append((rejected, found.keeping))
        self.is_over = len(self.judged.fitting) == MOST_AT_ONCE
        after = self.snapshot.with_woken(pod.uid, found.keeping) if found.keeping.devices else self.snapshot
        if found.allocation is not None and after is not self.snapshot:
            self.given.append((pod, found.allocation))
        self.snapshot = after


class _Found(NamedTuple):
    """The devices to keep for a woken pod, and their allocation; no devices if these are not soon found."""

    keeping: Keeping
    allocation: Allocation | None = None


def _devices_on_first_node(
    pod: Pod, names: Sequence[str], snapshot: Snapshot, decider: Decider, until: float
) -> _Found | None:
    """What the pod would get on the first of the nodes that takes it; a pod that needs nothing new, no devices.

    A node that kube-scheduler itself rejects does not count: to wake the pod for it would help no pod.

    Raises:
        TimeoutError: not all nodes were judged in time.
        UndecidedError: the search on one of them was stopped.
    """
    node = Planner(decider.solver, decider).first_taker(pod, names, snapshot, until)
    return None if node is None else _gets(pod, node, snapshot, decider.solver)


def _gets(pod: Pod, node: NodeObject, snapshot: Snapshot, solver: Solver) -> _Found:
    try:
        found = found_on(node, pod, snapshot, solver.within(solver.clock() + LOOK_SECONDS))
    except TimeoutError:
        return _Found(Keeping(node.name))
    if not isinstance(found, Allocation):
        return _Found(Keeping(node.name))
    devices = {each.device for result in found.results for each in result.results}
    return _Found(Keeping(node.name, tuple(sorted(devices))), found)
