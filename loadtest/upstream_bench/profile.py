"""CPU profiles of Go programs: how much processor time each part of the test process used, and when.

scheduler_perf writes such a profile of just the time that it measures (``-perf-cpuprofile``). Scheduler, API server and
controllers are one process there. The scheduler's goroutines have a label; the API server's are known by their stacks.
"""

import gzip
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

SCHEDULER: Final = "scheduler"
API_SERVER: Final = "API server"
OTHER: Final = "other"
"""Controllers, the test itself, and the garbage collector."""

_LABEL: Final = ("part", "scheduler")
_SERVING: Final = (
    "k8s.io/apiserver/",
    "net/http.(*conn)",
    "net/http.(*http2serverConn)",
    "google.golang.org/grpc",
    "go.etcd.io/",
)
_SECONDS: Final = 1e-9


class ProfileError(ValueError):
    """It is not a CPU profile."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What a CPU profile says.

    Attributes:
        began: in seconds since 1970.
        seconds: that it lasted.
        parts: seconds of processor time of each part.
    """

    began: float
    seconds: float
    parts: Mapping[str, float]


def read_profile(data: bytes) -> Profile:
    """The sums of a profile as Go's runtime/pprof writes it.

    Raises:
        ProfileError: the data is something else.
    """
    try:
        return _profile(gzip.decompress(data))
    except (OSError, EOFError, IndexError, KeyError, UnicodeDecodeError) as error:
        raise ProfileError(f"not a CPU profile: {error}") from error


def _profile(data: bytes) -> Profile:
    samples: list[bytes] = []
    locations: dict[int, list[int]] = {}
    functions: dict[int, int] = {}
    strings: list[str] = []
    began = lasted = 0
    for number, value in _fields(data):
        match number, value:
            case 2, bytes():
                samples.append(value)
            case 4, bytes():
                locations.update([_location(value)])
            case 5, bytes():
                inner = dict(_fields(value))
                functions[_number(inner[1])] = _number(inner[2])
            case 6, bytes():
                strings.append(value.decode())
            case 9, int():
                began = value
            case 10, int():
                lasted = value
            case _:
                continue
    if not lasted:
        raise ProfileError("not a CPU profile: it has no duration")
    names = {place: [strings[functions[each]] for each in lines] for place, lines in locations.items()}
    parts: Counter[str] = Counter()
    for sample in samples:
        part, nanoseconds = _sample(sample, names, strings)
        parts[part] += nanoseconds
    return Profile(began * _SECONDS, lasted * _SECONDS, {part: each * _SECONDS for part, each in parts.items()})


def _sample(data: bytes, names: Mapping[int, list[str]], strings: list[str]) -> tuple[str, int]:
    places: list[int] = []
    values: list[int] = []
    labels: set[tuple[str, str]] = set()
    for number, value in _fields(data):
        match number:
            case 1:
                places += _numbers(value)
            case 2:
                values += _numbers(value)
            case 3 if isinstance(value, bytes):
                inner = dict(_fields(value))
                labels.add((strings[_number(inner[1])], strings[_number(inner.get(2, 0))]))
            case _:
                continue
    if _LABEL in labels:
        return SCHEDULER, values[1]
    frames = (name for place in places for name in names[place])
    return (API_SERVER if any(name.startswith(_SERVING) for name in frames) else OTHER), values[1]


def _location(data: bytes) -> tuple[int, list[int]]:
    place, lines = 0, []
    for number, value in _fields(data):
        if number == 1:
            place = _number(value)
        elif number == 4 and isinstance(value, bytes):
            lines.append(_number(dict(_fields(value))[1]))
    return place, lines


def _numbers(value: int | bytes) -> list[int]:
    """Of a field with numbers, one by one or packed."""
    if isinstance(value, int):
        return [value]
    found, place = [], 0
    while place < len(value):
        number, place = _varint(value, place)
        found.append(number)
    return found


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ProfileError("not a CPU profile: a number was expected")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protocol buffer: number, and value."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        match key & 7:
            case 0:
                value, place = _varint(data, place)
                yield key >> 3, value
            case 2:
                length, place = _varint(data, place)
                yield key >> 3, data[place : place + length]
                place += length
            case 1:
                place += 8
            case 5:
                place += 4
            case kind:
                raise ProfileError(f"not a CPU profile: a field of kind {kind}")


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
