"""Reading a request's JSON strictly: a value of a wrong type is a `WireError` with its path.

Fields have Go's names, in exactly that case. Null is the same as absent. Unknown fields are ignored, unless they are
the name of an absent field in another case: that is an error. ``where`` is the path of the parent including its
dot, as in messages.
"""

from collections.abc import Callable, Mapping
from json import JSONEncoder
from typing import Final, TypeVar

import orjson

from allocator import InvalidObjectError
from allocator.tools import JSON
from extender.cluster.objects.pods import Pod, parse_pod

_T = TypeVar("_T")

NAME: Final = 253
"""Longest name of a Pod or Node; uids are shorter. Source: ``k8s.io/apimachinery/pkg/util/validation``."""

NAMESPACE: Final = 63
"""Longest name of a namespace."""

_encoder: Final = JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_NAMES = {dict: "an object", list: "a list", str: "a string", int: "an integer"}


class WireError(Exception):
    """A request is invalid.

    Attributes:
        field: path of the field, for example ``NodeNames[3]``; empty for the whole body.
    """

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}" if field else problem)


def root_of(body: bytes) -> dict[str, JSON]:
    """The body, which must be an object."""
    if not body:
        raise WireError("", "the body is empty: expected a JSON object")
    try:
        root = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise WireError("", f"the body is not JSON: {error}") from error
    return as_object(root, "")


def optional(parent: Mapping[str, JSON], field: str, kind: type[_T], where: str = "") -> _T | None:
    """A field of this type; None if it is absent."""
    value = parent.get(field)
    if value is None:
        if field not in parent:
            _refuse_other_case(parent, field, where)
        return None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise mismatch(where + field, kind, value)
    return value


def _refuse_other_case(parent: Mapping[str, JSON], absent: str, where: str) -> None:
    for field in parent:
        if field.lower() == absent.lower():
            raise WireError(where + field, f"unknown field; did you mean {absent}?")


def required(parent: Mapping[str, JSON], field: str, kind: type[_T], where: str = "") -> _T:
    """A required field of this type."""
    value = optional(parent, field, kind, where)
    if value is None:
        raise WireError(where + field, "missing" if field not in parent else "null")
    return value


def text(parent: Mapping[str, JSON], field: str, where: str = "") -> str:
    """A required string that is not empty."""
    value = optional(parent, field, str, where)
    if not value:
        raise WireError(where + field, "missing" if value is None else "empty")
    return value


def as_object(value: JSON, where: str) -> dict[str, JSON]:
    """A value that must be an object; ``where`` is its own path."""
    if not isinstance(value, dict):
        raise mismatch(where, dict, value)
    return value


def as_pod(value: JSON, where: str, parse: Callable[[Mapping[str, JSON]], Pod] = parse_pod) -> Pod:
    """A value that must be a Pod; ``where`` is its own path, and ``parse`` reads it."""
    try:
        pod = parse(as_object(value, where))
    except InvalidObjectError as error:
        raise WireError(where, error.summary) from error
    at = f"{where}." if where else ""
    limited(pod.name, f"{at}metadata.name", NAME)
    limited(pod.namespace, f"{at}metadata.namespace", NAMESPACE)
    limited(pod.uid, f"{at}metadata.uid", NAME)
    return pod


def name_of(value: JSON, where: str) -> str:
    """The name in the metadata of a value that must be an API object; ``where`` is its own path."""
    metadata = optional(as_object(value, where), "metadata", dict, f"{where}.") or {}
    return limited(text(metadata, "name", f"{where}.metadata."), f"{where}.metadata.name", NAME)


def limited(value: str, field: str, most: int) -> str:
    """A name, which is remembered and logged. So it must not be longer than a name in a cluster can be.

    Raises:
        WireError: the name is longer than ``most`` characters.
    """
    if len(value) > most:
        raise WireError(field, f"must be no more than {most} characters, not {len(value)}: {value[:40]}...")
    return value


def mismatch(where: str, kind: type, value: object) -> WireError:
    """The error that a value has the wrong type."""
    return WireError(where, f"expected {_NAMES[kind]}, not {_beginning(value)}")


def _beginning(value: object) -> str:
    """The beginning of the value's JSON. The rest, which may be long or nested deeply, is not written."""
    text = ""
    for piece in _encoder.iterencode(value):
        text += piece
        if len(text) > 40:
            return f"{text[:37]}..."
    return text
