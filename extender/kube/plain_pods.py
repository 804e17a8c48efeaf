"""Pods that use no devices: most pods of a cluster. What counts of them is read from their JSON, and nothing else.

The JSON is read by its structure. A search for bytes takes longer, and can be wrong: labels may have any name.
"""

import sys
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypedDict

import msgspec

from extender.kube.api import ObjectKey, revision

_Amounts = dict[str, str] | None


class PlainPod(NamedTuple):
    """The facts that count of a pod that certainly uses no devices and is in no PodGroup.

    Attributes:
        revision: of the pod, as a number of at least 1.
        spec: its containers, overhead and resources, as far as they say what the pod requests.
        is_over: the pod is gone, or will never run again.
    """

    key: ObjectKey
    revision: int
    node_name: str
    is_over: bool
    spec: Mapping[str, object]


class _Resources(TypedDict, total=False):
    requests: _Amounts
    limits: _Amounts


class _Container(TypedDict, total=False):
    resources: _Resources | None
    restartPolicy: str | None


class _Spec(TypedDict, total=False):
    nodeName: str
    containers: list[_Container]
    initContainers: list[_Container]
    overhead: _Amounts
    resources: _Resources | None
    resourceClaims: msgspec.Raw
    schedulingGroup: msgspec.Raw


class _Metadata(TypedDict):
    name: str
    namespace: str
    resourceVersion: str


class _Status(TypedDict, total=False):
    phase: str


class _Pod(msgspec.Struct, gc=False):
    metadata: _Metadata
    spec: _Spec
    status: _Status = {}


class _Event(msgspec.Struct, gc=False):
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: _Pod


_pod: Final = msgspec.json.Decoder(_Pod)
_event: Final = msgspec.json.Decoder(_Event)

_FINISHED: Final = frozenset({"Succeeded", "Failed"})
"""The phases of pods that will never run again."""

_NO_CLAIMS: Final = msgspec.Raw(b"[]")
_SOME_CLAIMS: Final = b'"resourceClaims":[{'
"""Found without decoding the pod; a pod that has this elsewhere is decoded in full."""

_UNUSUAL: Final = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""What is no JSON, or has a field of another type: such a pod has to be decoded."""


def plain_pod(text: bytes | msgspec.Raw) -> PlainPod | None:
    """The pod of a JSON text; None if it may use devices, or has to be decoded for another reason."""
    try:
        return _plain(_pod.decode(text), is_gone=False)
    except _UNUSUAL:
        return None


def plain_pod_of_event(line: bytes) -> PlainPod | None:
    """The pod of a line of a watch, as `plain_pod`; None for bookmarks and errors, too."""
    if _SOME_CLAIMS in line:
        return None
    try:
        event = _event.decode(line)
    except _UNUSUAL:
        return None
    return _plain(event.object, is_gone=event.type == "DELETED")


def _plain(pod: _Pod, *, is_gone: bool) -> PlainPod | None:
    metadata, spec = pod.metadata, pod.spec
    if spec.get("resourceClaims", _NO_CLAIMS) != _NO_CLAIMS or "schedulingGroup" in spec:
        return None
    for containers in (spec.get("containers", ()), spec.get("initContainers", ())):
        for each in containers:
            if (resources := each.get("resources")) and _has_domains(resources):
                return None
    key, at = ObjectKey(sys.intern(metadata["namespace"]), metadata["name"]), revision(metadata["resourceVersion"])
    if not (at and key.namespace and key.name):
        return None
    return PlainPod(key, at, spec.get("nodeName", ""), is_gone or pod.status.get("phase") in _FINISHED, spec)


def _has_domains(resources: _Resources) -> bool:
    """Whether a container names a resource with a domain, as those that stand for devices."""
    for amounts in (resources.get("requests"), resources.get("limits")):
        for name in amounts or ():
            if "/" in name:
                return True
    return False
