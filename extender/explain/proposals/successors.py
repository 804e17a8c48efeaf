"""Successors: the pods that controllers make in place of those that a proposal deletes.

A successor has the owner, the shape and the queue of the pod before it. If it goes before the explained pod in their
queue, it may take what the deletion frees: then the deletion does not help.
"""

from collections.abc import Iterable
from dataclasses import replace

from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.decisions.solver import No, Solver
from extender.explain.explanation import Successor
from extender.kube.api import ObjectKey
from extender.kube_scheduler import rejection
from extender.planning.planned_pods import TIED, unbound
from extender.planning.planner import Planner
from extender.pods.claims import named_claims


def made_again(deleted: Iterable[ObjectKey], snapshot: Snapshot) -> tuple[Pod, ...]:
    """Those of the deleted pods that a controller makes again, in the order of their queue."""
    found = (snapshot.pods.get(key) for key in dict.fromkeys(deleted))
    return tuple(sorted((pod for pod in found if pod is not None and pod.controller is not None), key=_order))


def goes_first(before: Pod, pod: Pod) -> bool:
    """Whether the successor of a pod is tried before a pod that waits already.

    A successor is younger. The order of two schedulers is not known.
    """
    return before.priority > pod.priority or before.scheduler_name != pod.scheduler_name


def returned(
    before: Pod, known: Snapshot, snapshot: Snapshot, solver: Solver, only: str = ""
) -> tuple[Snapshot, Successor]:
    """The cluster after the successor of a pod had its turn, and where the successor is then.

    Args:
        before: the deleted pod.
        known: the cluster in which the pod was there.
        snapshot: the cluster without it.
        solver: for as long as there is time.
        only: the node where it may go; empty: any.

    Raises:
        TimeoutError: the solver's time is up.
    """
    pod, snapshot = _successor(before, known, snapshot)
    nodes = snapshot.nodes
    is_tied = before.controller is not None and before.controller.kind in TIED
    names = [before.node_name] if is_tied else [only] if only else sorted(nodes)
    names = [name for name in names if name in nodes and not rejection(pod.requirements, nodes[name])]
    planner = Planner.remembering(solver)
    passed = planner.filter(pod, names, snapshot, most=1).passed
    after = planner.place(pod, passed[0], snapshot) if passed else None
    if after is None or isinstance(after, No):
        return snapshot, Successor(str(before), str(before.controller), "")
    return after, Successor(str(before), str(before.controller), passed[0])


def _successor(before: Pod, known: Snapshot, snapshot: Snapshot) -> tuple[Pod, Snapshot]:
    """The new pod, and the cluster with the claims that are made for it: they ask for the same as those before."""
    uid, statuses = f"{before.uid}/successor", dict(before.claim_statuses)
    entries = {each.name for each in before.claims if each.template_name is not None}
    for entry, old in named_claims(before, known):
        if entry in entries:
            name = f"{old.claim.name}/successor"
            claim = replace(old.claim, name=name, uid=f"{old.claim.uid}/successor", allocation=None, reserved_for=())
            snapshot = snapshot.with_claim(replace(old, claim=replace(claim, owner_uid=uid), allocated_at=None))
            statuses[entry] = name
    new = replace(unbound(before), uid=uid, started="", claim_statuses=statuses)
    return new, snapshot.with_pod(new)


def _order(pod: Pod) -> tuple[int, str, str]:
    return pod.order
