"""Claims that kube-controller-manager makes for a pod from its templates and that are not known, and the pod with them.

kube-scheduler holds a pod until its claims exist, if its profile has `DynamicResources` at PreEnqueue. Without that, it
asks about a pod before. The template says already what the claim will need. The same serves where the claim is made,
and our watch does not show it yet.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from allocator import ClaimTemplate
from extender.cluster.consumers import claim_name
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import Pod, PodClaim
from extender.cluster.snapshot import Snapshot
from extender.framework.pods.claims import claim_from_template
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS


class Foreseen(NamedTuple):
    """A pod and its cluster as they will be once its claims are made. The claims have no version yet."""

    pod: Pod
    snapshot: Snapshot


def unmade(pod: Pod) -> Iterator[PodClaim]:
    """The entries of a pod with a template, for which the pod's status has no claim yet."""
    return (each for each in pod.claims if each.template_name and each.name not in pod.claim_statuses)


def unseen(pod: Pod, snapshot: Snapshot) -> Iterator[PodClaim]:
    """The entries of a pod whose claim the snapshot does not have; not those whose claim cannot be read."""
    for entry in pod.claims:
        key = ObjectKey(pod.namespace, claim_name(pod, entry) or "")
        if key.name and key not in snapshot.claims and (CLAIMS.kind, key) not in snapshot.problems:
            yield entry


def foreseen(pod: Pod, snapshot: Snapshot) -> Foreseen | None:
    """What will be once the claims of a pod are made and seen; None if none is missing, or if that is not certain.

    The claims of a gang are planned together. A claim of a PodGroup is made for all of its pods. A controller of
    negotiated claims writes to the claim. Such claims are waited for.
    """
    if pod.gang is not None or pod.pod_group or snapshot.controllers:
        return None
    entries = (*unmade(pod), *unseen(pod, snapshot))
    claims = {each.name: _claim_to_come(pod, each, snapshot) for each in entries}
    statuses = dict(pod.claim_statuses)
    for entry, claim in claims.items():
        if claim is None:
            return None
        statuses[entry] = claim.key.name
        snapshot = snapshot.with_claim(claim)
    return Foreseen(replace(pod, claim_statuses=statuses), snapshot) if claims else None


def _claim_to_come(pod: Pod, entry: PodClaim, snapshot: Snapshot) -> ClaimObject | None:
    """The claim of an entry, under a name that no claim can have; None if its template is not known."""
    found = claim_from_template(pod, entry, f"{pod.name}/{entry.name}", snapshot)
    template = snapshot.objects(ClaimTemplate).get(ObjectKey(pod.namespace, entry.template_name or ""))
    if found is None or template is None:
        return None
    return replace(found, claim=replace(found.claim, annotations=template.annotations))
