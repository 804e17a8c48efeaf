"""Releases of devices that claims hold: the pods that use a claim are deleted, or the claim itself."""

from dataclasses import replace

from allocator import Kind
from extender.explain.changes import Change, Fork
from extender.explain.holders import in_words, users
from extender.state.objects import ClaimObject
from extender.state.snapshot import Snapshot


def release(claim: ClaimObject, snapshot: Snapshot) -> Change:
    """Free what a claim holds: by deleting the pods that use it, or, where there are none, the claim."""
    pods, held = users(claim, snapshot), in_words(claim, snapshot)
    if pods:
        text = f"delete {' and '.join(f'pod {pod}' for pod in pods)}, which frees {held}"
        how = "; ".join(f"kubectl delete pod -n {pod.namespace} {pod.name}" for pod in pods)
    else:
        text = f"delete claim {claim.key}, which no pod uses; this frees {held}"
        how = _deletion(claim)
    known = (snapshot.pods.get(pod) for pod in pods)
    weight = sum(pod.priority for pod in known if pod is not None)
    size = max(1, len(pods))
    return Change(Kind.FREE, f"claim {claim.key}", text, how, _freed(claim), size=size, weight=weight)


def renew(claim: ClaimObject, snapshot: Snapshot) -> Change:
    """Let a claim that nobody else uses be allocated again, elsewhere."""
    held = in_words(claim, snapshot)
    text = f"delete claim {claim.key} and create it again, so that it gets other devices than {held}"
    return Change(Kind.FREE, f"claim {claim.key}", text, _deletion(claim), _freed(claim), weight=-1)


def _freed(claim: ClaimObject) -> Fork:
    def fork(snapshot: Snapshot) -> Snapshot:
        found = snapshot.claims[claim.key]
        freed = replace(found, claim=replace(found.claim, allocation=None, reserved_for=()))
        return snapshot.with_claim(freed).without_assumed(claim.claim.uid)

    return fork


def _deletion(claim: ClaimObject) -> str:
    return f"kubectl delete resourceclaim -n {claim.key.namespace} {claim.key.name}"
