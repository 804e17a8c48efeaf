"""An API server in memory that writes down what is written to it, and now and then fails."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from extender.kube.api import ApiError, Listing, ObjectKey, OutcomeUnknownError, RawObject
from extender.kube.resources import PODS, Resource
from extender.lab.api import MemoryApi
from tests.corpus.chance import Draw
from tests.kit import virtualtime

_T = TypeVar("_T")

_REFUSALS: Final = (
    (409, "Conflict", "the object has been modified"),
    (403, "Forbidden", "not allowed"),
    (404, "NotFound", "not found"),
    (429, "TooManyRequests", "try again later"),
)


class RecordedApi:
    """Implements `extender.kube.api.Api`.

    Args:
        api: has the objects.
        draw: what fails.
        faults: the share of writes that fail.
        pauses: how long a write may be on its way, in seconds.

    Attributes:
        written: all writes since the list was emptied last: what was asked, and the error if there was one.
    """

    def __init__(self, api: MemoryApi, draw: Draw, faults: float, pauses: Sequence[float]) -> None:
        self._api = api
        self._draw = draw
        self._faults = faults
        self._pauses = pauses
        self.written: list[dict[str, Any]] = []

    def api_version(self, resource: Resource) -> str:
        return self._api.api_version(resource)

    async def get(self, resource: Resource, key: ObjectKey) -> RawObject:
        return await self._api.get(resource, key)

    async def list(self, resource: Resource) -> Listing:
        return await self._api.list(resource)

    async def select(self, resource: Resource, namespace: str, fields: Mapping[str, str]) -> tuple[RawObject, ...]:
        return await self._api.select(resource, namespace, fields)

    async def create(self, resource: Resource, obj: RawObject) -> RawObject:
        return await self._write("create", resource, None, obj, lambda: self._api.create(resource, obj))

    async def update(self, resource: Resource, obj: RawObject) -> RawObject:
        return await self._write("update", resource, None, obj, lambda: self._api.update(resource, obj))

    async def update_status(self, resource: Resource, obj: RawObject) -> RawObject:
        return await self._write("update status", resource, None, obj, lambda: self._api.update_status(resource, obj))

    async def patch(self, resource: Resource, key: ObjectKey, patch: RawObject) -> RawObject:
        return await self._write("patch", resource, key, patch, lambda: self._api.patch(resource, key, patch))

    async def patch_status(self, resource: Resource, key: ObjectKey, patch: RawObject) -> RawObject:
        call = self._api.patch_status
        return await self._write("patch status", resource, key, patch, lambda: call(resource, key, patch))

    async def delete(self, resource: Resource, key: ObjectKey, *, uid: str = "", resource_version: str = "") -> None:
        asked = {"uid": uid, "resourceVersion": resource_version}
        call = self._api.delete
        await self._write("delete", resource, key, asked, lambda: call(resource, key, **_given(uid, resource_version)))

    async def bind_pod(self, key: ObjectKey, node: str, *, uid: str, resource_version: str = "") -> None:
        asked = {"node": node, "uid": uid, "resourceVersion": resource_version}
        call = self._api.bind_pod
        await self._write("bind", PODS, key, asked, lambda: call(key, node, uid=uid, resource_version=resource_version))

    async def _write(
        self, verb: str, resource: Resource, key: ObjectKey | None, asked: object, call: Callable[[], Awaitable[_T]]
    ) -> _T:
        place = f"{verb} {resource.plural}" + (f" {key}" if key is not None else "")
        entry: dict[str, Any] = {"write": place, "asked": asked}
        self.written.append(entry)
        await virtualtime.elapse(self._draw.of(self._pauses))
        kind = self._draw.number(0, 5) if self._draw(self._faults) else -1
        try:
            _fail(kind, place)
            answer = await call()
            if kind > len(_REFUSALS):
                _lose(place)
        except (ApiError, OutcomeUnknownError) as error:
            entry["error"] = str(error)
            raise
        return answer


def _fail(kind: int, place: str) -> None:
    """What befalls a write before it arrives."""
    if 0 <= kind < len(_REFUSALS):
        raise ApiError(*_REFUSALS[kind])
    if kind == len(_REFUSALS):
        raise OutcomeUnknownError(place, "timed out")


def _lose(place: str) -> None:
    """The answer to a write that was done is lost."""
    raise OutcomeUnknownError(place, "connection reset")


def _given(uid: str, resource_version: str) -> dict[str, str]:
    return {"uid": uid, "resource_version": resource_version}
