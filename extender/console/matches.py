"""Devices that match: those of a device class, or those with an attribute."""

from collections.abc import Callable
from typing import Final

from allocator import ClassMembers, Device, Pool, Version
from allocator.tools import JSON
from extender.cluster.snapshot import Snapshot
from extender.observe.tables.table import QueryError

_LONGEST: Final = 512
"""Characters of a filter for an attribute: a name has 97 at most, a value 64."""


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
        qualified = self._name if "/" in self._name else f"{device.id.driver}/{self._name}"
        if qualified not in device.attributes:
            return False
        value = device.attributes[qualified]
        return self._value is None or self._value in map(_text, value if isinstance(value, tuple) else (value,))


def _text(value: str | int | bool | Version) -> str:  # noqa: FBT001  # the value of an attribute
    return str(value).lower() if isinstance(value, bool) else str(value)


def matches(snapshot: Snapshot, members: ClassMembers | None, attribute: AttributeFilter | None) -> dict[str, JSON]:
    """The matching devices: ``{"sets": [[NAME]], "pools": [{"driver", "pool", "set": INDEX}], "note": TEXT}``.

    Pools without a match are left out. Pools in which the same names match share a set.

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
    return {"sets": [[*each] for each in sets], "pools": pools, "note": members.failures if members is not None else ""}


def _names(pool: Pool, tests: tuple[Callable[[Device], bool], ...]) -> tuple[str, ...]:
    devices = (device for origin in pool.newest for device in origin.devices)
    return tuple(sorted(device.id.device for device in devices if all(test(device) for test in tests)))
