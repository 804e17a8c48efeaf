"""Extended resources that device classes serve (KEP-5004): the special claim that a pod needs for them, on one node.

Arithmetic alone: which requests, for how many devices, and which container gets the devices of which request.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from allocator import MAX_RESULTS, Claim, ClaimSpec, DeviceRequest, Quantity, Request
from extender.state.objects import SPECIAL, ClaimObject, Container, ExtendedRequest, Pod, RequestMapping

_ONE: Final = Quantity.from_int(1).nano

UNMADE: Final = "-extended-resources"
"""Follows a pod's name in that of its special claim; follows a pod's uid in place of the claim's, which is to come."""

_LONGEST_NAME: Final = 253


class DemandError(ValueError):
    """What the containers ask for can be no claim; the text says why, the same from try to try."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a special claim asks for.

    Attributes:
        spec: one request per container and resource, by name.
        mappings: a container whose needs several requests serve has several.
    """

    spec: ClaimSpec
    mappings: tuple[RequestMapping, ...]


@dataclass(frozen=True, slots=True)
class _Need:
    """Devices for one resource of one container; ``name`` is that of the request, should it get one of its own."""

    container: Container
    name: str
    count: int


@dataclass(frozen=True, slots=True)
class _Own:
    """A request: devices beyond those that others' requests provide."""

    name: str
    count: int


def demand(pod: Pod, classes: Mapping[str, str]) -> Demand:
    """What a pod asks of device classes.

    Containers that run for long, sidecars among them, each have a request of their own per resource. An init container
    that ends before others start uses theirs, from its own place on; of what is missing then only the largest is
    requested, for all such containers of the pod.

    Args:
        pod: its containers' requests count.
        classes: the resources that are to be served, each with its device class.

    Raises:
        DemandError: an amount is no whole number, or more devices than a claim can hold.
    """
    requests: list[Request] = []
    mappings: list[RequestMapping] = []
    for resource, device_class in sorted(classes.items()):
        own, shares = _served(list(_needs(pod, resource)))
        requests += [_request(each, device_class) for each in own]
        mappings += [RequestMapping(need.container.name, resource, name) for need, name in shares]
    total = sum(alternative.count for each in requests for alternative in each.alternatives)
    if total > MAX_RESULTS:
        raise DemandError(f"extended resources need {total} devices, a claim can hold {MAX_RESULTS}")
    return Demand(ClaimSpec(requests=tuple(sorted(requests, key=lambda each: each.name))), tuple(mappings))


def wanted(pod: Pod) -> tuple[str, ...]:
    """The extended resources of which a pod's containers ask for any, by name."""
    asked = (each for container in pod.containers for each in container.requests)
    return tuple(sorted({each.resource for each in asked if each.amount.nano}))


def _needs(pod: Pod, resource: str) -> Iterator[_Need]:
    for container in pod.containers:
        for each in container.requests:
            count = _count(container, each) if each.resource == resource else 0
            if count:
                yield _Need(container, f"container-{container.index}-request-{each.index}", count)


def _count(container: Container, request: ExtendedRequest) -> int:
    count, rest = divmod(request.amount.nano, _ONE)
    if rest or count < 0:
        wrong = "is negative" if count < 0 else "is not a whole number"
        raise DemandError(f"container {container.name} asks for {request.amount} of {request.resource}, which {wrong}")
    return count


def _served(needs: Sequence[_Need]) -> tuple[list[_Own], list[tuple[_Need, str]]]:
    """The requests for one resource, and for each need the names of those that serve it."""
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


def _lasts(container: Container) -> bool:
    return not container.is_init or container.restarts


def _request(own: _Own, device_class: str) -> Request:
    return Request(name=own.name, alternatives=(DeviceRequest(device_class=device_class, count=own.count),))


# --- the special claim --------------------------------------------------------------------------------------


def special_claim(pod: Pod, spec: ClaimSpec) -> ClaimObject:
    """The claim that is to be made for a pod.

    Its name follows from the pod and the requests, so that making it twice makes it once. Until it is made, a uid of
    ours stands for the one that it will have.
    """
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
    requests = [
        {"name": each.name, "exactly": {"deviceClassName": own.device_class, "count": own.count}}
        for each in spec.requests
        for own in each.alternatives
    ]
    raw = {"metadata": metadata, "spec": {"devices": {"requests": requests}}}
    return ClaimObject(claim, resource_version="", created="", raw=orjson.dumps(raw))


def is_ours(claim: ClaimObject, pod_name: str) -> bool:
    """Whether a special claim was made by us: other schedulers let the API server find its name."""
    pod = Pod(claim.claim.namespace, pod_name, claim.claim.owner_uid or "")
    return claim.claim.name == _name(pod, claim.claim.spec)


def _name(pod: Pod, spec: ClaimSpec) -> str:
    asked = [(each.name, own.device_class, own.count) for each in spec.requests for own in each.alternatives]
    suffix = f"{UNMADE}-{hashlib.sha256(f'{pod.uid} {asked}'.encode()).hexdigest()[:10]}"
    return f"{pod.name[: _LONGEST_NAME - len(suffix)].rstrip('-.')}{suffix}"
