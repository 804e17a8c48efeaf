"""Kubernetes' objects between protocol buffers and the API's JSON, as far as `messages` declares them."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from allocator.tools import JSON
from extender.grpc import messages
from extender.grpc.field_counts import MOST_FIELDS
from extender.verbs.wire import WireError

_INLINE: Final = "volumeSource"
"""The JSON of a volume has the fields of its source in itself."""

_NO_TIME: Final = -62135596800
"""The seconds of Go's zero time, which JSON writes as null."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_TIME: Final = 50_000_000_000
"""In the year 3554. What is later, or as early before 1970, is shortened: a datetime has a range."""


def decoded(name: str, data: bytes, where: str) -> Any:  # noqa: ANN401  # as `messages.new`
    """A message from its bytes.

    Args:
        name: of the message in `messages`.
        data: the bytes.
        where: the path of the bytes, for the error.

    Raises:
        WireError: the bytes are no such message, or have too many fields.
    """
    if messages.counts.is_over(name, data):
        raise WireError(where, f"is a {name} with more than {MOST_FIELDS} fields, or with groups")
    try:
        return messages.read(name, data)
    except DecodeError as error:
        raise WireError(where, f"is not a {name} in protocol buffers: {error}") from error


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
