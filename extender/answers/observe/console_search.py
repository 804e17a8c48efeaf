"""The search of the console: objects by a part of their name, and devices by class and attribute."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from heapq import nsmallest
from typing import Final, NamedTuple

from allocator import AttributeValue, ClassMembers, Device, Version
from allocator.pools import Pool
from allocator.tools import JSON, did_you_mean, meant_by, printable
from extender.answers.device_models import model_attribute
from extender.cluster.snapshot import Snapshot
from extender.framework.pod_and_claim_states import state_of_claim, state_of_pod
from extender.kube.api import ObjectKey
from extender.tools.table import QueryError

MOST_OF_A_KIND: Final = 8
"""The most objects of a kind in an answer. A person who is looking for another one types one more letter."""

LONGEST: Final = 253
"""The most characters of a search text: a name of Kubernetes has no more."""

_PAUSE_AFTER: Final = 256
"""Names between two pauses for other work."""


class FoundObject(NamedTuple):
    """An object that matches.

    Attributes:
        kind: ``pod``, ``node``, ``claim``, ``device``, ``class`` or ``gang``.
        names: what names it: namespace and name; driver, pool and device; or a name alone.
        state: of a pod or a claim; empty for others.
    """

    kind: str
    names: tuple[str, ...]
    state: str = ""


def find_objects(text: str, snapshot: Snapshot, pause: Callable[[], None] = lambda: None) -> list[FoundObject]:
    """The objects whose names have a text in them, without regard to case: the best of each kind.

    A name that is the text comes before one that begins with it; then the shorter one comes first.

    Args:
        text: as a person types it, ``NAMESPACE/NAME`` for example. Without any letter, nothing is found.
        snapshot: the cluster.
        pause: called now and then.
    """
    wanted = text.strip().lower()
    if not wanted:
        return []
    found = [each for kind, names in _names_by_kind(snapshot) for each in _best(kind, names, wanted, pause)]
    return [each._replace(state=_state_of(each, snapshot)) for each in found]


def _names_by_kind(snapshot: Snapshot) -> Iterator[tuple[str, Iterable[tuple[str, ...]]]]:
    yield "pod", (tuple(key) for key in snapshot.pods)
    yield "gang", ((key.namespace, key.name) for key in snapshot.gangs.members)
    yield "claim", (tuple(key) for key in snapshot.claims)
    yield "node", ((name,) for name in snapshot.nodes)
    yield "class", ((name,) for name in snapshot.classes)
    yield (
        "device",
        (
            (each.id.driver, each.id.pool, each.id.device)
            for pool in snapshot.inventory.pools.values()
            for origin in pool.newest
            for each in origin.devices
        ),
    )


def _best(kind: str, names: Iterable[tuple[str, ...]], wanted: str, pause: Callable[[], None]) -> Iterator[FoundObject]:
    matching: set[tuple[str, ...]] = set()
    for number, each in enumerate(names):
        if number % _PAUSE_AFTER == 0:
            pause()
        if wanted in "/".join(each).lower():
            matching.add(each)
    for each in nsmallest(MOST_OF_A_KIND, matching, key=lambda each: (_rank(each, wanted), len("/".join(each)), each)):
        yield FoundObject(kind, each)


def _rank(names: tuple[str, ...], wanted: str) -> int:
    """0: the text is the last name, or all names; 1: one of these begins with it; 2: it is somewhere else."""
    texts = names[-1].lower(), "/".join(names).lower()
    if wanted in texts:
        return 0
    return 1 if any(each.startswith(wanted) for each in texts) else 2


def _state_of(found: FoundObject, snapshot: Snapshot) -> str:
    if found.kind == "pod" and (pod := snapshot.pods.get(ObjectKey(*found.names))) is not None:
        return state_of_pod(pod).value
    if found.kind == "claim" and (claim := snapshot.claims.get(ObjectKey(*found.names))) is not None:
        return state_of_claim(claim, snapshot).value
    return ""


_LONGEST: Final = 512
"""Characters of a filter for an attribute: a name has 97 at most, a value 64."""

_NAMED: Final = 8
"""Names or values that are told of what there is."""

_COMPARED: Final = 500
"""Names or values among which the one is looked for that was probably meant."""


class AttributeFilter:
    """Devices with an attribute, or with one value of it.

    Args:
        text: ``NAME``, or ``NAME=VALUE``; a name without a domain is in the domain of the driver.

    Raises:
        QueryError: the text has no name, or is too long.
    """

    def __init__(self, text: str) -> None:
        name, equals, value = text.partition("=")
        if not name.strip() or len(text) > _LONGEST:
            raise QueryError(f"attribute: expected NAME or NAME=VALUE in at most {_LONGEST} characters")
        self._name = name.strip()
        self._value = value.strip() if equals else None

    def has(self, device: Device) -> bool:
        """Whether a device has the attribute, and the value if one is wanted. A list has each of its elements."""
        name = self._qualified(device)
        if name not in device.attributes:
            return False
        return self._value is None or self._value in _texts(device.attributes[name])

    def absence(self, devices: Iterable[Device]) -> str:
        """Why none of these devices has it, and what they have: ``no device has model h100 (model: a100, b200)``."""
        names: Counter[str] = Counter()
        values: Counter[str] = Counter()
        same = ""
        for device in devices:
            values.update(_texts(device.attributes.get(self._qualified(device), ())))
            for qualified, value in device.attributes.items():
                name = qualified.removeprefix(f"{device.id.driver}/")
                names[name] += 1
                if self._value is None and self._name in _texts(value):
                    same = same or f"{name}={self._name}"
        if values:
            wanted = self._value or ""
            meant = did_you_mean(meant_by(wanted, _frequent(values)))
            return f"no device has {self._name} {printable(wanted)}{meant} ({self._name}: {_most(values)})"
        if not names:
            return "no device has an attribute"
        meant = did_you_mean(same or meant_by(self._name, _frequent(names)))
        return f"no device has an attribute {printable(self._name)}{meant} (there is {_most(names)})"

    def _qualified(self, device: Device) -> str:
        return self._name if "/" in self._name else f"{device.id.driver}/{self._name}"


def _texts(value: AttributeValue) -> list[str]:
    return [*map(_text, value if isinstance(value, tuple) else (value,))]


def _text(value: str | int | bool | Version) -> str:  # noqa: FBT001  # the value of an attribute
    return str(value).lower() if isinstance(value, bool) else str(value)


def _frequent(found: Counter[str]) -> list[str]:
    """The most frequent ones first."""
    return sorted(found, key=lambda each: (-found[each], each))[:_COMPARED]


def _most(found: Counter[str]) -> str:
    """The most frequent ones, and how many more there are."""
    more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    return f"{', '.join(map(printable, _frequent(found)[:_NAMED]))}{more}"


def matches(snapshot: Snapshot, members: ClassMembers | None, attribute: AttributeFilter | None) -> dict[str, JSON]:
    """The matching devices: ``{"sets": [[NAME]], "pools": [{"driver", "pool", "set": INDEX}], "note": TEXT}``.

    Pools without a match are left out. Pools in which the same names match share a set. The note says which devices are
    left out, because the selectors of the class fail on them; or why no device matches.

    Raises:
        SearchLimitError: the selectors of the class took too long.
    """
    sets: dict[tuple[str, ...], int] = {}
    pools: list[JSON] = []
    tests: tuple[Callable[[Device], bool], ...] = tuple(each.has for each in (attribute, members) if each is not None)
    for pool_id, pool in sorted(snapshot.inventory.pools.items()):
        names = _names(pool, tests)
        if names:
            index = sets.setdefault(names, len(sets))
            pools.append({"driver": pool_id.driver, "pool": pool_id.pool, "set": index})
    note = (members.failures if members is not None else "") or (
        "" if pools else _absence(snapshot, members, attribute)
    )
    return {"sets": [[*each] for each in sets], "pools": pools, "note": note}


def _absence(snapshot: Snapshot, members: ClassMembers | None, attribute: AttributeFilter | None) -> str:
    """Why no device matches."""
    devices = [each for pool in snapshot.inventory.pools.values() for each in _devices(pool)]
    if members is not None:
        every, devices = len(devices), [each for each in devices if members.has(each)]
        if every and not devices:
            return f"none of {every:,} devices is of the class"
    return attribute.absence(devices) if attribute is not None and devices else ""


def example_filter(snapshot: Snapshot) -> str:
    """A filter that matches a device, such as ``model=h100``; empty if no device has a model."""
    pools = snapshot.inventory.pools
    for pool_id in sorted(pools):
        for device in _devices(pools[pool_id]):
            if found := model_attribute(device):
                return "=".join(found)
    return ""


def _names(pool: Pool, tests: tuple[Callable[[Device], bool], ...]) -> tuple[str, ...]:
    return tuple(sorted(device.id.device for device in _devices(pool) if all(test(device) for test in tests)))


def _devices(pool: Pool) -> Iterator[Device]:
    return (device for origin in pool.newest for device in origin.devices)
