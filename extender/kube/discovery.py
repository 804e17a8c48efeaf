"""Discovery: the kinds that an API server serves, in which version and under which paths, and its feature gates.

Source of the gates: ``kubernetes_feature_enabled`` of k8s.io/component-base, a metric of each component since
Kubernetes 1.26. The account needs ``get`` of the path ``/metrics``.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from allocator import DEFAULTS_OF, GATES, NO_FEATURES, Features
from extender.kube.api import ApiError, ObjectKey, OutcomeUnknownError
from extender.kube.connection.transport import HttpReply, HttpRequest, Stream, Transport, TransportError, ask, succeeded
from extender.kube.resources import (
    DAEMON_SETS,
    EVENTS,
    LEASES,
    NAMESPACES,
    POOL_REQUESTS,
    PRIORITY_CLASSES,
    QUOTAS,
    RESOURCES,
    Resource,
)

_DISCOVERED: Final = (
    *RESOURCES.values(),
    *(DAEMON_SETS, EVENTS, LEASES, NAMESPACES, POOL_REQUESTS, PRIORITY_CLASSES, QUOTAS),
)

DISCOVERY_SECONDS: Final = 10.0

_quoted: Final = lru_cache(maxsize=1024)(partial(quote, safe=""))

_LEADING_DIGITS: Final = re.compile(r"[0-9]+")
"""Some distributions have a minor version such as ``36+``."""


class NotServedError(ApiError):
    """An API server does not serve a kind, in any version that we read."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        versions = ", ".join(resource.versions)
        super().__init__(HTTPStatus.NOT_FOUND, "NotFound", f"{resource} is not served in version {versions}")


@dataclass(frozen=True, slots=True)
class Served:
    """The served version of each kind, by kind."""

    versions: Mapping[str, str]

    def api_version(self, resource: Resource) -> str:
        """The ``apiVersion`` of a kind's objects. Raises NotServedError: the server does not have the kind."""
        if resource.is_foreign:
            return resource.api_versions()[0]
        if resource.kind not in self.versions:
            raise NotServedError(resource)
        version = self.versions[resource.kind]
        return f"{resource.group}/{version}" if resource.group else version

    def path(self, resource: Resource, key: ObjectKey | None = None, subresource: str = "") -> str:
        """The path of all objects of a kind, of those in a namespace (a key without name), or of one.

        Raises:
            NotServedError: the server does not have the kind.
        """
        parts = [_root(resource.group), self.api_version(resource).rpartition("/")[2]]
        if key is not None and key.namespace and resource.namespaced:
            parts += ["namespaces", _quoted(key.namespace)]
        parts.append(resource.plural)
        if key is not None and key.name:
            parts.append(_quoted(key.name))
        return "/".join([*parts, subresource] if subresource else parts)

    @property
    def missing(self) -> tuple[Resource, ...]:
        """The kinds that are not served, except optional ones."""
        return tuple(r for kind, r in RESOURCES.items() if kind not in self.versions and not r.optional)


async def discover(transport: Transport) -> Served:
    """Ask which kinds are served, and take the best version of each that we can read.

    Raises:
        ApiError: the server refuses to tell.
        OutcomeUnknownError: no answer.
    """
    groups = {resource.group for resource in _DISCOVERED}
    found = await asyncio.gather(*(_group(transport, group) for group in sorted(groups)))
    return Served({kind: version for versions in found for kind, version in versions.items()})


async def server_version(transport: Transport) -> tuple[int, int]:
    """Major and minor version of the server; zeros if it does not say.

    Raises:
        UnreachableError, OutcomeUnknownError: no answer.
    """
    found = await _read(transport, "/version")
    major, minor = (_LEADING_DIGITS.match(str(found.get(part, ""))) for part in ("major", "minor"))
    return (int(major[0]), int(minor[0])) if major and minor else (0, 0)


