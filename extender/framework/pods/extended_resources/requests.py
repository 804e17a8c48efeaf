"""The special claim that a pod needs on a node for extended resources of device classes (KEP-5004).

It computes the requests, their numbers of devices, and for each container the requests whose devices it gets. A class
with members (a group resource) has a request for each member.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import orjson

from allocator import (
    MAX_RESULTS,
    Claim,
    ClaimSpec,
    ConstraintKind,
    ConstraintSpec,
    DeviceRequest,
    GroupResource,
    Quantity,
    Reason,
    Request,
)
from allocator.reason import Cause, request_noun
from extender.cluster.objects.claims import SPECIAL, ClaimObject
from extender.cluster.objects.extended_resources import ExtendedRequest, RequestingContainer, RequestMapping
from extender.cluster.objects.pods import Pod

_ONE: Final = Quantity.from_int(1).nano

UNMADE: Final = "-extended-resources"
"""Suffix of a pod's name in the name of its special claim; of a pod's uid in place of the uid of a claim to create."""

_LONGEST_NAME: Final = 253

NO_GROUPS: Final[Mapping[str, GroupResource]] = {}

_REQUEST: Final = re.compile(
    r"\b(?:request )?(?P<name>container-\d+-request-\d+)(?:-\d+-(?P<member>[a-z0-9]([-a-z0-9]*[a-z0-9])?))?(?![-\w])"
)


_TOO_MANY: Final = Cause(
    "too-many-devices", f"extended resources need {{detail}} devices, a claim can hold {MAX_RESULTS}"
)
_NO_COUNT: Final = Cause("no-count", "{detail}")


class DemandError(ValueError):
    """No claim can serve the containers' requests, for a reason."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason
        super().__init__(reason.in_words())


@dataclass(frozen=True, slots=True)
class SpecialRequests:
    """The content of a special claim: a request per container and resource, and which container gets which request."""

    spec: ClaimSpec
    mappings: tuple[RequestMapping, ...]


@dataclass(frozen=True, slots=True)
class _Need:
    """Devices for one resource of one container; ``name`` is the name of a request for it."""

    container: RequestingContainer
    name: str
    count: int


@dataclass(frozen=True, slots=True)
class _Own:
    """A request for devices that no other request provides."""

    name: str
    count: int


def demand(pod: Pod, classes: Mapping[str, str], groups: Mapping[str, GroupResource] = NO_GROUPS) -> SpecialRequests:
    """What a pod needs of device classes.

    Each container and sidecar has its own request per resource. An init container uses the devices of requests of
    containers that start after it; for the devices that it lacks then, there is one more request, as large as the
    largest lack of all init containers. Each group resource has requests and a constraint of its own.

    Args:
        pod: with its containers.
        classes: the resources to serve, with their device classes.
        groups: those device classes that stand for several others.

    Raises:
        DemandError: an amount is no whole number, or a claim cannot hold that many devices.
    """
    requests: list[Request] = []
    constraints: list[ConstraintSpec] = []
    mappings: list[RequestMapping] = []
    for resource, device_class in sorted(classes.items()):
        own, shares = _served(list(_needs(pod, resource)))
        names: dict[str, list[str]] = {}
        for each in own:
            made, rules = _requests(each, device_class, groups.get(device_class))
            requests += made
            constraints += rules
            names[each.name] = [one.name for one in made]
        mappings += [
            RequestMapping(need.container.name, resource, name) for need, share in shares for name in names[share]
        ]
    total = sum(alternative.count for each in requests for alternative in each.alternatives)
    if total > MAX_RESULTS:
        raise DemandError(Reason(_TOO_MANY, detail=str(total)))
    spec = ClaimSpec(tuple(sorted(requests, key=lambda each: each.name)), tuple(constraints))
    return SpecialRequests(spec, tuple(mappings))


def wanted(pod: Pod) -> tuple[str, ...]:
    """The extended resources that a pod's containers request, by name."""
    if not pod.containers:
        return ()
    asked = (each for container in pod.containers for each in container.requests)
    return tuple(sorted({each.resource for each in asked if each.amount.nano}))


def request_words(pod: Pod) -> Mapping[str, str]:
    """The words by which people know the requests of a special claim, by request name.

    Example: ``example.com/gpu of container main``.
    """
    return {
        request_name(container, each): f"{each.resource} of container {container.name}"
        for container in pod.containers
        for each in container.requests
    }


def request_nouns(pod: Pod) -> Callable[[str], str]:
    """What to call the requests of a pod, by label: those of its special claim by their resources and containers."""
    words = request_words(pod)
    return (lambda label: in_words(request_noun(label), words)) if words else request_noun


def in_words(text: str, words: Mapping[str, str]) -> str:
    """A text in which words replace the names of a special claim's requests."""
    return _REQUEST.sub(partial(_worded, words), text) if words else text


def _worded(words: Mapping[str, str], found: re.Match[str]) -> str:
    """``nic of example.com/pair of container main`` for the request of a member."""
    resource = words.get(found["name"])
    if resource is None:
        return found[0]
    return f"{found['member']} of {resource}" if found["member"] else resource


def request_name(container: RequestingContainer, request: ExtendedRequest) -> str:
    """The name of the request for one resource of a container, as Kubernetes has it."""
    return f"container-{container.index}-request-{request.index}"


def _needs(pod: Pod, resource: str) -> Iterator[_Need]:
    for container in pod.containers:
        for each in container.requests:
            count = _count(container, each) if each.resource == resource else 0
            if count:
                yield _Need(container, request_name(container, each), count)


