"""Which pods can move to another node, and what protects the others: budgets and quotas, for example."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from immutables import Map

from extender.answers.explain.explanation import Spared
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.budgets import Budget
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.solver import Solver
from extender.kube.api import ObjectKey
from extender.planning.kube_scheduler import SchedulerChecks
from extender.planning.planner import TIED, Planner, unbound
from extender.planning.pod_group_rules import Attempts
from extender.plugins.preemption.evictions import budgets_covering


@dataclass(frozen=True, slots=True)
class Mobility:
    """Whether the pods of a cluster can move.

    Attributes:
        snapshot: the cluster.
        running: the pods that are bound there and hold devices.
        names: all nodes.
        planner: asks where a pod can go.
        attempts: which pods a scheduler of ours tries.
    """

    snapshot: Snapshot
    running: Sequence[Pod]
    names: Sequence[str]
    planner: Planner
    attempts: Attempts
    _protections: dict[str, str] = field(default_factory=dict)
    _takers: dict[Hashable, frozenset[str]] = field(default_factory=dict)

    def protection(self, pod: Pod) -> str:
        """The reason why a pod does not move, whatever other nodes have; empty if there is none."""
        if pod.uid not in self._protections:
            self._protections[pod.uid] = next(self._protecting(pod), "")
        return self._protections[pod.uid]

    def can_leave(self, pod: Pod, node: str, solver: Solver) -> bool:
        """Whether nothing protects a pod, and a node other than this one takes it.

        Raises:
            TimeoutError: the solver's time is up.
        """
        if self.protection(pod):
            return False
        takers = self._taking(pod, solver)
        return len(takers) > (node in takers)

    def spared(self, solver: Solver) -> tuple[Spared, ...]:
        """The pods that hold devices and cannot move, and claims that no pod uses; the most frequent reason first."""
        groups: dict[str, list[str]] = {}
        for pod in self.running:
            if reason := self.protection(pod) or self._staying(pod, solver):
                groups.setdefault(reason, []).append(f"pod {pod}")
        for reason, claim in self._consumers():
            groups.setdefault(reason, []).append(claim)
        ordered = sorted(groups.items(), key=lambda each: (-len(each[1]), each[0]))
        return tuple(Spared(reason, tuple(sorted(names))) for reason, names in ordered)

    def _staying(self, pod: Pod, solver: Solver) -> str:
        """Why a pod that nothing protects does not leave its node; empty if it can leave."""
        try:
            return "" if self.can_leave(pod, pod.node_name, solver) else "no other node takes it"
        except TimeoutError:
            return "there was not enough time to look for another node"

    def _protecting(self, pod: Pod) -> Iterator[str]:
        if pod.controller is None:
            yield "no controller makes it again"
        elif pod.controller.kind in TIED:
            yield TIED[pod.controller.kind].format(pod.controller)
        yield from self._sharing(pod)
        allowed = self.snapshot.objects(Budget)
        for key in budgets_covering(pod, self.snapshot):
            if allowed[key].allowed <= 0:
                yield f"PodDisruptionBudget {key} allows no eviction"
        if reason := self.attempts.hindrance(pod):
            yield reason

    def _sharing(self, pod: Pod) -> Iterator[str]:
        for key in claim_keys(pod):
            claim = self.snapshot.claims.get(key)
            for user in claim.claim.reserved_for if claim is not None else ():
                if user.resource != "pods":
                    yield f"it shares claim {key} with {user}"
                elif user.uid != pod.uid:
                    yield f"it shares claim {key} with pod {pod.namespace}/{user.name}"

    def _taking(self, pod: Pod, solver: Solver) -> frozenset[str]:
        """The nodes that would take another pod like this one. Pods of one kind share the answer."""
        key = self.kind(pod)
        if key not in self._takers:
            twin, fork = _with_twin(pod, self.snapshot)
            self._takers[key] = frozenset(self.planner.by(solver).takers(twin, self.names, fork).passed)
        return self._takers[key]

    def kind(self, pod: Pod) -> Hashable:
        """Equal for pods that the same nodes take."""
        claims = [self.snapshot.claims.get(key) for key in claim_keys(pod)]
        asked = tuple(each.claim.spec.asked for each in claims if each is not None)
        templates = tuple(ObjectKey(pod.namespace, each.template_name) for each in pod.claims if each.template_name)
        counts = self.planner.solver.plugins.count_holders(pod, self.snapshot)
        namespace = pod.namespace if counts else ""
        return (
            asked,
            templates,
            pod.containers,
            SchedulerChecks(self.snapshot).kind_of(pod),
            pod.policy,
            pod.priority,
            namespace,
        )

    def _consumers(self) -> Iterator[tuple[str, str]]:
        """The claims that only something that is no pod uses: the reason, and the claim."""
        for key in sorted(self.snapshot.claims):
            claim = self.snapshot.claims[key].claim
            users = claim.reserved_for
            if claim.allocation is not None and users and all(user.resource != "pods" for user in users):
                yield f"reserved for {users[0]}", f"claim {key}"


def _with_twin(pod: Pod, snapshot: Snapshot) -> tuple[Pod, Snapshot]:
    """A new pod that asks for the same, and the cluster with its claims. The pod itself stays and keeps its devices.

    DeviceQuotas do not count: the pod that moves gives back what it holds.
    """
    entries = []
    for entry in pod.claims:
        named = snapshot.claims.get(ObjectKey(pod.namespace, entry.claim_name or ""))
        if named is None:
            entries.append(entry)
            continue
        name, uid = f"{named.claim.name}/twin", f"{named.claim.uid}/twin"
        claim = replace(named.claim, name=name, uid=uid, allocation=None, reserved_for=())
        snapshot = snapshot.with_claim(replace(named, claim=claim))
        entries.append(replace(entry, claim_name=name))
    statuses = {name: claim_name for name, claim_name in pod.claim_statuses.items() if claim_name is None}
    twin = replace(unbound(pod), name=f"{pod.name}/twin", uid=f"{pod.uid}/twin", claim_statuses=statuses)
    return replace(twin, claims=tuple(entries)), snapshot._replace(device_quotas=Map(), quotas_in=Map())
