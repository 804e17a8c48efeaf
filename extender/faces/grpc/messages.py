"""The messages of Cluster Autoscaler's expander, with Kubernetes' objects in them: declared, counted and decoded.

Sources: ``k8s.io/api/core/v1/generated.proto`` and ``k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto`` of
Kubernetes 1.36; ``expander/grpcplugin/protos/expander.proto`` of Cluster Autoscaler. Its releases up to 1.34.0 have the
fields 2 and 4, the later ones the fields 3 and 5. `extender.tools.protobuf` encodes and decodes messages. Their fields
are counted before: two bytes can become a hundred in memory.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from allocator.tools import JSON
from extender.framework.wire import WireError
from extender.tools.intake import Steps, at_once
from extender.tools.protobuf import Declarations, Messages

MOST_FIELDS: Final = 250_000
"""Of one message, with the messages in it. 2,000 pods in 100 node groups are 200,000; they are decoded one by one."""

FIELDS_A_STEP: Final = 1_000
"""Fields that are counted in one step: 0.2 ms."""

SHORT_BYTES: Final = 64 * 1024
"""A shorter message is not counted: decoded, it takes a few megabytes at most."""

_VARINT, _EIGHT_BYTES, _DELIMITED, _FOUR_BYTES = 0, 1, 2, 5
_FIXED: Final = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}
_MORE: Final = 0x80

_FIELD: Final = re.compile(r"\w+ ([\[{]?)(\w+)[\]}]?")

_Inner = Mapping[int, str]
"""By the number of a field, the name of the message in it."""


class FieldCounts:
    """Counts the fields of declared messages, with those of the messages in them."""

    def __init__(self, declarations: Declarations) -> None:
        self._inner: dict[str, _Inner] = {}
        for name, fields in declarations.items():
            self._inner[name] = {}
            for number, text in fields.items():
                found = _FIELD.fullmatch(text)
                bracket, kind = found.groups() if found else ("", "")
                if bracket == "{":  # an entry of a map is a message of a key and a value
                    entry = f"{name}.{number}"
                    self._inner[entry] = {2: kind} if kind in declarations else {}
                    self._inner[name] = {**self._inner[name], number: entry}
                elif kind in declarations:
                    self._inner[name] = {**self._inner[name], number: kind}

    def is_over(self, name: str, data: bytes) -> Steps[bool]:
        """Whether a message has more fields than it may have.

        Counting ends there, and where the bytes are no message. Short messages are not counted.
        """
        if len(data) <= SHORT_BYTES:
            return False
        parts = [(0, len(data), name)]
        count = 0
        while parts:
            at, end, message = parts.pop()
            inner = self._inner[message]
            while at < end:
                count += 1
                if count > MOST_FIELDS:
                    return True
                if count % FIELDS_A_STEP == 0:
                    yield
                tag, at = data[at], at + 1  # most numbers have one byte
                if tag >= _MORE:
                    tag, at = _varint(data, at - 1, end)
                kind = tag & 7
                if kind == _DELIMITED:
                    size, at = _varint(data, at, end)
                    found = inner.get(tag >> 3)
                    if found is not None and size:
                        parts.append((at, min(at + size, end), found))
                    at += size
                elif kind == _VARINT:
                    _, at = _varint(data, at, end)
                elif kind in _FIXED:
                    at += _FIXED[kind]
                else:  # a group: none of our messages has one, and fields may follow it
                    return True
        return False


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A number, and where it ends; at most ten bytes long."""
    value = shift = 0
    for each in range(at, min(at + 10, end)):
        byte = data[each]
        value |= (byte & 0x7F) << shift
        if byte < _MORE:
            return value, each + 1
        shift += 7
    return value, end


_AMOUNTS: Final = "{Quantity}"

