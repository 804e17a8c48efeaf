"""The table of compute resources (KEP-14): devices with equal properties are one row, and how many of them are free."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, partial
from hashlib import sha256
from typing import Any, Final, TypeAlias

import orjson

from allocator import AttributeValue, ClassMembers, Device, Slice
from allocator.checks import DeviceState
from allocator.tools import JSON
from extender.answers.observe.device_states import DeviceStates
from extender.answers.observe.tables.devices import DeviceFilter, attribute_json, attributes_text, node_of
from extender.cluster.snapshot import Snapshot
from extender.plugins.resource_classes.device_class import resource_of
from extender.tools.table import Item, Key, Row, TableView

_NUMBERS: Final = ("devices", "allocatable", "free", "inUse")
_IN_USE: Final = (DeviceState.SHARED, DeviceState.ALLOCATED, DeviceState.CLASH)
_WIDE: Final = ("states", "names")
_HASH_LENGTH: Final = 8

_NUMBERED: Final = re.compile(r"(?:ID|Id|[iI]ndex|[mM]inor)$|^id$")
"""Names of numbers that say which device it is, or where it is."""

_NAMING: Final = re.compile(r"^(?:name|ifName|mac|ipv4|ipv6)$|(?:uuid|UUID|serial|serialNumber|SerialNumber)$")
"""Names of texts that do."""

_PLACE: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"  # a UUID
    r"|^(?:pci)?[0-9a-f]{4,8}:[0-9a-f]{2}(?::[0-9a-f]{2}\.[0-7])?$"  # a PCI address or the root of a bus
    r"|^[0-9a-f]{2}(?::[0-9a-f]{2}){5}$",  # a MAC address
    re.IGNORECASE,
)
"""Texts that do, by their form."""


class By(Enum):
    """The subject of a row."""

    NODE = "node"
    """Devices of one node with equal properties."""
    RESOURCE = "resource"
    """Devices of all nodes with equal properties."""
    CLASS = "class"
    """Devices of a device class. A device counts for each class that selects it."""


_Judged: TypeAlias = tuple[Slice, Device, DeviceState]

_Properties: TypeAlias = tuple[Mapping[str, JSON], Mapping[str, JSON]]
"""Attributes and capacities by name; a name in the driver's own domain has no domain."""


@dataclass(slots=True)
class _Group:
    """Devices of one row.

    Attributes:
        shown: the fields that name the group.
    """

    shown: Mapping[str, JSON]
    states: Counter[DeviceState] = field(default_factory=Counter)
    nodes: set[str] = field(default_factory=set)
    devices: list[Device] = field(default_factory=list)

    def add(self, origin: Slice, device: Device, state: DeviceState) -> None:
        self.states[state] += 1
        self.nodes.add(node_of(device, origin))
        self.devices.append(device)

    def item(self, classes: Mapping[str, ClassMembers], *, wide: bool) -> Item:
        """The row, with the number of devices that each of the classes selects."""
        numbers = {name: sum(map(members.has, self.devices)) for name, members in sorted(classes.items())}
        found: dict[str, JSON] = {
            **self.shown,
            "nodes": len({each for each in self.nodes if each and " " not in each}),
            "devices": self.states.total(),
            "allocatable": self.states.total() - self.states[DeviceState.UNUSABLE],
            "free": self.states[DeviceState.FREE],
            "inUse": sum(self.states[each] for each in _IN_USE),
            "classes": {name: number for name, number in numbers.items() if number},
        }
        if wide:
            found["states"] = {state.value: self.states[state] for state in DeviceState if self.states[state]}
            found["names"] = [*sorted("/".join(each.id) for each in self.devices)]
        return found


