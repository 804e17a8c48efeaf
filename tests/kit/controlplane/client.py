"""A client of a real API server, for tests: the extender's own protocol, plus watching and waiting.

It shares no code with the extender's client, so that a test which compares the two compares two things.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import httpx
import orjson

from extender.kube.api import ApiError, Listing, ObjectKey, OutcomeUnknownError, RawObject
from extender.kube.resources import RESOURCES, Resource
from tests.kit.controlplane.access import Access

NAMESPACES: Final = Resource("Namespace", "namespaces", "", ("v1",), namespaced=False)
PRIORITIES: Final = Resource("PriorityClass", "priorityclasses", "scheduling.k8s.io", ("v1",), namespaced=False)
LEASES: Final = Resource("Lease", "leases", "coordination.k8s.io", ("v1",), namespaced=True)

WAIT_SECONDS: Final = 20.0
"""How long a test waits for what takes a fraction of a second on an idle machine."""

_CALL_SECONDS: Final = 30.0
_MERGE_PATCH: Final = "application/merge-patch+json"
_APPLY_PATCH: Final = "application/apply-patch+yaml"

Condition = Callable[[RawObject | None], Any]
"""Of an object as it is now, or of None while there is none: what is true counts."""


class Event(NamedTuple):
    """One event of a watch: ADDED, MODIFIED, DELETED or BOOKMARK, and the object."""

    type: str
    object: RawObject


class Client:
    """One user's connection to one API server; it speaks the extender's `Api` protocol.

    Attributes:
        version: of resource.k8s.io, in what is sent and what comes back.
    """

    def __init__(self, http: httpx.AsyncClient, version: str = "v1") -> None:
        self._http = http
        self.version = version

    def speaking(self, version: str) -> "Client":
        """The same connection, with another version of resource.k8s.io."""
        return Client(self._http, version)

    def api_version(self, resource: Resource) -> str:
        """The version in which objects are sent and come back."""
        versions = resource.api_versions()
        return f"{resource.group}/{self.version}" if resource.group == "resource.k8s.io" else versions[0]

    async def read(self, path: str) -> RawObject:
        """Any path that gives a JSON object, e.g. ``/apis/resource.k8s.io``."""
        return await self._call("GET", path)

    async def get(self, resource: Resource, key: ObjectKey) -> RawObject:
        """One object as it is now."""
        return await self._call("GET", self._path(resource, key))

    async def list(self, resource: Resource, namespace: str = "") -> Listing:
        """All objects of a kind, of one namespace or of all. In lists they don't say themselves what they are."""
        found = await self._call("GET", self._path(resource, ObjectKey(namespace, "")))
        of_kind = {"apiVersion": found["apiVersion"], "kind": resource.kind}
        return Listing(tuple(of_kind | each for each in found["items"]), int(found["metadata"]["resourceVersion"]))

    async def select(self, resource: Resource, namespace: str, fields: Mapping[str, str]) -> tuple[RawObject, ...]:
        """Objects of one namespace whose fields have these values."""
        selector = quote(",".join(f"{name}={value}" for name, value in fields.items()))
        found = await self._call("GET", f"{self._path(resource, ObjectKey(namespace, ''))}?fieldSelector={selector}")
        return tuple(found["items"])

    async def create(self, resource: Resource, obj: RawObject) -> RawObject:
        """Make an object."""
        return await self._call("POST", self._path(resource, ObjectKey(key_of(obj).namespace, "")), obj)

    async def try_out(self, resource: Resource, obj: RawObject) -> RawObject:
        """What applying an object makes of it, whoever has its fields: nothing is kept, unknown fields are refused."""
        query = "dryRun=All&fieldManager=tests&fieldValidation=Strict&force=true"
        path = f"{self._path(resource, key_of(obj))}?{query}"
        return await self._call("PATCH", path, obj, _APPLY_PATCH)

    async def try_to_create(self, resource: Resource, obj: RawObject, namespace: str = "") -> RawObject:
        """What creating an object makes of it, as `kubectl create` does: a dry run, with strict decoding.

        Args:
            namespace: where it is sent; empty: to its own.
        """
        path = self._path(resource, ObjectKey(namespace or key_of(obj).namespace, ""))
        return await self._call("POST", f"{path}?dryRun=All&fieldValidation=Strict", obj)

    async def update(self, resource: Resource, obj: RawObject) -> RawObject:
        """Replace an object but for its status."""
        return await self._call("PUT", self._path(resource, key_of(obj)), obj)

    async def update_status(self, resource: Resource, obj: RawObject) -> RawObject:
        """Replace an object's status alone."""
        return await self._call("PUT", self._path(resource, key_of(obj)) + "/status", obj)

    async def patch(self, resource: Resource, key: ObjectKey, patch: RawObject) -> RawObject:
        """Merge into an object but for its status."""
        return await self._call("PATCH", self._path(resource, key), patch)

    async def patch_status(self, resource: Resource, key: ObjectKey, patch: RawObject) -> RawObject:
        """Merge into an object's status alone."""
        return await self._call("PATCH", self._path(resource, key) + "/status", patch)

    async def delete(self, resource: Resource, key: ObjectKey, *, uid: str = "", resource_version: str = "") -> None:
        """Delete an object at once: no kubelet will report that a pod has ended."""
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        options = {
            "gracePeriodSeconds": 0,
            "preconditions": {name: value for name, value in preconditions.items() if value},
        }
        await self._call("DELETE", self._path(resource, key), options)

    async def end(self, key: ObjectKey) -> None:
        """Delete a pod as a user does: it ends in its grace period, and its kubelet says when."""
        await self._call("DELETE", self._path(RESOURCES["Pod"], key))

    async def evict(self, key: ObjectKey) -> None:
        """Delete a pod as a drain does: by an eviction, which disruption budgets may refuse."""
        metadata = {"name": key.name, "namespace": key.namespace}
        eviction: RawObject = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        await self._call("POST", self._path(RESOURCES["Pod"], key) + "/eviction", eviction)

    async def bind_pod(self, key: ObjectKey, node: str, *, uid: str, resource_version: str = "") -> None:
        """Post the Binding of a pod."""
        metadata = {"name": key.name, "namespace": key.namespace, "uid": uid}
        if resource_version:
            metadata["resourceVersion"] = resource_version
        target = {"kind": "Node", "name": node}
        binding: RawObject = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        await self._call("POST", self._path(RESOURCES["Pod"], key) + "/binding", binding)

    async def watch(self, resource: Resource, key: ObjectKey, *, since: int) -> AsyncGenerator[Event, None]:
        """Events after a revision, until the server ends the watch.

        Args:
            key: of one object; without a name of all in that namespace, without a namespace of all.
            since: revision, e.g. of a `Listing`.
        """
        parameters = {"watch": "true", "resourceVersion": str(since), "allowWatchBookmarks": "true"}
        if key.name:
            parameters["fieldSelector"] = f"metadata.name={key.name}"
        path = self._path(resource, ObjectKey(key.namespace, ""))
        # Nothing may change for a long time: how long a watch takes is up to who watches.
        patient = httpx.Timeout(_CALL_SECONDS, read=None)
        async with self._http.stream("GET", path, params=parameters, timeout=patient) as response:
            if response.is_error:
                raise _refusal(response.status_code, await response.aread())
            async for line in response.aiter_lines():
                event = orjson.loads(line)
                if event["type"] == "ERROR":
                    status = event["object"]
                    raise ApiError(status["code"], status.get("reason", ""), status.get("message", ""))
                yield Event(event["type"], event["object"])

    async def wait_for(
        self, resource: Resource, key: ObjectKey, condition: Condition, *, within: float = WAIT_SECONDS
    ) -> RawObject | None:
        """Watch one object until the condition holds of it.

        Args:
            within: seconds.

        Returns:
            The object then; None where the condition holds of its absence.

        Raises:
            AssertionError: not within that time; with the object as it was last seen.
        """
        last: RawObject | None = None
        try:
            async with asyncio.timeout(within):
                async for last in self._states(resource, key):
                    if condition(last):
                        return last
        except TimeoutError:
            shown = orjson.dumps(last, option=orjson.OPT_INDENT_2).decode()
            raise AssertionError(f"{resource} {key}: not within {within:g} s; last seen:\n{shown}") from None
        raise AssertionError(f"the watch of {resource} {key} has ended")

    async def wait_gone(self, resource: Resource, key: ObjectKey, *, within: float = WAIT_SECONDS) -> None:
        """Wait until there is no such object."""
        await self.wait_for(resource, key, lambda obj: obj is None, within=within)

    async def _states(self, resource: Resource, key: ObjectKey) -> AsyncIterator[RawObject | None]:
        """An object as it is now and after each change; None while there is none."""
        while True:
            path = self._path(resource, ObjectKey(key.namespace, ""))
            found = await self._call("GET", f"{path}?fieldSelector=metadata.name%3D{key.name}")
            yield found["items"][0] if found["items"] else None
            async for event in self.watch(resource, key, since=int(found["metadata"]["resourceVersion"])):
                if event.type != "BOOKMARK":
                    yield None if event.type == "DELETED" else event.object

    def _path(self, resource: Resource, key: ObjectKey) -> str:
        version = self.version if resource.group == "resource.k8s.io" else resource.versions[0]
        root = f"/apis/{resource.group}/{version}" if resource.group else f"/api/{version}"
        namespace = f"/namespaces/{key.namespace}" if resource.namespaced and key.namespace else ""
        name = f"/{key.name}" if key.name else ""
        return f"{root}{namespace}/{resource.plural}{name}"

    async def _call(
        self, method: str, path: str, body: RawObject | None = None, patch_type: str = _MERGE_PATCH
    ) -> RawObject:
        media_type = patch_type if method == "PATCH" else "application/json"
        content = None if body is None else orjson.dumps(body)
        try:
            response = await self._http.request(method, path, content=content, headers={"Content-Type": media_type})
        except httpx.TransportError as error:
            raise OutcomeUnknownError(f"{method} {path}", repr(error)) from error
        if response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise OutcomeUnknownError(f"{method} {path}", f"{response.status_code} {response.text}")
        if response.is_error:
            raise _refusal(response.status_code, response.content)
        answer: RawObject = orjson.loads(response.content)
        return answer


@asynccontextmanager
async def connect(access: Access, version: str = "v1", *, user: str = "", node: str = "") -> AsyncIterator[Client]:
    """A client for one user, in the running event loop.

    Args:
        user: another user to act as, if ``access`` is an administrator's.
        node: the node that this user's token names, as that of a pod does.
    """
    impersonated = {"Impersonate-User": user} if user else {}
    if node:
        impersonated["Impersonate-Extra-authentication.kubernetes.io%2Fnode-name"] = node
    async with httpx.AsyncClient(
        base_url=access.url,
        headers={"Authorization": f"Bearer {access.token}", **impersonated},
        verify=_trusting(access.certificate),
        timeout=_CALL_SECONDS,
        trust_env=False,
    ) as http:
        yield Client(http, version)


def key_of(obj: RawObject) -> ObjectKey:
    """Where an object is."""
    metadata = obj["metadata"]
    return ObjectKey(metadata.get("namespace", ""), metadata.get("name", ""))


@cache
def _trusting(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certificate)


def _refusal(code: int, body: bytes) -> ApiError:
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ApiError(code, "", body.decode(errors="replace"))
    return ApiError(code, status.get("reason", ""), status.get("message", ""))
