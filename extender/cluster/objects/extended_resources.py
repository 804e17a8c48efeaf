"""Extended resources of pods: what containers request of them, and the special claim that serves them (KEP-5004).

`MARKER` is a resource that stands for no device: by it a kube-scheduler knows whether to ask dra-extender about a pod.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from allocator import Quantity
from extender.cluster.resources import ContainerNeeds, peak

MARKER: Final = "dra-extender.dev/devices"
"""The resource that policies add to pods with devices. A kube-scheduler with `managedResources` asks about these only.

It is no device: nobody offers it, and pods neither get it nor wait for it.
"""

IMPLICIT_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of an extended resource that names a device class (KEP-5004)."""


@dataclass(frozen=True, slots=True)
class ExtendedRequest:
    """A container's request for an extended resource.

    Attributes:
        index: position in the sorted names of all resources that the container requests, with cpu and memory.
    """

    index: int
    resource: str
    amount: Quantity


@dataclass(frozen=True, slots=True)
class RequestingContainer:
    """A container that requests extended resources.

    Attributes:
        index: position in all containers of the pod, init containers first.
        is_init: it is an init container.
        restarts: its restartPolicy is Always, so as an init container it is a sidecar.
    """

    index: int
    name: str
    requests: tuple[ExtendedRequest, ...]
    is_init: bool = False
    restarts: bool = False


@dataclass(frozen=True, slots=True)
class RequestMapping:
    """A container gets the devices of a request of the special claim for one of its extended resources."""

    container: str
    resource: str
    request: str


@dataclass(frozen=True, slots=True)
class ExtendedClaim:
    """``status.extendedResourceClaimStatus``: the special claim, and which container gets which request."""

    claim_name: str
    mappings: tuple[RequestMapping, ...] = ()

    def as_json(self) -> dict[str, object]:
        """The field's JSON."""
        mappings = [
            {"containerName": m.container, "resourceName": m.resource, "requestName": m.request} for m in self.mappings
        ]
        return {"resourceClaimName": self.claim_name, "requestMappings": mappings}


def asked(containers: Iterable[RequestingContainer]) -> Mapping[str, int]:
    """The amount of each extended resource that containers of a pod need at their peak, in nano units, by name."""
    needs = (
        ContainerNeeds({own.resource: own.amount.nano for own in each.requests}, each.is_init, each.restarts)
        for each in containers
    )
    return dict(sorted(peak(needs).items()))
