"""API objects to and from JSON: fast for common objects, and complete for all that an API server accepts."""

from typing import Any, Final

import orjson

from allocator.tools import jsontext
from extender.tools.offload import Offload

_OPAQUE: Final = b'"parameters":'
"""An API server compares the bytes of opaque parameters: they must be written as they were read."""

_LONG_BYTES: Final = 16 * 1024
"""A longer text with opaque parameters is decoded off the loop: 1.5 MB of them take 10 ms."""


def loads(text: bytes) -> Any:  # noqa: ANN401 - JSON has any type
    """The value of a JSON text; bytes that are not UTF-8 become U+FFFD, as in Go.

    Raises:
        orjson.JSONDecodeError: the text is not JSON.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return _odd(text)
    return _exactly(text, value) if _OPAQUE in text else value


async def loads_aside(text: bytes, off_loop: Offload) -> Any:  # noqa: ANN401 - JSON has any type
    """Like `loads`, but texts that take long are decoded off the loop: a megabyte of thousands of levels takes 0.2 s.

    Raises:
        orjson.JSONDecodeError: the text is not JSON.
    """
    is_opaque = _OPAQUE in text
    if is_opaque and len(text) > _LONG_BYTES:
        return await off_loop(lambda: loads(text))
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return await off_loop(lambda: _odd(text))
    return _exactly(text, value) if is_opaque else value


def dumps(value: object) -> bytes:
    """The JSON text of a value. Raises TypeError: the value has something that JSON does not have."""
    try:
        return orjson.dumps(value, default=_fragment)
    except orjson.JSONEncodeError:
        # Only halves of surrogate pairs cannot be encoded; they become escapes of JSON.
        return jsontext.dumps(value).encode(errors="backslashreplace")


def copied(value: object) -> Any:  # noqa: ANN401 - JSON has any type
    """A value of JSON that shares nothing with this one."""
    return loads(dumps(value))


def dumped(value: object) -> bytes:
    """JSON to keep: a copy, because the bytes of orjson hold a buffer that may be many times larger."""
    return memoryview(dumps(value)).tobytes()


def _exactly(text: bytes, value: object) -> Any:  # noqa: ANN401 - JSON has any type
    """The value of a text with opaque parameters: those that would be written otherwise stay text.

    Args:
        text: of JSON.
        value: of the text, with all opaque parameters decoded.
    """
    if _is_written(value, text):
        return value
    decoded = text.decode()
    parts = jsontext.opaque_parts(decoded)
    return jsontext.with_opaque_parts(decoded, parts) if parts else value


def _is_written(value: object, text: bytes) -> bool:
    """Whether a value is encoded as this text: a quick test that most texts pass."""
    try:
        return orjson.dumps(value) == text
    except orjson.JSONEncodeError:
        return False


def _odd(text: bytes) -> Any:  # noqa: ANN401 - JSON has any type
    """The value of any JSON text that orjson does not read; raises orjson.JSONDecodeError for what is no JSON."""
    try:
        return jsontext.loads(text.decode(errors="replace"))
    except ValueError:
        return orjson.loads(text)  # raises what is wrong with it


def _fragment(value: object) -> orjson.Fragment:
    if isinstance(value, jsontext.Verbatim):
        return orjson.Fragment(value.text.encode(errors="backslashreplace"))
    raise TypeError(f"{type(value).__name__} is not JSON")
