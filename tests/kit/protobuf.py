"""Kubernetes' objects as protocol buffers, made from the API's JSON."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from extender.faces.grpc import messages

Object = Mapping[str, Any]

_SOURCES = frozenset({"persistentVolumeClaim", "ephemeral"})


def encoded(name: str, value: Object) -> bytes:
    """The bytes of a message, with the fields that `extender.faces.grpc.messages` declares."""
    message = messages.new(name)
    _fill(message, value)
    return bytes(message.SerializeToString())


def request(options: Mapping[str, tuple[int, Sequence[Object]]], nodes: Mapping[str, Object]) -> bytes:
    """A BestOptionsRequest: group to the number of nodes and the pods, and group to its node."""
    message = messages.new("BestOptionsRequest")
    for name, (count, pods) in options.items():
        data = [encoded("Pod", pod) for pod in pods]
        message.options.add(nodeGroupId=name, nodeCount=count, podBytes=data)
    for name, node in nodes.items():
        message.nodeBytesMap[name] = encoded("Node", node)
    return bytes(message.SerializeToString())


def answer(data: bytes) -> list[tuple[str, int, str]]:
    """The options of a BestOptionsResponse: group, number of nodes, reason."""
    message = messages.read("BestOptionsResponse", data)
    return [(each.nodeGroupId, each.nodeCount, each.debug) for each in message.options]


def _fill(message: Any, value: Mapping[str, Any]) -> None:
    for field in message.DESCRIPTOR.fields:
        if field.name == "volumeSource":
            source = {key: each for key, each in value.items() if key in _SOURCES}
            if source:
                _fill(message.volumeSource, source)
        elif (inner := value.get(field.name)) is None:
            continue
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            _fill_map(getattr(message, field.name), inner)
        elif field.is_repeated:
            for each in inner:
                _append(getattr(message, field.name), each)
        elif field.message_type is not None:
            _set(getattr(message, field.name), inner)
        else:
            setattr(message, field.name, inner)


def _fill_map(entries: Any, value: Mapping[str, Any]) -> None:
    for key, each in value.items():
        if (
            hasattr(entries, "GetEntryClass")
            and entries.GetEntryClass().DESCRIPTOR.fields_by_name["value"].message_type
        ):
            _set(entries[key], each)
        else:
            entries[key] = each


def _append(values: Any, value: Any) -> None:
    if hasattr(values, "add"):
        _set(values.add(), value)
    else:
        values.append(value)


def _set(message: Any, value: Any) -> None:
    message.SetInParent()
    match message.DESCRIPTOR.name:
        case "Quantity":
            message.string = str(value)
        case "Time":
            message.seconds = int(datetime.fromisoformat(value).timestamp())
        case _:
            _fill(message, value)
