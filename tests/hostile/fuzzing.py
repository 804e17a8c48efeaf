"""Requests that are changed in a few places, by number from a seed: those of the OpenAPI document, and recorded ones.

The document says of each endpoint which parameters it has, of which types, and shows a body. The recorded requests are
those of a world of the corpus. Changes are small: values of other types, odd texts, other names of the world, members
that are gone or there twice.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final
from urllib.parse import quote

import orjson

from tests.corpus.recording import Entry
from tests.hostile.objects import places_in, replaced
from tests.hostile.requests import SESSION, HostileRequest
from tests.hostile.values import MemberValue, Value, hostile_members, hostile_values

_LONGEST: Final = 20_000
"""Bytes of a value that is put somewhere; larger ones are in `HostileRequests`."""

_CALL: Final = re.compile(r"(?:restricted )?(GET|POST) (\S+) (\{'[^}]*\})? ?(.*)", re.DOTALL)
_TEXTS: Final = ("", " ", "0", "-1", "null", "true", "a/b", "..", "%00", "\x00", "\u202e", "🚀" * 50, "n" * 300)
_NUMBERS: Final = (0, 1, 2, 500, 10_000, 10_001, -1, 2**31, 2**63, 2**64)


@dataclass(frozen=True, slots=True)
class ValidRequest:
    """A request before it is changed.

    Attributes:
        path: with the places of its parameters, such as ``{pod}``.
        query, in_path: parameters by name, each with its schema.
        body: decoded; None: there is none.
    """

    method: str
    path: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    query: Mapping[str, Any] = field(default_factory=dict)
    in_path: tuple[str, ...] = ()
    body: Any = None


def documented(document: Mapping[str, Any]) -> Iterator[ValidRequest]:
    """A request to each endpoint of an OpenAPI document."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parameters = operation.get("parameters", ())
            content = operation.get("requestBody", {}).get("content", {})
            headers = ((b"content-type", b"application/json"),) if content else ()
            if any(each["in"] == "header" for each in parameters):
                headers = (*headers, (b"session", SESSION))
            yield ValidRequest(
                method.upper(),
                path,
                headers,
                {each["name"]: each["schema"] for each in parameters if each["in"] == "query"},
                tuple(each["name"] for each in parameters if each["in"] == "path"),
                content.get("application/json", {}).get("example"),
            )


def recorded(entries: Sequence[Entry]) -> Iterator[ValidRequest]:
    """The calls over HTTP of a recording."""
    for each in entries:
        if each.is_call and (found := _CALL.fullmatch(each.request)):
            method, target, headers, body = found.groups()
            pairs = ast.literal_eval(headers).items() if headers else ()
            sent = tuple((name.encode(), SESSION if name == "session" else value.encode()) for name, value in pairs)
            try:
                yield ValidRequest(method, target, sent, body=orjson.loads(body) if body else None)
            except orjson.JSONDecodeError:
                continue


class FuzzedRequests:
    """Changed requests.

    Args:
        seed: of all draws.
        requests: what is changed.
        document: with the types that its parameters refer to.
    """

    def __init__(self, seed: str, requests: Sequence[ValidRequest], document: Mapping[str, Any]) -> None:
        self._seed = seed
        self._requests = requests
        self._types = document.get("components", {}).get("schemas", {})
        self._places = [tuple(places_in(each.body)) for each in requests]
        everything: tuple[Value | MemberValue, ...] = (*hostile_values(), *hostile_members())
        self._values = [each for each in everything if len(each.member(b'"key"', b'"value"')) <= _LONGEST]
        self._names = sorted({text for each in requests for text in _texts(each.body)})

    def make(self, number: int) -> HostileRequest:
        """The request of a number."""
        random = Random(f"{self._seed}/fuzz/{number}")
        index = random.randrange(len(self._requests))
        chosen = self._requests[index]
        body, told = self._body(random, chosen.body, self._places[index]) if chosen.body is not None else (b"", [])
        target = self._target(random, chosen)
        headers = chosen.headers
        if random.random() < 0.1:
            accept = random.choice((b"text/plain", b"application/json", b"*/*", b"text/html", b"\xff"))
            headers = (*(each for each in headers if each[0] != b"accept"), (b"accept", accept))
        words = f"{chosen.method} {target.decode()}: {', '.join(told) or 'as it was'}"
        return HostileRequest(number, words, chosen.method, target, headers, body)

    def _body(self, random: Random, body: Any, places: Sequence[Any]) -> tuple[bytes, list[str]]:
        """A body with other names in some places, and something hostile in at most one: the rest is read then."""
        told = []
        for _ in range(random.choice((0, 0, 1, 1, 2, 3)) if self._names else 0):
            body, path = self._renamed(random, body, places)
            told += [path] if path else []
        if random.random() < 0.3:
            return orjson.dumps(body), told
        path, value = random.choice(places), random.choice(self._values)
        return replaced(body, path, value), [*told, f"{'.'.join(map(str, path)) or 'all'}: {value.name}"]

    def _renamed(self, random: Random, body: Any, places: Sequence[Any]) -> tuple[Any, str]:
        path = random.choice(places)
        if not path or not isinstance(_at(body, path), str):
            return body, ""
        name = random.choice(self._names)
        mark = Value("name", lambda _: orjson.dumps(name))
        return orjson.loads(replaced(body, path, mark)), f"{'.'.join(map(str, path))}: another name"

    def _target(self, random: Random, chosen: ValidRequest) -> bytes:
        target = chosen.path
        for name in chosen.in_path:
            target = target.replace(f"{{{name}}}", quote(self._text(random) or "x", safe=""))
        pairs = [
            f"{quote(name)}={quote(self._value(random, schema))}"
            for name, schema in chosen.query.items()
            if random.random() < 0.4
        ]
        return (f"{target}?{'&'.join(pairs)}" if pairs else target).encode()

    def _value(self, random: Random, schema: Mapping[str, Any]) -> str:
        """A value of a parameter: mostly one of its type."""
        if random.random() < 0.15:
            return self._text(random)
        kinds = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
        kind = random.choice(kinds)
        kind = self._types.get(kind.get("$ref", "").rpartition("/")[2], kind)
        if "enum" in kind:
            return str(random.choice(kind["enum"]))
        match kind.get("type"):
            case "integer":
                return str(random.choice(_NUMBERS))
            case "boolean":
                return random.choice(("true", "false"))
        return self._text(random)

    def _text(self, random: Random) -> str:
        return random.choice(self._names) if self._names and random.random() < 0.7 else random.choice(_TEXTS)


def _texts(value: Any) -> Iterator[str]:
    """The short texts of a JSON value."""
    if isinstance(value, str):
        if len(value) < 100:
            yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _at(value: Any, path: Sequence[Any]) -> Any:
    for key in path:
        value = value[key]
    return value
