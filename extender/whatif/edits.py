"""Edits of requests: which claim of a pod has the request, and the claim with the edited request."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from allocator import ClaimSpec, DeviceRequest, Problem, Request, hint
from extender.pods.claims import named_claims
from extender.state.objects.claims import ClaimObject
from extender.state.objects.pods import Pod
from extender.state.snapshot import Snapshot
from extender.whatif.question import RequestEdit
from extender.whatif.requests import written


def edited(edit: RequestEdit, pod: Pod, snapshot: Snapshot) -> ClaimObject | Problem:
    """The claim with the edited request; or what is wrong with the edit.

    Args:
        edit: of the pod.
        pod: its claims are in the snapshot.
        snapshot: a fork.
    """
    claims = dict(named_claims(pod, snapshot))
    if not claims:
        why = "asks by extended resources only" if pod.containers else "has no claim that is known"
        return Problem(f"{edit.at}.pod", f"pod {pod} {why}: it has no requests to edit")
    if edit.claim and edit.claim not in claims:
        known = hint(edit.claim, claims)
        return Problem(f"{edit.at}.claim", f"pod {pod} has no entry {edit.claim} in spec.resourceClaims{known}")
    having = {
        name: each
        for name, each in claims.items()
        if edit.claim in ("", name) and any(label == edit.request for label, _ in _requests(each.claim.spec))
    }
    if not having:
        labels = [label for each in claims.values() for label, _ in _requests(each.claim.spec)]
        known = hint(edit.request, labels) or f": it has {', '.join(labels)}"
        return Problem(f"{edit.at}.request", f"pod {pod} has no request {edit.request}{known}")
    if len(having) > 1:
        text = f"claims {', '.join(having)} of pod {pod} have a request {edit.request}: say which claim"
        return Problem(f"{edit.at}.claim", text)
    ((name, found),) = having.items()
    if found.claim.allocation is not None:
        return Problem(f"{edit.at}.request", f"claim {name} of pod {pod} is allocated already")
    spec = _with_values(found.claim.spec, edit)
    return replace(found, claim=replace(found.claim, spec=spec))


def editable(pod: Pod, snapshot: Snapshot) -> Iterator[Mapping[str, object]]:
    """The requests of a pod as an edit names and writes them. The claims of the pod are in the snapshot."""
    for name, each in named_claims(pod, snapshot):
        if each.claim.allocation is None:
            for label, request in _requests(each.claim.spec):
                yield {"claim": name, "request": label, **written(request)}


def _requests(spec: ClaimSpec) -> Iterator[tuple[str, DeviceRequest]]:
    for request in spec.requests:
        for each in request.alternatives:
            yield request.label(each), each


def _with_values(spec: ClaimSpec, edit: RequestEdit) -> ClaimSpec:
    def of_request(request: Request) -> Request:
        found = tuple(
            replace(each, **edit.values) if request.label(each) == edit.request else each  # type: ignore[arg-type]
            for each in request.alternatives
        )
        return replace(request, alternatives=found)

    return replace(spec, requests=tuple(map(of_request, spec.requests)))
