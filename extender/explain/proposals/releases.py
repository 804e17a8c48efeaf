"""Releases of devices that claims hold: the pods that use a claim are deleted, or the claim itself."""

from dataclasses import replace

from allocator import RemedyKind
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.explain.change import Fork, ProposedChange
from extender.explain.holders import in_words, users
from extender.kube.encoding import loads
from extender.writes.claims.claim_json import is_protected


def release(claim: ClaimObject, snapshot: Snapshot, priority: int) -> ProposedChange | None:
    """Free what a claim holds: by deleting the pods that use it, or, where there are none, the claim.

    Pods of a higher priority than that of the pod for which room is made are marked, and who makes a pod again is told.
    None: a consumer that is no pod uses the claim. How to end it is not known here.
    """
    if any(consumer.resource != "pods" for consumer in claim.claim.reserved_for):
        return None
    pods, held = users(claim, snapshot), in_words(claim, snapshot)
    known = [found for pod in pods if (found := snapshot.pods.get(pod)) is not None]
    facts = {found.key: _facts(found, priority) for found in known}
    named = [f"pod {pod}{facts.get(pod, '')}" for pod in pods]
    commands = [f"kubectl delete pod -n {pod.namespace} {pod.name}" for pod in pods]
    if not pods or _outlasts_pods(claim):
        named.append(f"claim {claim.key}")
        commands.append(_deletion(claim))
    frees = ", which frees" if pods else ", which no pod uses; this frees"
    return ProposedChange(
        RemedyKind.FREE,
        f"claim {claim.key}",
        f"delete {' and '.join(named)}{frees} {held}",
        "; ".join(commands),
        _freed(claim),
        size=max(1, len(pods)),
        weight=sum(found.priority for found in known),
        deletes=pods,
    )


def _facts(pod: Pod, priority: int) -> str:
    """What is to be known before a pod is deleted."""
    higher = f"of higher priority: {pod.priority}; " if pod.priority > priority else ""
    return f" ({higher}{pod.controller or 'no controller'} makes it again)"


def _outlasts_pods(claim: ClaimObject) -> bool:
    """Whether a claim stays allocated. Its controller deallocates only claims with the finalizer of schedulers."""
    is_own = claim.claim.allocation is not None and not (claim.claim.owner_uid or claim.claim.pod_group)
    return is_own and not is_protected(loads(claim.raw))


def renew(claim: ClaimObject, snapshot: Snapshot) -> ProposedChange:
    """Let a claim that no other pod uses be allocated again, with other devices."""
    held = in_words(claim, snapshot)
    text = f"delete claim {claim.key} and create it again, so that it gets other devices than {held}"
    return ProposedChange(RemedyKind.FREE, f"claim {claim.key}", text, _deletion(claim), _freed(claim), weight=-1)


def _freed(claim: ClaimObject) -> Fork:
    def fork(snapshot: Snapshot) -> Snapshot:
        found = snapshot.claims[claim.key]
        freed = replace(found, claim=replace(found.claim, allocation=None, reserved_for=()))
        return snapshot.with_claim(freed).without_assumed(claim.claim.uid)

    return fork


def _deletion(claim: ClaimObject) -> str:
    return f"kubectl delete resourceclaim -n {claim.key.namespace} {claim.key.name}"
