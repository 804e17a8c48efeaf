"""API objects to and from JSON: fast for common objects, and complete for all that an API server accepts."""

from typing import Any, Final

import orjson

from allocator import text as jsontext
from extender.offload import Offload

_OPAQUE: Final = b'"parameters":'
"""An API server compares the bytes of opaque parameters: they must be written as they were read."""


def loads(text: bytes) -> Any:  # noqa: ANN401 - JSON has any type
    """The value of a JSON text; bytes that are not UTF-8 become U+FFFD, as in Go.

    Raises:
        orjson.JSONDecodeError: the text is not JSON.
    """
    try:
        return _usual(text)
    except orjson.JSONDecodeError as error:
        return _exactly(text, error)


async def loads_aside(text: bytes, off_loop: Offload) -> Any:  # noqa: ANN401 - JSON has any type
    """As `loads`, but unusual texts are decoded off the loop: a megabyte with thousands of levels takes 0.2 s.

    Raises:
        orjson.JSONDecodeError: the text is not JSON.
    """
    try:
        return _usual(text)
    except orjson.JSONDecodeError as error:
        odd = error
        return await off_loop(lambda: _exactly(text, odd))


def dumps(value: object) -> bytes:
    """The JSON text of a value. Raises TypeError: the value has something that JSON does not have."""
    try:
        return orjson.dumps(value, default=_fragment)
    except orjson.JSONEncodeError:
        # Only halves of surrogate pairs cannot be encoded; they become escapes of JSON.
        return jsontext.dumps(value).encode(errors="backslashreplace")


def dumped(value: object) -> bytes:
    """JSON to keep: a copy, because the bytes of orjson hold a buffer that may be many times larger."""
    return memoryview(dumps(value)).tobytes()


def _usual(text: bytes) -> Any:  # noqa: ANN401 - JSON has any type
    """The value of a common text; an orjson.JSONDecodeError says that only `_exactly` may read it."""
    value = orjson.loads(text)
    if _OPAQUE in text and not _is_written(value, text) and jsontext.opaque_parts(text.decode()):
        raise orjson.JSONDecodeError("opaque parameters that would be written otherwise", "", 0)
    return value


def _is_written(value: object, text: bytes) -> bool:
    """Whether a value is encoded as this text: a quick test that most texts pass."""
    try:
        return orjson.dumps(value) == text
    except orjson.JSONEncodeError:
        return False


def _exactly(text: bytes, error: orjson.JSONDecodeError) -> Any:  # noqa: ANN401 - JSON has any type
    """The value of any JSON text; else raises the error."""
    try:
        return jsontext.loads(text.decode(errors="replace"))
    except ValueError:
        raise error from None


def _fragment(value: object) -> orjson.Fragment:
    if isinstance(value, jsontext.Verbatim):
        return orjson.Fragment(value.text.encode(errors="backslashreplace"))
    raise TypeError(f"{type(value).__name__} is not JSON")
