"""Pods as plans judge them: alone, off their node, and with all of their claims made."""

from dataclasses import replace
from typing import Final

from extender.cluster.consumers import without_pods
from extender.cluster.objects.pods import NOTHING_KEPT, Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.cycle import refreshed
from extender.framework.pods.claims import claim_from_template
from extender.kube.api import ObjectKey

TIED: Final = {"DaemonSet": "{} runs it on this node", "Node": "it is a static pod of its node"}
"""Kinds of controllers whose pods run again on the same node only, with the reason."""


def as_planned(pod: Pod, fork: Snapshot) -> tuple[Pod, Snapshot]:
    """The pod with the names of its claims, and the cluster with those that are not made from their templates yet.

    A pod that runs somewhere, and is asked about without a node, is to move: first its devices are free again. A pod of
    a gang is judged alone.
    """
    pod, known = replace(refreshed(pod, fork), gang=None), fork.pod(pod.uid)
    if known is not None and known.node_name and not pod.node_name:
        fork = without_pods(fork, [known])
    for reference in pod.claims:
        name = pod.claim_statuses.get(reference.name, f"{pod.name}/{reference.name}")
        if name is None or ObjectKey(pod.namespace, name) in fork.claims:
            continue
        claim = claim_from_template(pod, reference, name, fork)
        if claim is not None:
            fork = fork.with_claim(claim)
            pod = replace(pod, claim_statuses={**pod.claim_statuses, reference.name: name})
    return pod, fork


def unbound(pod: Pod) -> Pod:
    """The pod that a controller makes in place of this one, once this one is deleted."""
    new = replace(pod, node_name="", nominated_node="", kept=NOTHING_KEPT, extended_claim=None)
    return replace(new, phase="Pending", has_started=False)