def _count(container: RequestingContainer, request: ExtendedRequest) -> int:
    count, rest = divmod(request.amount.nano, _ONE)
    if rest or count < 0:
        wrong = "is negative" if count < 0 else "is not a whole number"
        text = f"container {container.name} asks for {request.amount} of {request.resource}, which {wrong}"
        raise DemandError(Reason(_NO_COUNT, detail=text))
    return count


def _served(needs: Sequence[_Need]) -> tuple[list[_Own], list[tuple[_Need, str]]]:
    """The requests for one resource, and for each need the names of the requests that serve it."""
    lasting = [need for need in needs if _lasts(need.container)]
    own = [_Own(need.name, need.count) for need in lasting]
    shares = [(need, need.name) for need in lasting]
    missing: list[tuple[_Need, int]] = []
    brief: list[tuple[_Need, str | None]] = []
    for need in needs:
        if _lasts(need.container):
            continue
        left = need.count
        for other in lasting:
            if left > 0 and other.container.index >= need.container.index:
                brief.append((need, other.name))
                left -= other.count
        if left > 0:
            brief.append((need, None))
            missing.append((need, left))
    if not missing:
        return own, [*shares, *((need, name) for need, name in brief if name is not None)]
    # The first of the largest.
    largest, count = max(missing, key=lambda pair: pair[1])
    return [*own, _Own(largest.name, count)], [*shares, *((need, name or largest.name) for need, name in brief)]


def _lasts(container: RequestingContainer) -> bool:
    return not container.is_init or container.restarts


def _requests(own: _Own, device_class: str, group: GroupResource | None) -> tuple[list[Request], list[ConstraintSpec]]:
    """The requests for some devices of a class, or for some group resources, with the constraints of these."""
    if group is None:
        return [Request(name=own.name, alternatives=(DeviceRequest(device_class=device_class, count=own.count),))], []
    total = own.count * sum(count for _, count in group.members)
    if total > MAX_RESULTS:
        raise DemandError(Reason(_TOO_MANY, detail=str(total)))
    found = [group_requests(group, f"{own.name}-{number}-") for number in range(own.count)]
    return [each for made, _ in found for each in made], [each for _, rules in found for each in rules]


# --- the special claim --------------------------------------------------------------------------------------


def special_claim(pod: Pod, spec: ClaimSpec) -> ClaimObject:
    """The special claim to create for a pod. Its name follows from the pod and the requests; its uid is provisional."""
    claim = Claim(
        namespace=pod.namespace,
        name=_name(pod, spec),
        uid=f"{pod.uid}{UNMADE}",
        spec=spec,
        owner_uid=pod.uid,
        annotations={SPECIAL: "true"},
        owner_name=pod.name,
    )
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
    metadata = {
        "namespace": claim.namespace,
        "name": claim.name,
        "annotations": dict(claim.annotations),
        "ownerReferences": [owner],
    }
    raw = {"metadata": metadata, "spec": {"devices": devices_json(spec.requests, spec.constraints)}}
    return ClaimObject(claim, resource_version="", created="", raw=orjson.dumps(raw))


def is_ours(claim: ClaimObject, pod_name: str) -> bool:
    """Whether we have created a special claim: other schedulers let the API server generate the name."""
    pod = Pod(claim.claim.namespace, pod_name, claim.claim.owner_uid or "")
    return claim.claim.name == _name(pod, claim.claim.spec)


def _name(pod: Pod, spec: ClaimSpec) -> str:
    asked: list[tuple[object, ...]] = [
        (each.name, own.device_class, own.count) for each in spec.requests for own in each.alternatives
    ]
    asked += [(each.attribute, *each.requests) for each in spec.constraints]
    suffix = f"{UNMADE}-{hashlib.sha256(f'{pod.uid} {asked}'.encode()).hexdigest()[:10]}"
    return f"{pod.name[: _LONGEST_NAME - len(suffix)].rstrip('-.')}{suffix}"


_NOT_IN_LABELS: Final = re.compile(r"[^a-z0-9]+")
_LONGEST: Final = 30
"""Characters of a class in the name of a request, which has 63."""


def group_requests(group: GroupResource, prefix: str = "") -> tuple[tuple[Request, ...], tuple[ConstraintSpec, ...]]:
    """The requests for one group resource, and the constraint over them if its devices have to match.

    Each request is named by its class: ``prefix`` and the name, with ``-`` for what no request name can have.
    """
    requests: list[Request] = []
    for number, (device_class, count) in enumerate(group.members):
        label = f"{prefix}{_NOT_IN_LABELS.sub('-', device_class)[:_LONGEST].strip('-')}"
        name = label if all(each.name != label for each in requests) else f"{label}-{number}"
        requests.append(Request(name, (DeviceRequest(device_class=device_class, count=count),)))
    if not group.match_attribute:
        return tuple(requests), ()
    names = tuple(each.name for each in requests)
    return tuple(requests), (ConstraintSpec(ConstraintKind.MATCH, group.match_attribute, names),)


def devices_json(requests: Iterable[Request], constraints: Iterable[ConstraintSpec]) -> dict[str, object]:
    """``spec.devices`` of a claim with these requests."""
    found: dict[str, object] = {
        "requests": [
            {"name": each.name, "exactly": {"deviceClassName": way.device_class, "count": way.count}}
            for each in requests
            for way in each.alternatives
        ]
    }
    rules = [{"requests": [*each.requests], "matchAttribute": each.attribute} for each in constraints]
    return {**found, "constraints": rules} if rules else found
