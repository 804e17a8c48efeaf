"""Checks that the API server allows what the extender needs."""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

import orjson

from extender.kube.api import ApiError, UnreachableError
from extender.kube.connection.transport import HttpRequest, Transport, ask
from extender.kube.discovery import Served
from extender.kube.resources import ADMISSION_CHECKS, CLAIMS, PODS, RESOURCES, WORKLOADS, Resource

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Permission:
    """A permission in a namespace; an empty namespace means all namespaces."""

    verb: str
    resource: Resource
    subresource: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        group = f".{self.resource.group}" if self.resource.group else ""
        subresource = f"/{self.subresource}" if self.subresource else ""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource.plural}{subresource}{group}{where}"


WRITES: Final = (
    Permission("update", CLAIMS),
    Permission("update", CLAIMS, "status"),
    Permission("create", PODS, "binding"),
    Permission("patch", PODS, "status"),
)
"""Without these, no pod with a claim can be bound, and no failed bind can be undone."""

EVICTS: Final = Permission("delete", PODS)
"""Needed for device preemption."""

LIFTS_GATES: Final = Permission("patch", PODS)
"""Needed to lift scheduling gates."""

ANSWERS_CHECKS: Final = (
    Permission("patch", ADMISSION_CHECKS, "status"),
    Permission("patch", WORKLOADS, "status"),
)
"""Needed to answer AdmissionChecks of Kueue."""

ALLOCATES: Final = Permission("update", CLAIMS, "binding")
"""From `ALLOCATES_SINCE` on, a status write that changes allocation or reservedFor needs this."""

ALLOCATES_SINCE: Final = (1, 36)


@dataclass(frozen=True, slots=True)
class Use:
    """The use that is made of an API server.

    Attributes:
        kinds: are listed and watched.
        writes: must be allowed, by whatever version of the server.
    """

    kinds: Collection[Resource] = tuple(RESOURCES.values())
    writes: Collection[Permission] = WRITES


USE: Final = Use()
"""Of all kinds, with the writes that every pod with claims needs."""


def needed(served: Served, version: tuple[int, int], use: Use) -> tuple[Permission, ...]:
    """The permissions to list and watch the served kinds, and to write.

    Args:
        served: the kinds that the server serves.
        version: the version of the server: major and minor.
        use: the use that is made of it.
    """
    kinds = [resource for resource in use.kinds if resource.kind in served.versions]
    reads = [Permission(verb, resource) for resource in kinds for verb in ("list", "watch")]
    return (*reads, *use.writes, *((ALLOCATES,) if version >= ALLOCATES_SINCE else ()))


def to_list(served: Served, resources: Iterable[Resource]) -> tuple[Permission, ...]:
    """The rights to list some kinds."""
    return tuple(Permission("list", resource) for resource in resources if resource.kind in served.versions)


async def denied(transport: Transport, permissions: Iterable[Permission]) -> tuple[Permission, ...]:
    """The permissions that we lack; none if the server does not let us ask.

    Raises:
        UnreachableError, OutcomeUnknownError: no answer.
    """
    asked = tuple(permissions)
    answers = await asyncio.gather(*(_is_allowed(transport, permission) for permission in asked))
    return tuple(permission for permission, allowed in zip(asked, answers, strict=True) if not allowed)


async def _is_allowed(transport: Transport, permission: Permission) -> bool:
    attributes = {
        "verb": permission.verb,
        "group": permission.resource.group,
        "resource": permission.resource.plural,
        "subresource": permission.subresource,
        "namespace": permission.namespace,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {name: value for name, value in attributes.items() if value}},
    }
    try:
        answer = await ask(transport, HttpRequest("POST", _REVIEWS, body=orjson.dumps(review)), _SECONDS)
    except UnreachableError:
        raise
    except ApiError:
        # The first list shows whether it is allowed.
        return True
    return bool(answer.get("status", {}).get("allowed"))
