"""API objects as JSON: fast for what is common, and able to read and write all that an API server takes."""

from typing import Any, Final

import orjson

from allocator import text as jsontext

_OPAQUE: Final = b'"parameters":'
"""Of opaque parameters an API server compares the bytes: they must be written as they were read."""


def loads(text: bytes) -> Any:  # noqa: ANN401 - JSON has any type
    """The value of a JSON text; bytes that are not UTF-8 become U+FFFD, as in Go.

    Raises:
        orjson.JSONDecodeError: the text is not JSON.
    """
    try:
        value = orjson.loads(text)
        is_exact = _OPAQUE not in text or _is_written(value, text) or not jsontext.opaque_parts(text.decode())
        return value if is_exact else _exactly(text)
    except orjson.JSONDecodeError as error:
        try:
            return _exactly(text)
        except ValueError:
            raise error from None


def dumps(value: object) -> bytes:
    """The JSON text of a value.

    Raises:
        TypeError: the value has something that JSON does not have.
    """
    try:
        return orjson.dumps(value, default=_fragment)
    except orjson.JSONEncodeError:
        # Only halves of surrogate pairs can't be encoded; written like this they are escapes of JSON.
        return jsontext.dumps(value).encode(errors="backslashreplace")


def _is_written(value: object, text: bytes) -> bool:
    """Whether a value is written as this text: quickly told, and true of most."""
    try:
        return orjson.dumps(value) == text
    except orjson.JSONEncodeError:
        return False


def _exactly(text: bytes) -> Any:  # noqa: ANN401 - JSON has any type
    return jsontext.loads(text.decode(errors="replace"))


def _fragment(value: object) -> orjson.Fragment:
    if isinstance(value, jsontext.Verbatim):
        return orjson.Fragment(value.text.encode(errors="backslashreplace"))
    raise TypeError(f"{type(value).__name__} is not JSON")