async def _group(transport: Transport, group: str) -> dict[str, str]:
    """The best version of each of our kinds in a group."""
    ours = [resource for resource in _DISCOVERED if resource.group == group]
    wanted = {version for resource in ours for version in resource.versions}
    versions = wanted & await _versions(transport, group)
    plurals = {version: await _plurals(transport, group, version) for version in sorted(versions)}
    best = {resource.kind: _best(resource, plurals) for resource in ours}
    return {kind: version for kind, version in best.items() if version}


def _best(resource: Resource, plurals: Mapping[str, frozenset[str]]) -> str:
    return next((v for v in resource.versions if resource.plural in plurals.get(v, ())), "")


async def _versions(transport: Transport, group: str) -> frozenset[str]:
    if not group:
        return frozenset(_texts(await _read(transport, "/api"), "versions"))
    versions = (await _read(transport, _root(group))).get("versions")
    return _names(versions, "version")


async def _plurals(transport: Transport, group: str, version: str) -> frozenset[str]:
    return _names((await _read(transport, f"{_root(group)}/{version}")).get("resources"), "name")


async def _read(transport: Transport, path: str) -> Mapping[str, Any]:
    """The document at a path of discovery; empty if there is no such path."""
    try:
        return await ask(transport, HttpRequest("GET", path), DISCOVERY_SECONDS)
    except ApiError as error:
        if error.is_missing:
            return {}
        raise


def _root(group: str) -> str:
    return f"/apis/{group}" if group else "/api"


def _names(items: object, field: str) -> frozenset[str]:
    found: Iterable[object] = items if isinstance(items, list) else ()
    return frozenset(item[field] for item in found if isinstance(item, dict) and isinstance(item.get(field), str))


def _texts(obj: Mapping[str, Any], field: str) -> list[str]:
    found = obj.get(field)
    return [item for item in found if isinstance(item, str)] if isinstance(found, list) else []


GATES_SECONDS: Final = 15.0
"""For all metrics of the server: on large clusters they are tens of megabytes."""

_METRICS: Final = HttpRequest("GET", "/metrics", headers={"Accept": "text/plain"})
_GATE: Final = re.compile(rb'kubernetes_feature_enabled\{(?:[^}]*,)?name="(\w+)"[^}]*\} ([01])\s*')


@dataclass(frozen=True, slots=True)
class ServerGates:
    """The feature gates that an API server tells.

    Attributes:
        gates: whether each gate of `allocator.GATES` is on; empty if the server does not tell.
        problem: why the server does not tell; empty if it does.
    """

    gates: Mapping[str, bool] = field(default_factory=dict)
    problem: str = ""


async def server_gates(transport: Transport) -> ServerGates:
    """Ask an API server which feature gates it has on. A problem is a part of the answer, not an error.

    A server does not tell gates that its version does not have. Such a gate is off on a server up to the version of our
    defaults: its fields do not exist there. On a newer server, the gate was removed because its feature stays as it is.
    """
    try:
        async with asyncio.timeout(GATES_SECONDS):
            told = await _gates_of_metrics(transport)
            is_newer = await server_version(transport) > DEFAULTS_OF
    except TimeoutError:
        return ServerGates(problem=f"{_METRICS}: no answer within {GATES_SECONDS:g} s")
    except (ApiError, OutcomeUnknownError, TransportError) as error:
        return ServerGates(problem=str(error))
    if not told:
        return ServerGates(problem=f"{_METRICS}: there is no metric kubernetes_feature_enabled")
    absent = Features() if is_newer else NO_FEATURES
    return ServerGates({name: told.get(name, getattr(absent, feature)) for name, feature in GATES.items()})


async def _gates_of_metrics(transport: Transport) -> dict[str, bool]:
    """All gates of the server; empty if it tells none."""
    told: dict[str, bool] = {}
    async with transport.stream(_METRICS) as answer:
        if answer.status != HTTPStatus.OK:
            body = b"".join([chunk async for chunk in answer.chunks()])
            succeeded(_METRICS, HttpReply(answer.status, body))
        async for line in _lines(answer):
            if found := _GATE.fullmatch(line):
                told[found[1].decode()] = found[2] == b"1"
            elif told:  # The lines of one metric are together.
                break
    return told


async def _lines(answer: Stream) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in answer.chunks():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
    yield rest