MESSAGES: Final[Declarations] = {
    # --- grpcplugin -----------------------------------------------------------------------------------------
    "BestOptionsRequest": {1: "options [Option]", 2: "nodeMap {bytes}", 3: "nodeBytesMap {bytes}"},
    "BestOptionsResponse": {1: "options [Option]"},
    "Option": {1: "nodeGroupId string", 2: "nodeCount int", 3: "debug string", 4: "pod [bytes]", 5: "podBytes [bytes]"},
    # --- k8s.io/apimachinery --------------------------------------------------------------------------------
    "ObjectMeta": {
        1: "name string",
        3: "namespace string",
        5: "uid string",
        6: "resourceVersion string",
        8: "creationTimestamp Time",
        9: "deletionTimestamp Time",
        11: "labels {string}",
        12: "annotations {string}",
        13: "ownerReferences [OwnerReference]",
    },
    "OwnerReference": {
        1: "kind string",
        3: "name string",
        4: "uid string",
        5: "apiVersion string",
        6: "controller bool",
    },
    "Quantity": {1: "string string"},
    "Time": {1: "seconds int", 2: "nanos int"},
    # --- Pod ------------------------------------------------------------------------------------------------
    "Pod": {1: "metadata ObjectMeta", 2: "spec PodSpec", 3: "status PodStatus"},
    "PodSpec": {
        1: "volumes [Volume]",
        2: "containers [Container]",
        7: "nodeSelector {string}",
        10: "nodeName string",
        18: "affinity Affinity",
        19: "schedulerName string",
        20: "initContainers [Container]",
        22: "tolerations [Toleration]",
        25: "priority int",
        31: "preemptionPolicy string",
        32: f"overhead {_AMOUNTS}",
        33: "topologySpreadConstraints [TopologySpreadConstraint]",
        38: "schedulingGates [Named]",
        39: "resourceClaims [PodResourceClaim]",
        40: "resources ResourceRequirements",
        43: "schedulingGroup PodSchedulingGroup",
    },
    "PodSchedulingGroup": {1: "podGroupName string"},
    "PodStatus": {
        1: "phase string",
        2: "conditions [PodCondition]",
        7: "startTime Time",
        11: "nominatedNodeName string",
        15: "resourceClaimStatuses [PodResourceClaimStatus]",
        18: "extendedResourceClaimStatus PodExtendedResourceClaimStatus",
    },
    "PodCondition": {
        1: "type string",
        2: "status string",
        4: "lastTransitionTime Time",
        5: "reason string",
        6: "message string",
    },
    "Container": {
        1: "name string",
        6: "ports [ContainerPort]",
        8: "resources ResourceRequirements",
        24: "restartPolicy string",
    },
    "ContainerPort": {2: "hostPort int", 3: "containerPort int", 4: "protocol string"},
    "ResourceRequirements": {1: f"limits {_AMOUNTS}", 2: f"requests {_AMOUNTS}", 3: "claims [ResourceClaim]"},
    "ResourceClaim": {1: "name string", 2: "request string"},
    "PodResourceClaim": {1: "name string", 3: "resourceClaimName string", 4: "resourceClaimTemplateName string"},
    "PodResourceClaimStatus": {1: "name string", 2: "resourceClaimName string"},
    "PodExtendedResourceClaimStatus": {
        1: "requestMappings [ContainerExtendedResourceRequest]",
        2: "resourceClaimName string",
    },
    "ContainerExtendedResourceRequest": {1: "containerName string", 2: "resourceName string", 3: "requestName string"},
    "Volume": {1: "name string", 2: "volumeSource VolumeSource"},
    "VolumeSource": {10: "persistentVolumeClaim Present", 29: "ephemeral Present"},
    "TopologySpreadConstraint": {1: "maxSkew int", 2: "topologyKey string"},
    "Affinity": {1: "nodeAffinity NodeAffinity", 2: "podAffinity PodAffinity", 3: "podAntiAffinity PodAffinity"},
    "NodeAffinity": {1: "requiredDuringSchedulingIgnoredDuringExecution NodeSelector"},
    "PodAffinity": {
        1: "requiredDuringSchedulingIgnoredDuringExecution [Present]",
        2: "preferredDuringSchedulingIgnoredDuringExecution [Present]",
    },
    "NodeSelector": {1: "nodeSelectorTerms [NodeSelectorTerm]"},
    "NodeSelectorTerm": {
        1: "matchExpressions [NodeSelectorRequirement]",
        2: "matchFields [NodeSelectorRequirement]",
    },
    "NodeSelectorRequirement": {1: "key string", 2: "operator string", 3: "values [string]"},
    "Toleration": {
        1: "key string",
        2: "operator string",
        3: "value string",
        4: "effect string",
        5: "tolerationSeconds int",
    },
    "Named": {1: "name string"},
    "Present": {},
    # --- Node -----------------------------------------------------------------------------------------------
    "Node": {1: "metadata ObjectMeta", 2: "spec NodeSpec", 3: "status NodeStatus"},
    "NodeSpec": {3: "providerID string", 4: "unschedulable bool", 5: "taints [Taint]"},
    "Taint": {1: "key string", 2: "value string", 3: "effect string"},
    "NodeStatus": {1: f"capacity {_AMOUNTS}", 2: f"allocatable {_AMOUNTS}", 14: "declaredFeatures [string]"},
}

