"""Objects that an API server may take or refuse: valid ones of each kind that we read, with one or two fields changed.

Which field, and to what, is drawn from a seed. Most changes are near the truth: a value of another field of the same
kind of value, a bound and what is beyond it, a name that misses a domain.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeAlias

Object = dict[str, Any]
Path: TypeAlias = tuple[str | int, ...]

_TEXTS: Final = (
    "",
    "a",
    "A",
    "gpu",
    "gpu-silver",
    "a_b",
    "-a",
    "a.b",
    "a/b",
    "example.com/gpu",
    "x" * 64,
    "x" * 254,
    " a",
)
_QUANTITIES: Final = ("0", "1", "2", "-1", "1500m", "1Gi", "1Gx", "1.5", "1e3", "", "9999999999999999999", 1, 1.5)
_NUMBERS: Final = (0, 1, 2, -1, 31, 33, 129, 2**31, 2**63, 1.5, "1")
_ANY: Final[tuple[object, ...]] = (None, [], {}, "a", 1, True)
_RESOURCES: Final = (
    *("cpu", "memory", "pods", "gpu", "gpu-silver", "example.com/gpu", "example.com/", "/gpu", "Example.com/gpu"),
    *("hugepages-2Mi", "hugepages-x", "ephemeral-storage", "storage", "kubernetes.io/x", "requests.example.com/gpu"),
    *("requests.cpu", "limits.memory", "limits.example.com/gpu", "resourceclaims", "count/resourceclaims"),
    *("count/resourceclaims.resource.k8s.io", "count/pods", "count/", "a_b", "a.b/c/d", "x" * 64, "services"),
    *("gpu.deviceclass.resource.k8s.io/devices", "deviceclass.resource.kubernetes.io/gpu", "persistentvolumeclaims"),
    *("requests.deviceclass.resource.kubernetes.io/gpu", "gold.storageclass.storage.k8s.io/requests.storage"),
    *("requests.hugepages-2Mi", "hugepages-1Gi", "requests.nvidia.com/gpu", "requests.a_b/gpu", "attachable-volumes-x"),
)
_WORDS: Final = (
    *(
        "NoSchedule",
        "PreferNoSchedule",
        "NoExecute",
        "None",
        "Equal",
        "Exists",
        "In",
        "NotIn",
        "DoesNotExist",
        "Gt",
        "Lt",
    ),
    *("ExactCount", "All", "Immediate", "Never", "PreemptLowerPriority", "Always", "OnFailure", "DoNotSchedule"),
    *(
        "ScheduleAnyway",
        "BestEffort",
        "NotBestEffort",
        "Terminating",
        "NotTerminating",
        "PriorityClass",
        "Honor",
        "Ignore",
    ),
    *("CrossNamespacePodAffinity", "example.com", "true", "1.2.3", "v1", "TCP", "UDP"),
)
_AMOUNTS: Final = frozenset({"limits", "requests", "hard", "allocatable", "capacity", "overhead"})
"""Fields whose keys are names of resources."""


_KEPT: Final[frozenset[Path]] = frozenset({(), ("kind",), ("apiVersion",), ("metadata", "namespace")})
"""What is not changed: it says where the object is sent."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """An object with changed fields; ``told`` says which, and how."""

    object: Object
    told: str


def mutants(valid: Mapping[str, Sequence[Object]], count: int, seed: int) -> Iterator[Mutant]:
    """That many objects, of each kind in turn; one in ten is left as it is, and a third has two changes."""
    chance = Random(seed)  # noqa: S311 - a run is repeated by its seed
    kinds = sorted(valid)
    for number in range(count):
        base = deepcopy(chance.choice(valid[kinds[number % len(kinds)]]))
        changes = chance.choices((0, 1, 2), (1, 6, 3))[0]
        told = [_change(base, chance) for _ in range(changes)]
        yield Mutant(base, "; ".join(told) or "as it is")


def _change(obj: Object, chance: Random) -> str:
    """Change one field of an object; returns what was done."""
    places = [each for each in _places(obj) if each not in _KEPT]
    if not places:
        return "nothing is left to change"
    path = chance.choice(places)
    around, last = path[:-1], path[-1]
    outer: Any = _at(obj, around)
    where = ".".join(map(str, path))
    match chance.randrange(10):
        case 0 | 1:
            del outer[last]
            return f"{where} removed"
        case 2 if isinstance(last, int):
            outer.append(deepcopy(outer[last]))
            return f"{where} twice"
        case 3 if isinstance(outer, dict) and around and around[-1] in _AMOUNTS:
            name = chance.choice(_RESOURCES)
            outer[name] = outer.pop(last)
            return f"{where} renamed {name}"
        case 3 if isinstance(outer, dict):
            name = chance.choice((*_TEXTS, "zebra", "example.com/x"))
            outer[name] = outer.pop(last)
            return f"{where} renamed {name}"
        case 4:
            outer[last] = chance.choice(_ANY)
        case 5 if isinstance(outer[last], str):
            outer[last] = _other_text(obj, chance)
        case 6 if around and around[-1] in _AMOUNTS and isinstance(outer, dict):
            name = chance.choice(_RESOURCES)
            outer[name] = chance.choice(_QUANTITIES)
            return f"{'.'.join(map(str, around))}.{name} = {outer[name]!r}"
        case _:
            outer[last] = _near(outer[last], chance)
    return f"{where} = {outer[last]!r}"


def _near(value: object, chance: Random) -> object:
    """Another value of the same type."""
    match value:
        case bool():
            return not value
        case int():
            return chance.choice(_NUMBERS)
        case str() if value[:1].isdigit():
            return chance.choice(_QUANTITIES)
        case str() if value in _WORDS:
            return chance.choice(_WORDS)
        case str():
            return chance.choice((*_TEXTS, *_WORDS))
        case list():
            return [] if chance.random() < 0.3 else [*value, *value][: chance.choice((0, len(value) * 2))]
        case _:
            return chance.choice(_ANY)


def _other_text(obj: Object, chance: Random) -> str:
    """A text of another place of the object."""
    texts = [found for path in _places(obj) if isinstance(found := _at(obj, path), str)]
    return chance.choice(texts)


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


def _places(value: Any, before: Path = ()) -> Iterator[Path]:
    """Every place in a JSON value."""
    yield before
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(pairs):
        yield from _places(inner, (*before, key))
