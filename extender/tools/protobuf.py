"""Protocol buffer messages, declared by the numbers of the fields that are read or written; others are skipped.

A field is ``number: "name type"``. A type in brackets is repeated. A type in braces is the value of a map, whose keys
are strings. A capital letter begins the name of a message. Integers of 32 and 64 bits are the same on the wire; so are
messages and ``bytes``. All messages have the rules of proto3: an empty text is an absent one, as in Kubernetes' JSON.
"""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

Declarations = Mapping[str, Mapping[int, str]]
"""By the name of a message, its fields by number."""

_PACKAGE: Final = "dra_extender"
_FIELD: Final = re.compile(r"(\w+) ([\[{]?)(\w+)[\]}]?")
_SCALARS: Final = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "int": FieldDescriptorProto.TYPE_INT64,
    "bool": FieldDescriptorProto.TYPE_BOOL,
}


class Messages:
    """Declared messages. Their classes are made when the first is asked for.

    Args:
        declarations: of the messages. A message refers to others by their names.
    """

    def __init__(self, declarations: Declarations) -> None:
        self._declarations = declarations

    def new(self, name: str, /, **fields: object) -> Any:  # noqa: ANN401  # its attributes are its declared fields
        """A message of a declared name."""
        return self._classes[name](**fields)

    def read(self, name: str, data: bytes) -> Any:  # noqa: ANN401  # as `new`
        """A message from its bytes. Raises google.protobuf.message.DecodeError: the bytes are something else."""
        return self._classes[name].FromString(data)

    @cached_property
    def _classes(self) -> Mapping[str, type[Message]]:
        return declare(self._declarations)


def declare(messages: Declarations) -> Mapping[str, type[Message]]:
    """The classes of messages, by name.

    Raises:
        ValueError: the declaration of a field cannot be read.
    """
    file = FileDescriptorProto(name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for number, text in fields.items():
            _declare(message, number, text)
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in messages}


def _declare(message: DescriptorProto, number: int, text: str) -> None:
    found = _FIELD.fullmatch(text)
    if found is None:
        raise ValueError(f"message {message.name}, field {number}: {text!r}")
    name, bracket, kind = found.groups()
    if bracket == "{":
        entry = message.nested_type.add(name=f"{name[0].upper()}{name[1:]}Entry")
        entry.options.map_entry = True
        _add(entry, "key", 1, "string")
        _add(entry, "value", 2, kind)
        kind = f"{message.name}.{entry.name}"
    _add(message, name, number, kind, is_repeated=bool(bracket))


def _add(message: DescriptorProto, name: str, number: int, kind: str, *, is_repeated: bool = False) -> None:
    label = FieldDescriptorProto.LABEL_REPEATED if is_repeated else FieldDescriptorProto.LABEL_OPTIONAL
    scalar = _SCALARS.get(kind)
    if scalar is None:
        type_name, scalar = f".{_PACKAGE}.{kind}", FieldDescriptorProto.TYPE_MESSAGE
        message.field.add(name=name, number=number, label=label, type=scalar, type_name=type_name)
    else:
        message.field.add(name=name, number=number, label=label, type=scalar)
