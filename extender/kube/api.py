"""An API server: the protocol of its calls, their errors, and raw objects with key, version and events.

The API in memory and the one behind HTTP implement the protocol. Texts of errors quote the API server and its webhooks,
so they are made printable here, whoever raises the error.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple, Optional, Protocol, TypeAlias

from allocator.tools import printable
from extender.kube.resources import Resource
from extender.tools.user_error import UserError

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


class ApiError(Exception):
    """The API server refused: the call has had no effect.

    Attributes:
        status: HTTP status, 400 to 499; 0 if no request was sent.
        reason: e.g. ``NotFound``, ``AlreadyExists``, ``Conflict``, ``Invalid``.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        self.status = status
        self.reason = reason
        self.message = printable(message)
        super().__init__(self.message)

    @property
    def is_conflict(self) -> bool:
        """The object has changed since it was read."""
        return self.status == 409 and self.reason == "Conflict"

    @property
    def is_missing(self) -> bool:
        """There is no such object."""
        return self.status == 404

    @property
    def is_over_quota(self) -> bool:
        """Whether a ResourceQuota has too little left for the object. The API server says so only in the message."""
        return self.status == 403 and "exceeded quota: " in self.message

    @property
    def is_of_ending_namespace(self) -> bool:
        """Whether an object cannot be made because its namespace is gone, or ends, as only the message says."""
        return self.is_missing or (self.status == 403 and "because it is being terminated" in self.message)


class UnreachableError(ApiError):
    """No request was sent: no connection could be made, or slow writes of its namespace left it no turn."""

    def __init__(self, operation: str, cause: str) -> None:
        super().__init__(0, "Unreachable", f"{operation}: {cause}")


class OutcomeUnknownError(Exception):
    """No answer, or a 5xx: the call may have had its effect, may have it later, or never."""

    def __init__(self, operation: str, cause: str) -> None:
        self.operation = operation
        self.cause = printable(cause)
        super().__init__(printable(f"{operation}: outcome unknown: {cause}"))


class AnswerTooLongError(OutcomeUnknownError):
    """An answer is longer than it may be, and was not read to its end. Asked again, it would be as long."""


class ConnectError(UserError):
    """There is no usable API server; each problem names what a person has to change."""


class WriteRefusedError(Exception):
    """A write that has not happened, and why, as printable text."""

    def __init__(self, text: str) -> None:
        super().__init__(printable(text))


class OverQuotaError(WriteRefusedError):
    """The API server does not create a claim: a ResourceQuota has too little left."""


class EventType(Enum):
    """The type of an event; the values are those of the watch API."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a watch, with the last state of a deleted object.

    Attributes:
        value: the object as `extender.cluster.snapshot_edit.read` returns it, if the sender has read it; else None.
        key, version, revision: of the object.
    """

    type: EventType
    resource: Resource
    object: RawObject
    value: Any = None
    key: ObjectKey = field(init=False)
    version: Optional["Version"] = field(init=False)
    revision: int = field(init=False)

    def __post_init__(self) -> None:
        version = version_of(self.object)
        object.__setattr__(self, "key", key_of(self.object))
        object.__setattr__(self, "version", version)
        object.__setattr__(
            self, "revision", revision_of(self.object) if version is None else revision(version.resource_version)
        )


def key_of(obj: Mapping[str, object]) -> ObjectKey:
    """Namespace and name of an object; empty where they are missing or no strings. Keys share their namespaces."""
    metadata = obj.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    namespace, name = found.get("namespace"), found.get("name")
    return ObjectKey(sys.intern(namespace) if isinstance(namespace, str) else "", name if isinstance(name, str) else "")


def revision_of(obj: RawObject) -> int:
    """The resourceVersion of an object as a number; 0 where there is none."""
    try:
        version = obj["metadata"]["resourceVersion"]
    except (KeyError, TypeError):
        return 0
    return revision(version) if isinstance(version, str) else 0


class Version(NamedTuple):
    """A state of an object: objects with equal versions are equal."""

    api_version: str
    uid: str
    resource_version: str

    def is_before(self, known: Optional["Version"]) -> bool:
        """Whether the state is older than one that is known; False where this cannot be told."""
        return known is not None and 0 < revision(self.resource_version) < revision(known.resource_version)


def version_of(obj: RawObject) -> Version | None:
    """The version of an object; None if it does not come from an API server."""
    metadata = obj.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    api_version, uid, resource_version = obj.get("apiVersion"), found.get("uid"), found.get("resourceVersion")
    if not (uid and resource_version and isinstance(uid, str) and isinstance(resource_version, str)):
        return None
    return Version(sys.intern(api_version) if isinstance(api_version, str) else "", uid, resource_version)


_REVISION: Final = re.compile(r"[0-9]{1,20}")
"""A number of 64 bits."""


@lru_cache(maxsize=64)  # those of one event are asked for five times
def revision(resource_version: str) -> int:
    """A resourceVersion as a number, which orders the writes of one API server; 0 if it is no number."""
    return int(resource_version) if _REVISION.fullmatch(resource_version) else 0


def timestamp(at: datetime) -> str:
    """A time in the format of API objects: UTC, whole seconds."""
    return f"{at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"
