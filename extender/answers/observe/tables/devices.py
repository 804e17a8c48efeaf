"""The tables of devices and of pools.

Of a device: whether a claim can have it, who holds it, and what is in the way. Of a pool: how many of its devices are
in each state.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from json import dumps
from typing import Any, Final

from allocator import AttributeValue, ClassMembers, Device, DeviceClass, Features, PoolId, Slice, Version
from allocator.checks import DeviceState, taint_text
from allocator.device_states import DeviceKind, PoolStates
from allocator.pools import Pool
from allocator.tools import JSON, did_you_mean, nearest
from extender.answers.observe.device_states import DeviceStates
from extender.cluster.snapshot import Snapshot
from extender.tools.table import Item, QueryError, Row, TableView, matches

_COLUMNS: Final = ("driver", "pool", "device", "node", "state", "claims", "taints", "blockedBy", "why")
_MOST_NAMES: Final = 500
"""Names of classes among which the nearest one is looked for."""

_WIDE: Final = ("attributes", "capacity")


@dataclass(frozen=True, slots=True)
class DeviceFilter:
    """Which devices; what is empty or None excludes none.

    Attributes:
        node: the only node that reaches the device.
        state: a value of `DeviceState`. Devices in use that are tainted are wanted as tainted ones, too.
        free: whether the device is free.
        members: the class to which the device belongs.
        device: its name within its pool.
    """

    driver: str = ""
    pool: str = ""
    node: str = ""
    state: str = ""
    free: bool | None = None
    members: ClassMembers | None = None
    device: str = ""

    def has_pool(self, pool: PoolId) -> bool:
        """Whether some devices of a pool may be wanted."""
        return matches(self.driver, pool.driver) and matches(self.pool, pool.pool)

    def has_state(self, state: DeviceState) -> bool:
        """Whether devices in a state are wanted."""
        return matches(self.state, state.value) and self.free in (None, state is DeviceState.FREE)

    def suits(self, device: Device, state: DeviceState, of_pool: PoolStates) -> bool:
        """Whether a device of a pool with these states is wanted for its state."""
        is_tainted = self.state == DeviceState.TAINTED.value and self.free is not True and of_pool.is_tainted(device)
        return is_tainted or self.has_state(state)

    def selects(self, origin: Slice, device: Device) -> bool:
        """Whether a device of a wanted pool is wanted, whatever its state.

        Raises:
            SearchLimitError: the selectors of the class took too long.
        """
        is_named = matches(self.device, device.id.device) and (not self.node or self.node == node_of(device, origin))
        return is_named and (self.members is None or self.members.has(device))

    def has(self, origin: Slice, device: Device, state: DeviceState, of_pool: PoolStates) -> bool:
        """Whether a device of a wanted pool is wanted; raises as `selects`."""
        return self.suits(device, state, of_pool) and self.selects(origin, device)

    def note(self) -> str:
        """What is to be said when all devices have been asked for."""
        return self.members.failures if self.members is not None else ""


ALL: Final = DeviceFilter()


class UnknownClassError(QueryError):
    """A device class that does not exist."""

    def __init__(self, name: str, snapshot: Snapshot) -> None:
        meant = nearest(name, islice(snapshot.classes, _MOST_NAMES))
        super().__init__(f'class: there is no device class "{name}"{did_you_mean(meant)}')


def class_of(name: str, snapshot: Snapshot) -> DeviceClass:
    """The device class of a name.

    Raises:
        UnknownClassError: there is none.
    """
    found = snapshot.classes.get(name)
    if found is None:
        raise UnknownClassError(name, snapshot)
    return found


def devices(snapshot: Snapshot, states: DeviceStates, wanted: DeviceFilter = ALL, *, wide: bool = False) -> TableView:
    """The devices, with attributes and capacities if the table is ``wide``."""

    def rows() -> Iterator[Row]:
        states_of = states.at(snapshot)
        for pool_id in sorted(filter(wanted.has_pool, snapshot.inventory.pools)):
            of_pool = _PoolRows(pool_id, snapshot, states_of(pool_id), wide=wide)
            for origin, device, state in sorted(of_pool.states, key=row_order):
                if wanted.has(origin, device, state, of_pool.states):
                    yield Row((*device.id, origin.name), partial(of_pool.item, origin, device, state))

    return TableView(_COLUMNS + (_WIDE if wide else ()), rows(), CELLS, wanted.note)


def device_numbers(snapshot: Snapshot, states: DeviceStates, wanted: DeviceFilter = ALL) -> TableView:
    """The number of devices by driver and state, partitions apart. Only free devices have a row without any."""

    def rows() -> Iterator[Row]:
        numbers: dict[str, Counter[tuple[DeviceKind, DeviceState]]] = {}
        states_of = states.at(snapshot)
        for pool_id in filter(wanted.has_pool, snapshot.inventory.pools):
            found = states_of(pool_id)
            for origin, device, state in found:
                if wanted.selects(origin, device):
                    of_driver = numbers.setdefault(pool_id.driver, Counter())
                    of_driver[found.kind_of(device), state] += wanted.suits(device, state, found)
        for driver, of_driver in sorted(numbers.items()):
            for rank, state in enumerate(DeviceState):
                devices, partitions = (of_driver[kind, state] for kind in DeviceKind)
                if devices or partitions or (state is DeviceState.FREE and wanted.has_state(state)):
                    item = {"driver": driver, "state": state.value, "devices": devices, "partitions": partitions}
                    yield Row((driver, f"{rank:02}"), partial(dict, item))

    return TableView(("driver", "state", "devices", "partitions"), rows(), note=wanted.note)


def node_of(device: Device, origin: Slice) -> str:
    """The one node that reaches the device; else how its nodes are chosen."""
    placement = origin.placement or device.placement
    if placement is None:
        return ""
    return placement.node_name or ("all nodes" if placement.all_nodes else "by selector")


@dataclass
class _PoolRows:
    """The rows of a pool's devices."""

    pool_id: PoolId
    snapshot: Snapshot
    states: PoolStates
    wide: bool = field(kw_only=True)

    def item(self, origin: Slice, device: Device, state: DeviceState) -> Item:
        """The row of a device."""
        hindrance = self.states.hindrance(origin, device, state)
        taints = (*device.taints, *self.snapshot.taint_rules.taints_of(device.id))
        found: dict[str, JSON] = {
            "driver": device.id.driver,
            "pool": device.id.pool,
            "device": device.id.device,
            "node": node_of(device, origin),
            "kind": self.states.kind_of(device).value,
            "state": state.value,
            "claims": [*self._claims.get(device.id.device, ())],
            "taints": [taint_text(each) for each in taints],
            "blockedBy": [
                *dict.fromkeys(each for at in hindrance.blockers for each in self._claims.get(at.device, ()))
            ],
            "why": hindrance.text,
        }
        if self.wide:
            found["attributes"] = {
                name.removeprefix(f"{device.id.driver}/"): attribute_json(each)
                for name, each in device.attributes.items()
            }
            amounts = self.states.capacities(device)
            found["capacity"] = {name: {"left": left, "total": total} for name, left, total in amounts}
        return found

    @cached_property
    def _claims(self) -> Mapping[str, list[str]]:
        """The claims that hold something of each device, those included whose allocation is in flight."""
        found: dict[str, dict[str, None]] = {}
        for uid in self.snapshot.holders.get(self.pool_id, ()):
            claim = self.snapshot.claim(uid)
            name = str(claim.key) if claim else f"uid {uid}"
            results = (each for allocation in self.snapshot.held_by(uid) for each in allocation.results)
            for each in results:
                if each.device.pool_id == self.pool_id and not each.admin_access:
                    found.setdefault(each.device.device, {})[name] = None
        return {device: sorted(claims) for device, claims in found.items()}


