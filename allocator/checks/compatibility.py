"""Compatibility groups (KEP-5963): which devices may draw on one counter set at the same time.

All devices on a counter set must have a group in common. A device without groups fits only with others without groups.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from allocator.checks.check import Refusal, Undo
from allocator.model.devices import PoolId
from allocator.model.slices.device import Device
from allocator.obstacles.obstacle import Held, Obstacle, Seen
from allocator.pools import NodePool
from allocator.reason import Cause
from allocator.usage import NOTHING_USED, Usage

SetKey = tuple[PoolId, str]

INCOMPATIBLE: Final = Cause(
    "compatibility", "no compatible device for {request}", rank=50, is_temporary=True, of_choice=True
)
_REFUSAL: Final = Refusal(INCOMPATIBLE)
_OBSTACLE: Final = Obstacle(
    INCOMPATIBLE, "not compatible with devices in use that share their counters", held=Held.SHARED
)
EXCLUDED: Final = "its compatibility groups exclude it while other devices are in use"
"""What keeps claims from such a device, in words."""

_NO_GROUPS = frozenset({""})
"""The group of devices without groups; no device can name it."""


class Compatibility:
    """The groups that all devices on a counter set have in common, for each counter set in use."""

    def __init__(self, pools: Mapping[PoolId, NodePool], usage: Usage) -> None:
        self._pools = pools
        self._usage = usage
        self._common: dict[PoolId, dict[SetKey, frozenset[str]]] = {}

    def refusal(self, device: Device, /) -> Refusal | None:
        """Whether the devices on a counter set have no group in common with the device."""
        if not device.consumes_counters:
            return None
        common = self._common_sets(device.id.pool_id)
        admits = all(key not in common or common[key] & groups for key, groups in _memberships(device))
        return None if admits else _REFUSAL

    def obstacles(self, device: Device, /) -> Iterator[Seen]:
        """`refusal`, for people."""
        if self.refusal(device) is not None:
            yield Seen(_OBSTACLE)

    def take(self, device: Device, /) -> Undo | None:
        """Put the device on its counter sets; returns the undo."""
        if not device.consumes_counters:
            return None
        common = self._common_sets(device.id.pool_id)
        memberships = _memberships(device)
        before = {key: common.get(key) for key, _ in memberships}
        _join(common, device)

        def undo() -> None:
            for key, groups in before.items():
                if groups is None:
                    del common[key]
                else:
                    common[key] = groups

        return undo

    def _common_sets(self, pool_id: PoolId) -> dict[SetKey, frozenset[str]]:
        if pool_id not in self._common:
            pool = self._pools[pool_id]
            used = self._usage.pools.get(pool_id, NOTHING_USED)
            common: dict[SetKey, frozenset[str]] = {}
            for device in (*(c.device for c in pool.candidates), *pool.elsewhere) if used else ():
                if device.id.device in used:
                    _join(common, device)
            self._common[pool_id] = common
        return self._common[pool_id]


def has_groups(device: Device) -> bool:
    """Whether it has compatibility groups on one of its counter sets."""
    return any(each.compatibility_groups for each in device.consumes_counters)


def groups_of(device: Device) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The device's counter sets, with its compatibility groups on each."""
    return tuple([(each.counter_set, each.compatibility_groups) for each in device.consumes_counters])


def _join(common: dict[SetKey, frozenset[str]], device: Device) -> None:
    """Add a device. Against the rule, some devices may have groups and others none: then the first ones count."""
    for key, groups in _memberships(device):
        before = common.get(key, groups)
        is_mixed = (before == _NO_GROUPS) != (groups == _NO_GROUPS)
        common[key] = before if is_mixed else before & groups


def _memberships(device: Device) -> tuple[tuple[SetKey, frozenset[str]], ...]:
    pool = device.id.pool_id
    return tuple(
        ((pool, c.counter_set), frozenset(c.compatibility_groups) or _NO_GROUPS) for c in device.consumes_counters
    )
