"""Raw objects of an API server: key, version and events."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, NamedTuple

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import Resource


class EventType(Enum):
    """What happened to an object; the values are those of the watch API."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a watch, with the last state of a deleted object.

    Attributes:
        value: the object as `extender.cluster.snapshot_edit.read` returns it, if the sender has read it; else None.
    """

    type: EventType
    resource: Resource
    object: RawObject
    value: Any = None


def key_of(obj: Mapping[str, object]) -> ObjectKey:
    """Namespace and name of an object; empty where they are missing or no strings. Keys share their namespaces."""
    metadata = obj.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    namespace, name = found.get("namespace"), found.get("name")
    return ObjectKey(sys.intern(namespace) if isinstance(namespace, str) else "", name if isinstance(name, str) else "")


def revision_of(obj: RawObject) -> int:
    """The resourceVersion of an object as a number; 0 where there is none."""
    metadata = obj.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return revision(version) if isinstance(version, str) else 0


class Version(NamedTuple):
    """A state of an object: objects with equal versions are equal."""

    api_version: str
    uid: str
    resource_version: str


def version_of(obj: RawObject) -> Version | None:
    """The version of an object; None if it does not come from an API server."""
    metadata = obj.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    texts = obj.get("apiVersion"), found.get("uid"), found.get("resourceVersion")
    api_version, uid, resource_version = (text if isinstance(text, str) else "" for text in texts)
    if not uid or not resource_version:
        return None
    return Version(sys.intern(api_version), uid, resource_version)


_REVISION: Final = re.compile(r"[0-9]{1,20}")
"""A number of 64 bits."""


def revision(resource_version: str) -> int:
    """A resourceVersion as a number, which orders the writes of one API server; 0 if it is no number."""
    return int(resource_version) if _REVISION.fullmatch(resource_version) else 0


def timestamp(at: datetime) -> str:
    """A time in the format of API objects: UTC, whole seconds."""
    return f"{at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"
