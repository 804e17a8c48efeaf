"""``edits``: requests of pending pods, with other values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Self

from allocator import ClaimSpec, DeviceRequest, Problem, Request
from allocator.tools import JSON, Fields, hint
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.explain.explanation import unknown_pod
from extender.kube.api import ObjectKey
from extender.planning.planned_pods import as_planned
from extender.pods.claims import named_claims
from extender.whatif.edits.edit import Edit, refuse_unknown
from extender.whatif.edits.request_values import VALUES, read_values, written
from extender.whatif.fork import Fork

_FIELDS: Final = VALUES | {"pod", "claim", "request"}


@dataclass(frozen=True, slots=True)
class EditRequest(Edit):
    """A request of a pending pod, with other values.

    Attributes:
        at: path of the edit in the question.
        claim: the entry in the pod's ``spec.resourceClaims``; empty: the only one that has the request.
        request: name of a request, or of a subrequest as ``request/subrequest``.
        values: fields of `allocator.DeviceRequest` to the new values.
    """

    field: ClassVar[str] = "edits"
    words: ClassVar[str] = "requests of pending pods, with other values"
    example: ClassVar[JSON] = {"pod": "demo/eagle", "request": "gpu", "count": 2}

    at: str
    pod: ObjectKey
    claim: str
    request: str
    values: Mapping[str, object]

    @classmethod
    def read(cls, question: Fields) -> Sequence[Self]:
        """An edit for each entry."""
        return [cls._read(each) for each in question.children(cls.field)]

    @classmethod
    def _read(cls, fields: Fields) -> Self:
        refuse_unknown(fields, _FIELDS)
        pod, request = _pod_key(fields), fields.required_text("request")
        if not any(fields.has(name) for name in VALUES):
            fields.problem("", f"changes nothing: give it {', '.join(sorted(VALUES))}")
        return cls(fields.path, pod, fields.text("claim"), request, read_values(fields))

    @property
    def names(self) -> Sequence[str]:
        """The request."""
        return (f"request {self.request} of pod {self.pod} {self.claim}".rstrip(),)

    def apply(self, fork: Fork) -> None:
        """Change the pod's claim; a claim that is not made from its template yet is made."""
        pod = fork.snapshot.pods.get(self.pod)
        if pod is None or not pod.is_pending:
            text = unknown_pod(self.pod, fork.snapshot.pods) if pod is None else f"pod {self.pod} is not pending"
            fork.problems.append(Problem(f"{self.at}.pod", text))
            return
        gang = pod.gang
        pod, snapshot = as_planned(pod, fork.snapshot)
        fork.snapshot = snapshot.with_pod(replace(pod, gang=gang))
        found = self._edited(pod, fork.snapshot)
        if isinstance(found, Problem):
            fork.problems.append(found)
            return
        fork.snapshot = fork.snapshot.with_claim(found)
        fork.edited.append(self.pod)

    def _edited(self, pod: Pod, snapshot: Snapshot) -> ClaimObject | Problem:
        """The claim with the edited request; or what is wrong with the edit."""
        claims = dict(named_claims(pod, snapshot))
        if not claims:
            why = "asks by extended resources only" if pod.containers else "has no claim that is known"
            return Problem(f"{self.at}.pod", f"pod {pod} {why}: it has no requests to edit")
        if self.claim and self.claim not in claims:
            known = hint(self.claim, claims)
            return Problem(f"{self.at}.claim", f"pod {pod} has no entry {self.claim} in spec.resourceClaims{known}")
        having = {
            name: each
            for name, each in claims.items()
            if self.claim in ("", name) and any(label == self.request for label, _ in _requests(each.claim.spec))
        }
        if not having:
            labels = [label for each in claims.values() for label, _ in _requests(each.claim.spec)]
            known = hint(self.request, labels) or f": it has {', '.join(labels)}"
            return Problem(f"{self.at}.request", f"pod {pod} has no request {self.request}{known}")
        if len(having) > 1:
            text = f"claims {', '.join(having)} of pod {pod} have a request {self.request}: say which claim"
            return Problem(f"{self.at}.claim", text)
        ((name, found),) = having.items()
        if found.claim.allocation is not None:
            return Problem(f"{self.at}.request", f"claim {name} of pod {pod} is allocated already")
        spec = _with_values(found.claim.spec, self)
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


def _with_values(spec: ClaimSpec, edit: EditRequest) -> ClaimSpec:
    def of_request(request: Request) -> Request:
        found = tuple(
            replace(each, **edit.values) if request.label(each) == edit.request else each  # type: ignore[arg-type]
            for each in request.alternatives
        )
        return replace(request, alternatives=found)

    return replace(spec, requests=tuple(map(of_request, spec.requests)))


def _pod_key(fields: Fields) -> ObjectKey:
    namespace, _, name = fields.required_text("pod").rpartition("/")
    return ObjectKey(namespace or "default", name)
