"""Pods of a plan that count together: gangs, and pods under rules about who holds devices, such as quotas.

New nodes for a part of a gang would stay empty, so a plan serves a gang whole or not at all. An autoscaler knows no
gangs. It names the pods that it has put on new nodes in its own simulation, so pods of a gang may be missing in its
request. These pods count, too: each fits on an existing node, or needs a new one.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from extender.autoscaler.scale_up.plan import NodeDemand, PendingPod
from extender.cluster.objects.pods import GangKey, Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.solver import Solver
from extender.framework.plugin import NodeCheck, Refused
from extender.framework.pods.claims import PodClaims
from extender.planning.planner import Planner, Queued
from extender.plugins.gangs.gang import GANG, Gang, gang_at


class WaitingGang(NamedTuple):
    """A gang with pods that wait for nodes.

    Attributes:
        reason: why the pods wait now.
        others: the pending pods that are not in the request, and that fit on no existing node.
        placed: the number of pods that have a node, or fit on an existing one.
    """

    gang: Gang
    reason: str
    others: tuple[Pod, ...]
    placed: int

    def lack(self, helped: Collection[str]) -> str:
        """Why the gang can't run although some pods, by uid, get a new node; empty if it can."""
        have = self.placed + sum(pod.uid in helped for pod in self.gang.free)
        if have >= self.gang.size:
            return ""
        return f"{self.reason}: {have} of {self.gang.size} get devices on the nodes that can be added"


@dataclass(slots=True)
class Gangs:
    """The gangs of the pods that somebody asked about.

    Attributes:
        waiting: the gangs that have enough pods, by their names.
        blocked: uids of pods that no scheduler can bind whatever nodes there are, each with the reason.
        snapshot: the cluster with all pods, in which pods have the nodes that they find.
    """

    waiting: dict[GangKey, WaitingGang]
    blocked: dict[str, str]
    snapshot: Snapshot

    @classmethod
    def of(cls, asked: Sequence[Pod], snapshot: Snapshot, planner: Planner) -> "Gangs":
        """Look the gangs up.

        Args:
            asked: the pods.
            snapshot: the cluster. A pod of a gang that it does not know counts as it was sent.
            planner: finds nodes that are there.

        Raises:
            TimeoutError: time was up.
        """
        unknown = (pod for pod in asked if pod.gang is not None and snapshot.pod(pod.uid) is None)
        for pod in unknown:
            snapshot = snapshot.with_pod(pod)
        found = cls({}, {}, snapshot)
        names = {pod.uid for pod in asked}
        for pod in asked:
            if pod.gang_key in found.waiting:
                continue
            refused = planner.solver.plugins.pre_enqueue(pod, found.snapshot)
            if refused is not None and not found._has_enough(pod, refused, names, planner):
                found.blocked[pod.uid] = str(refused.refusal)
        return found

    def demand(self, asked: Sequence[PendingPod]) -> Iterator[PendingPod]:
        """The other pods of the gangs that need a new node. One that is like a pod of the request asks for the same."""
        alike = {_form(each.pod): each.demand for each in asked if each.pod.gang_key in self.waiting}
        for gang in self.waiting.values():
            for pod in gang.others:
                yield PendingPod(pod, alike.get(_form(pod)) or NodeDemand((), pod.requirements))

    def lacking(self, helped: Collection[str]) -> tuple[GangKey, str] | None:
        """The least important gang that can't run although some pods get a new node, and why; None: all can run."""
        short = [(each.gang, why) for each in self.waiting.values() if (why := each.lack(helped))]
        if not short:
            return None
        gang, why = max(short, key=lambda each: each[0].order)
        return gang.key, why

    def _has_enough(self, pod: Pod, refused: Refused, asked: Collection[str], planner: Planner) -> bool:
        """Whether the pod waits only for devices of its gang. Then the gang is noted, with nodes for its others."""
        key = pod.gang_key
        gang = gang_at(key, self.snapshot) if refused.by == GANG and key is not None else None
        if key is None or gang is None or gang.problem or len(gang.members) < gang.size:
            return False
        queue = [Queued(each, _form(each)) for each in gang.free if each.uid not in asked]
        turns = planner.turns(queue, self.snapshot, tuple(self.snapshot.nodes))
        self.snapshot = turns.snapshot
        others = tuple(each for each, _ in queue if each.uid not in turns.nodes)
        placed = len(gang.bound) + len(gang.kept) + len(turns.nodes)
        self.waiting[key] = WaitingGang(gang, str(refused.refusal), others, placed)
        return True


