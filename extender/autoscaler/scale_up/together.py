"""Rules about who holds devices, such as quotas: the pods of a plan count together, not each alone."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from extender.autoscaler.scale_up.plan import PendingPod
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.solver import Solver
from extender.framework.plugin import NodeCheck, Refused
from extender.framework.pods.claims import PodClaims


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
