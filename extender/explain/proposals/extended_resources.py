"""Changes to the extended resources that a pod's containers request; device classes serve them (KEP-5004)."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from allocator import Quantity, RemedyKind, Wanted
from extender.cluster.objects.pods import ExtendedRequest, Pod, RequestingContainer
from extender.explain.change import Fork, ProposedChange
from extender.pods.extended_resources.requests import request_name

_ONE: Final = Quantity.from_int(1).nano


def request_fewer(pod: Pod, wanted: Wanted, less: int) -> Iterator[ProposedChange]:
    """Request fewer devices of an extended resource.

    Args:
        pod: requests the resource.
        wanted: a request of the pod's special claim.
        less: the number of devices to do without, fewer than the request has.
    """
    for container in pod.containers:
        for request in container.requests:
            if request_name(container, request) == wanted.request_name:
                yield _lowered(pod, container, request, request.amount.nano // _ONE, less)


def _lowered(
    pod: Pod, container: RequestingContainer, request: ExtendedRequest, asked: int, less: int
) -> ProposedChange:
    resource, count = request.resource, asked - less
    at = f"Pod {pod}, container {container.name}"
    by = pod.controller
    instead = f"change the pod template of {by} or of its owner" if by else "delete the pod and create it again"
    return ProposedChange(
        RemedyKind.ASK_FOR_LESS,
        f"{at}: {resource}",
        f"ask for {count} {resource} instead of {asked} in container {container.name}",
        f"in {at}, resources: write {resource}: {count}",
        _requesting(pod, container, replace(request, amount=Quantity.from_int(count))),
        size=less,
        immutable=f"the spec of pod {pod} is immutable: {instead}",
    )


def _requesting(pod: Pod, container: RequestingContainer, request: ExtendedRequest) -> Fork:
    """The fork in which a container has another request for a resource."""
    requests = tuple(request if each.index == request.index else each for each in container.requests)
    containers = tuple(
        replace(each, requests=requests) if each.index == container.index else each for each in pod.containers
    )
    return lambda snapshot: snapshot.with_pod(replace(snapshot.pods[pod.key], containers=containers))