def with_groups(asked: Sequence[PendingPod], snapshot: Snapshot) -> tuple[PendingPod, ...]:
    """The pods with the PodGroups that they have in the cluster.

    An autoscaler that is older than the API server does not know the field, and leaves it out.
    """
    return tuple(_with_group(each, snapshot.pod(each.pod.uid)) for each in asked)


def _with_group(asked: PendingPod, known: Pod | None) -> PendingPod:
    if known is None or not known.pod_group:
        return asked
    pod = replace(asked.pod, gang=known.gang, pod_group=known.pod_group)
    return replace(asked, pod=replace(pod, priority=known.priority, own_priority=known.own_priority))


def _form(pod: Pod) -> Hashable:
    """Equal for pods that a controller has made from one template, as far as it decides about their nodes."""
    return pod.namespace, pod.requirements, pod.containers, pod.cpu, pod.claims


class Wanted(NamedTuple):
    """A pod that may get a new node.

    Attributes:
        asked: as it was asked about.
        pod: with the names of its claims.
        claims: what it needs.
    """

    asked: PendingPod
    pod: Pod
    claims: PodClaims


class Together:
    """The rules of one namespace about some pods together, the most important ones first.

    Args:
        snapshot: has the claims of the pods.
        solver: asks the plugins.
        refuse: gets the uid of each pod that has to wait, and the reason.

    Attributes:
        passed: the pods that may all get devices.
        compares: whether it depends on these devices how many of the pods may have them.
    """

    def __init__(self, snapshot: Snapshot, solver: Solver, refuse: Callable[[str, str], None]) -> None:
        self._snapshot = snapshot
        self._solver = solver
        self._refuse = refuse
        self.passed: list[Wanted] = []
        self.compares = False

    def add(self, pods: Sequence[Wanted]) -> None:
        """Let as many of the pods pass as possible. If all of them are too many, one half is asked about first.

        Raises:
            TimeoutError: time was up.
        """
        if not pods:
            return
        found = self._rules((*self.passed, *pods))
        if not isinstance(found, Refused):
            self.passed += pods
            self.compares = self.compares or bool(found)
        elif len(pods) == 1:
            self._refuse(pods[0].pod.uid, found.refusal.reason.in_words())
        else:
            half = len(pods) // 2
            self.add(pods[:half])
            self.add(pods[half:])

    def _rules(self, pods: Sequence[Wanted]) -> Refused | Sequence[tuple[str, NodeCheck]]:
        """What the plugins say of one pod with the claims of all."""
        last = next((each for each in pods if each.claims.special.is_needed), pods[-1])
        pending = {each.claim.uid: each for wanted in pods for each in wanted.claims.pending}
        negotiated = {each.uid: each for wanted in pods for each in wanted.claims.negotiated}
        claims = replace(last.claims, pending=tuple(pending.values()), negotiated=tuple(negotiated.values()))
        return self._solver.plugins.pre_filter(last.pod, claims, self._snapshot, self._solver)


def by_rules(
    pods: Iterable[Wanted], snapshot: Snapshot, solver: Solver, refuse: Callable[[str, str], None]
) -> tuple[list[Wanted], set[str]]:
    """The pods that no rule refuses, and the namespaces whose rules compare the devices that their pods get.

    Args:
        pods: the most important ones first. Their claims exist.
        snapshot: has the claims of the pods.
        solver: asks the plugins.
        refuse: gets the uid of each pod that has to wait, and the reason.

    Raises:
        TimeoutError: time was up.
    """
    groups: dict[str, list[Wanted]] = {}
    for each in pods:
        has_rules = solver.plugins.count_holders(each.pod, snapshot)
        groups.setdefault(each.pod.namespace if has_rules else each.pod.uid, []).append(each)
    passed: list[Wanted] = []
    comparing = set()
    for group in groups.values():
        rules = Together(snapshot, solver, refuse)
        with solver.faults.of(f"pod {group[0].pod}", partial(_refuse_all, group, refuse)):
            rules.add(group)
            passed += rules.passed
            if rules.compares:
                comparing.add(group[0].pod.namespace)
    return passed, comparing


def _refuse_all(pods: Iterable[Wanted], refuse: Callable[[str, str], None], reason: str) -> None:
    for each in pods:
        refuse(each.pod.uid, reason)