def resources(
    snapshot: Snapshot,
    states: DeviceStates,
    classes: Mapping[str, ClassMembers],
    wanted: DeviceFilter,
    *,
    by: By = By.NODE,
    properties: AbstractSet[str] = frozenset(),
    wide: bool = False,
) -> TableView:
    """The compute resources.

    Args:
        snapshot: the cluster.
        states: of its devices.
        classes: the members of each device class that rows are about.
        wanted: leaves out devices.
        by: what a row is about.
        properties: those that tell devices apart; empty: all that do not name a device or its place.
        wide: with the names and states of the devices.
    """

    def judged() -> Iterator[_Judged]:
        states_of = states.at(snapshot)
        for pool_id in filter(wanted.has_pool, snapshot.inventory.pools):
            of_pool = states_of(pool_id)
            yield from (each for each in of_pool if wanted.has(*each, of_pool))

    def rows() -> Iterator[Row]:
        groups = _of_classes(judged(), snapshot, classes) if by is By.CLASS else _alike(judged(), by, properties)
        for key in sorted(groups):
            yield Row(key, partial(groups[key].item, {} if by is By.CLASS else classes, wide=wide))

    heading = {
        By.NODE: ("node", "resource", *_NUMBERS, "classes", "attributes", "capacity"),
        By.RESOURCE: ("resource", "nodes", *_NUMBERS, "classes", "attributes", "capacity"),
        By.CLASS: ("class", "extendedResource", "nodes", *_NUMBERS),
    }[by]
    cells: Mapping[str, Callable[[Any], str]] = {"attributes": attributes_text, "capacity": attributes_text}
    judging = classes.values() if by is By.CLASS else ()

    def note() -> str:
        return "; ".join(filter(None, (wanted.note(), *(each.failures for each in judging))))

    return TableView(heading + (_WIDE if wide else ()), rows(), cells, note)


def _of_classes(
    judged: Iterator[_Judged], snapshot: Snapshot, classes: Mapping[str, ClassMembers]
) -> Mapping[Key, _Group]:
    """The devices of each class; a class without devices has a group, too."""
    groups: dict[Key, _Group] = {
        (name,): _Group({"class": name, "extendedResource": snapshot.classes[name].extended_resource_name})
        for name in classes
    }
    for each in judged:
        for name, members in classes.items():
            if members.has(each[1]):
                groups[name,].add(*each)
    return groups


def _alike(judged: Iterator[_Judged], by: By, properties: AbstractSet[str]) -> Mapping[Key, _Group]:
    """Devices with equal properties, of each node or of all nodes."""
    groups: dict[Key, _Group] = {}
    properties_of = _reader(properties)
    for origin, device, state in judged:
        found = properties_of(device)
        name = _name(device.id.driver, found)
        key: Key = (node_of(device, origin), name) if by is By.NODE else (name,)
        if key not in groups:
            groups[key] = _Group(_of_kind(key, device.id.driver, found))
        groups[key].add(origin, device, state)
    return groups


def _of_kind(key: Key, driver: str, found: _Properties) -> Mapping[str, JSON]:
    """The fields that name devices with equal properties, of one node if the key has one."""
    *nodes, name = key
    attributes, capacity = found
    return {
        **({"node": nodes[0]} if nodes else {}),
        "resource": name,
        "driver": driver,
        "attributes": dict(attributes),
        "capacity": dict(capacity),
    }


def _name(driver: str, found: _Properties) -> str:
    """``nvidia.com/gpu-3f2a91bc``, as KEP-14 names compute resources: equal for equal properties, everywhere."""
    text = orjson.dumps(found, option=orjson.OPT_SORT_KEYS)
    return f"{resource_of(driver)}-{sha256(text).hexdigest()[:_HASH_LENGTH]}"


def _reader(properties: AbstractSet[str]) -> Callable[[Device], _Properties]:
    """Reads the properties that tell devices apart. It remembers which attributes name a device."""
    names_device = cache(_names_device)

    def read(device: Device) -> _Properties:
        own = f"{device.id.driver}/"
        attributes = {
            name.removeprefix(own): attribute_json(value)
            for name, value in device.attributes.items()
            if (name.removeprefix(own) in properties if properties else not names_device(name, value))
        }
        amounts = {name.removeprefix(own): str(each) for name, each in device.quantities.items()}
        return attributes, {name: each for name, each in amounts.items() if not properties or name in properties}

    return read


def _names_device(name: str, value: AttributeValue) -> bool:
    """Whether an attribute says which device it is, or where it is: equal devices differ in it."""
    last = name.rpartition("/")[2]
    if isinstance(value, str):
        return _NAMING.search(last) is not None or _PLACE.search(value) is not None
    return isinstance(value, int) and not isinstance(value, bool) and _NUMBERED.search(last) is not None
