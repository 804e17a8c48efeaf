"""Hostile objects: a valid object of every kind with a hostile value in one place, by number from a seed."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeAlias

import orjson

from extender.cluster.kinds import all_kinds
from extender.cluster.snapshot import Unreadable
from extender.cluster.snapshot_edit import read
from extender.kube.encoding import loads
from extender.kube.resources import RESOURCES, Resource
from tests.hostile.specimens import specimens
from tests.hostile.values import MemberValue, Value, hostile_members, hostile_values

Path: TypeAlias = tuple[str | int, ...]

_HOLE: Final = "@hole@"
_KINDS: Final = all_kinds()


@dataclass(frozen=True, slots=True)
class Place:
    """One place in an object; an empty path is the whole object.

    Attributes:
        variant: which of the kind's specimens.
    """

    kind: str
    variant: int
    path: Path

    def __str__(self) -> str:
        return f"{self.kind}[{self.variant}]" + "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in self.path)


@dataclass(frozen=True, slots=True)
class HostileObject:
    """An object that is to be watched.

    Attributes:
        number: with the seed, all that it takes to make it again.
        told: the place and the value, in words.
        value: the value alone.
        text: its JSON, or what stands in its place.
        is_json: by its grammar, so that a list may have it.
    """

    number: int
    resource: Resource
    name: str
    told: str
    value: str
    text: bytes
    is_json: bool

    @property
    def label(self) -> str:
        """What ``--only`` takes."""
        return f"object:{self.number}"

    @property
    def is_plausible(self) -> bool:
        """An API server could store it: what even we refuse, it refuses too. Fields that we don't know may be new."""
        try:
            obj = loads(self.text)
        except orjson.JSONDecodeError:
            return False
        return self.is_json and not isinstance(read(_KINDS[self.resource.kind], obj), Unreadable)

    @property
    def size(self) -> int:
        """Bytes that it is about."""
        return len(self.text)


def places_in(value: Any, before: Path = ()) -> Iterator[Path]:
    """Every place in a JSON value, itself included."""
    yield before
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from places_in(inner, (*before, key))


def replaced(value: Any, path: Path, hostile: Value | MemberValue) -> bytes:
    """The JSON of a value with something hostile at a place; a member without a key gets the first value instead."""
    if not path:
        return hostile.make(orjson.dumps(value)) if isinstance(hostile, Value) else orjson.dumps(value)
    *parents, last = path
    inner = value
    for key in parents:
        inner = inner[key]
    original = orjson.dumps(inner[last])
    if isinstance(inner, list):
        made = hostile.make(original) if isinstance(hostile, Value) else b"null"
        return orjson.dumps(_with(value, path, _HOLE)).replace(orjson.dumps(_HOLE), made)
    member = hostile.member(orjson.dumps(last), original)
    return orjson.dumps(_with(value, path, _HOLE)).replace(orjson.dumps(last) + b":" + orjson.dumps(_HOLE), member)


def _with(value: Any, path: Path, new: object) -> Any:
    """A copy with another value at a place."""
    if not path:
        return new
    first, *rest = path
    if isinstance(value, list):
        return [_with(each, tuple(rest), new) if index == first else each for index, each in enumerate(value)]
    return {key: _with(each, tuple(rest), new) if key == first else each for key, each in value.items()}


class HostileValues:
    """A value for each place, round by round another one: the same for the same seed."""

    def __init__(self, seed: int, purpose: str) -> None:
        self._purpose = f"{seed}/{purpose}"
        self._values: tuple[Value | MemberValue, ...] = (*hostile_values(), *hostile_members())

    def __len__(self) -> int:
        return len(self._values)

    def at(self, place: str, turn: int) -> Value | MemberValue:
        """The value of a place in a round."""
        order = list(range(len(self._values)))
        Random(f"{self._purpose}/{place}").shuffle(order)
        return self._values[order[turn % len(order)]]


class HostileObjects:
    """The objects of a seed, numbered from 0: each round goes through all places once, in an order of its own.

    Attributes:
        places: every place of every specimen.
        values: what is put there.
    """

    def __init__(self, seed: int) -> None:
        self.values = HostileValues(seed, "object")
        self._seed = seed
        self.places = tuple(
            Place(kind, variant, path)
            for kind, objects in specimens("x").items()
            for variant, each in enumerate(objects)
            for path in places_in(each)
        )

    def place(self, number: int) -> Place:
        """The place of an object."""
        turn, index = divmod(number, len(self.places))
        order = list(range(len(self.places)))
        Random(f"{self._seed}/places/{turn}").shuffle(order)
        return self.places[order[index]]

    def make(self, number: int) -> HostileObject:
        """The object of a number."""
        place = self.place(number)
        name = f"hostile-{number}"
        hostile = self.values.at(str(place), number // len(self.places))
        is_json = hostile.is_json and place.path != ()  # a list of an API server has objects alone
        text = replaced(specimens(name)[place.kind][place.variant], place.path, hostile)
        return HostileObject(
            number, RESOURCES[place.kind], name, f"{place}: {hostile.name}", hostile.name, text, is_json
        )