def row_order(row: tuple[Slice, Device, DeviceState]) -> tuple[str, str]:
    """The order of the devices of a pool in all views."""
    origin, device, _ = row
    return device.id.device, origin.name


def attribute_json(value: AttributeValue) -> JSON:
    """The value of an attribute as JSON; a version is its text."""
    if isinstance(value, tuple):
        return [attribute_json(each) for each in value]
    return str(value) if isinstance(value, Version) else value


def attributes_text(attributes: Mapping[str, JSON]) -> str:
    """``model=A100, minors=[0, 1], healthy=true``."""
    texts = {name: value if isinstance(value, str) else dumps(value) for name, value in attributes.items()}
    return ", ".join(f"{name}={text}" for name, text in texts.items())


def _amounts(capacity: Mapping[str, Mapping[str, str]]) -> str:
    """``memory 40Gi/80Gi``: what is left of it, and all of it."""
    return ", ".join(f"{name} {each['left']}/{each['total']}" for name, each in capacity.items())


CELLS: Final[Mapping[str, Callable[[Any], str]]] = {"attributes": attributes_text, "capacity": _amounts}
"""How the text shows the columns of a wide table."""


def pools(
    snapshot: Snapshot, features: Features, states: DeviceStates, *, driver: str = "", node: str = ""
) -> TableView:
    """The pools, of one driver, or with devices for one node alone. Partitions of devices are counted by themselves.

    A pool is as old as the oldest slice of its newest generation.
    """
    what = ("driver", "pool", "generation", "slices", "created", "node")
    columns = (*what, "devices", "free", "states", "partitions", "problem")
    local: Collection[PoolId] = snapshot.inventory.local.get(node, ()) if node else ()

    def item(pool: Pool, states_of: Callable[[PoolId], PoolStates]) -> Item:
        newest, found = pool.newest, states_of(pool.id).numbers()
        nodes = sorted({node_of(device, origin) for origin in newest for device in origin.devices})
        devices, partitions = (
            {state.value: found[kind, state] for state in DeviceState if found[kind, state]} for kind in DeviceKind
        )
        return {
            "driver": pool.id.driver,
            "pool": pool.id.pool,
            "generation": newest[0].generation,
            "slices": f"{len(newest)}/{newest[0].slice_count}",
            "created": min((each.created for each in newest if each.created), default=""),
            "node": nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes" if nodes else "",
            "devices": sum(devices.values()),
            "free": found[DeviceKind.PHYSICAL, DeviceState.FREE],
            "states": {**devices},
            "partitions": {**partitions},
            "problem": pool.problem(features),
        }

    def rows() -> Iterator[Row]:
        states_of = states.at(snapshot)
        for pool_id in sorted(snapshot.inventory.pools):
            if matches(driver, pool_id.driver) and (not node or pool_id in local):
                yield Row(pool_id, partial(item, snapshot.inventory.pools[pool_id], states_of))

    return TableView(columns, rows())