counts: Final = FieldCounts(MESSAGES)
_declared: Final = Messages(MESSAGES)
new, read = _declared.new, _declared.read


_INLINE: Final = "volumeSource"
"""The JSON of a volume has the fields of its source in itself."""

_NO_TIME: Final = -62135596800
"""The seconds of Go's zero time, which JSON writes as null."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_TIME: Final = 50_000_000_000
"""In the year 3554. What is later, or as early before 1970, is shortened: a datetime has a range."""


def decoding(name: str, data: bytes, where: str) -> Steps[Any]:
    """A message from its bytes, whose fields are counted in small steps.

    Args:
        name: of the message in `messages`.
        data: the bytes.
        where: the path of the bytes, for the error.

    Raises:
        WireError: the bytes are no such message, or have too many fields.
    """
    if (yield from counts.is_over(name, data)):
        raise WireError(where, f"is a {name} with more than {MOST_FIELDS} fields, or with groups")
    try:
        return read(name, data)
    except DecodeError as error:
        raise WireError(where, f"is not a {name} in protocol buffers: {error}") from error


def decoded(name: str, data: bytes, where: str) -> Any:  # noqa: ANN401  # as `messages.new`
    """Like `decoding`, at once."""
    return at_once(decoding(name, data, where))


def as_json(message: Message) -> dict[str, JSON]:
    """The API's JSON of a message; fields that are empty are left out, as Kubernetes does."""
    found: dict[str, JSON] = {}
    for field, value in message.ListFields():
        if field.name == _INLINE:
            found.update(as_json(value))
        elif _is_map(field):
            found[field.name] = {key: _json(each) for key, each in value.items()}
        elif field.is_repeated:
            found[field.name] = [_json(each) for each in value]
        elif (one := _json(value)) is not None:
            found[field.name] = one
    return found


def _is_map(field: Any) -> bool:  # noqa: ANN401  # a descriptor of protobuf
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _json(value: Any) -> JSON:  # noqa: ANN401  # a message or a scalar
    if not isinstance(value, Message):
        return value  # type: ignore[no-any-return]
    special = _SPECIAL.get(value.DESCRIPTOR.name)
    return special(value) if special else as_json(value)


def _time(value: Any) -> JSON:  # noqa: ANN401
    if value.seconds in {0, _NO_TIME}:
        return None
    seconds = max(-_LAST_TIME, min(value.seconds, _LAST_TIME))
    return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


_SPECIAL: Final[Mapping[str, Callable[[Any], JSON]]] = {"Quantity": lambda value: value.string or "0", "Time": _time}
