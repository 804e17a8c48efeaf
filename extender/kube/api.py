"""The protocol of an API server, in raw JSON objects. The one in memory and the one behind HTTP implement it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from extender.kube.resources import Resource

RawObject: TypeAlias = dict[str, Any]
"""An API object as decoded JSON, with ``apiVersion`` and ``kind``. The receiver may change it."""


class ObjectKey(NamedTuple):
    """Namespace and name of an object; ``namespace`` is empty for kinds without namespaces."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a kind, as of one revision."""

    items: tuple[RawObject, ...]
    revision: int


class Api(Protocol):
    """The calls of the extender.

    All methods raise `ApiError` for a refusal, and `OutcomeUnknownError` if the outcome is not known. In a written
    object, ``metadata.resourceVersion`` and ``metadata.uid`` are preconditions.
    """

    def api_version(self, resource: Resource) -> str:
        """The ``apiVersion`` of a kind's objects, read and written."""
        ...

    async def get(self, resource: Resource, key: ObjectKey) -> RawObject:
        """One object, never from a cache of the server."""
        ...

    async def list(self, resource: Resource) -> Listing:
        """All objects of a kind, of all namespaces."""
        ...

    async def select(self, resource: Resource, namespace: str, fields: Mapping[str, str]) -> tuple[RawObject, ...]:
        """The first objects of a namespace whose fields have these values; a field is named by its path, with dots.

        The API server decides which fields of a kind can be selected.
        """
        ...

    async def create(self, resource: Resource, obj: RawObject) -> RawObject:
        """Create an object; its status is ignored."""
        ...

    async def update(self, resource: Resource, obj: RawObject) -> RawObject:
        """Replace an object, except its status."""
        ...

    async def update_status(self, resource: Resource, obj: RawObject) -> RawObject:
        """Replace an object's status."""
        ...

    async def patch(self, resource: Resource, key: ObjectKey, patch: RawObject) -> RawObject:
        """Merge (RFC 7386) into an object, except its status."""
        ...

    async def patch_status(self, resource: Resource, key: ObjectKey, patch: RawObject) -> RawObject:
        """Merge (RFC 7386) into an object's status."""
        ...

    async def delete(self, resource: Resource, key: ObjectKey, *, uid: str = "", resource_version: str = "") -> None:
        """Delete an object, or mark it deleted while it has finalizers; uid and version are preconditions."""
        ...

    async def bind_pod(self, key: ObjectKey, node: str, *, uid: str, resource_version: str = "") -> None:
        """Post the Binding of a pod; uid and version are preconditions."""
        ...
