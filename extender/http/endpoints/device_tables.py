"""The tables of pools, devices and compute resources on HTTP."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pydantic import Field

from allocator import ClassMembers, DeviceState, Limits, SearchBudget, TimedSelectors
from allocator.tools import JSON
from extender.http.endpoints.table_pages import Paging, Table, text_of
from extender.kube.resources import (
    CLAIMS,
    CLASSES,
    NODES,
    SLICES,
    TAINT_RULES,
)
from extender.observe.overview import Overview
from extender.observe.tables.devices import DeviceFilter, class_of, device_numbers, devices
from extender.observe.tables.pools import pools
from extender.observe.tables.resources import By, resources
from extender.observe.tables.table import TableView

_SELECTING: Final = Limits(steps=0, seconds=5.0)
"""The limits for the selectors of a class on all devices. Searches run in turns, and so does this work."""


class Pools(Paging):
    """Which pools."""

    driver: str = Field(default="", description="Of this driver.", examples=["gpu.example.com"])
    node: str = Field(default="", description="With devices for this node only.", examples=["node-0"])


POOLS: Final = Table(
    "pools",
    "Pools, and what is free in them.",
    Pools,
    lambda overview, query: pools(
        overview.state.snapshot, overview.features, overview.devices, driver=query.driver, node=query.node
    ),
    {
        "driver": "gpu.example.com",
        "pool": "node-0",
        "generation": 1,
        "slices": "1/1",
        "node": "node-0",
        "devices": 8,
        "free": 7,
        "states": {"free": 7, "allocated": 1},
        "problem": "",
    },
    (SLICES, CLAIMS, TAINT_RULES, NODES),
)


class Devices(Paging):
    """Which devices."""

    driver: str = Field(default="", description="Of this driver.", examples=["gpu.example.com"])
    pool: str = Field(default="", description="Of the pools of this name.", examples=["node-0"])
    device: str = Field(default="", description="Of this name within its pool.", examples=["gpu-0"])
    node: str = Field(default="", description="For this node only.", examples=["node-0"])
    device_class: str = Field(
        default="", alias="class", description="Of this device class, by its selectors.", examples=["gpu"]
    )
    state: DeviceState | None = Field(default=None, description="In this state.", examples=["allocated"])
    free: bool | None = Field(default=None, description="Only free devices, or only others.", examples=["true"])
    count: bool = Field(default=False, description="How many devices are in each state.", examples=["true"])
    wide: bool = Field(default=False, description="With attributes and capacities.", examples=["true"])

    @property
    def filters(self) -> Mapping[str, JSON]:
        """The parameters that leave out devices."""
        return {name: value for name, value in super().filters.items() if name not in ("count", "wide")}


def _devices(overview: Overview, query: Devices) -> TableView:
    snapshot, states = overview.state.snapshot, overview.devices
    members = _members(overview, query.device_class) if query.device_class else None
    wanted = DeviceFilter(query.driver, query.pool, query.node, text_of(query.state), query.free, members, query.device)
    return (
        device_numbers(snapshot, states, wanted) if query.count else devices(snapshot, states, wanted, wide=query.wide)
    )


def _members(overview: Overview, device_class: str) -> ClassMembers:
    return ClassMembers(class_of(device_class, overview.state.snapshot), _timed_selectors(overview))


def _timed_selectors(overview: Overview) -> TimedSelectors:
    solver = overview.decider.solver
    return TimedSelectors(solver.selectors, SearchBudget(_SELECTING, solver.clock))


DEVICES: Final = Table(
    "devices",
    "Devices: whether a claim can have them, and who holds them.",
    Devices,
    _devices,
    {
        "driver": "gpu.example.com",
        "pool": "node-0",
        "device": "gpu-0",
        "node": "node-0",
        "state": "allocated",
        "claims": ["default/gpu"],
        "taints": [],
        "blockedBy": [],
        "why": "",
    },
    (SLICES, CLAIMS, TAINT_RULES, NODES, CLASSES),
)


class Resources(Paging):
    """Which devices, and what a row is about."""

    driver: str = Field(default="", description="Of this driver.", examples=["gpu.example.com"])
    node: str = Field(default="", description="For this node only.", examples=["node-0"])
    device_class: str = Field(
        default="", alias="class", description="Of this device class, by its selectors.", examples=["gpu"]
    )
    by: By = Field(
        default=By.NODE,
        description="What a row is about: equal devices of a node, equal devices of all nodes, or a device class.",
        examples=["class"],
    )
    properties: str = Field(
        default="",
        description="The properties that tell devices apart, with commas between them. Without this parameter, all "
        "that do not name a device or its place.",
        examples=["model"],
    )
    wide: bool = Field(default=False, description="With the states and names of the devices.", examples=["true"])

    @property
    def filters(self) -> Mapping[str, JSON]:
        """The parameters that leave out devices."""
        return {name: value for name, value in super().filters.items() if name in ("driver", "node", "class")}


def _resources(overview: Overview, query: Resources) -> TableView:
    snapshot, selectors = overview.state.snapshot, _timed_selectors(overview)
    members = {name: ClassMembers(each, selectors) for name, each in snapshot.classes.items() if each.group is None}
    wanted = DeviceFilter(query.driver, node=query.node)
    if query.device_class:
        only = ClassMembers(class_of(query.device_class, snapshot), selectors)
        if query.by is By.CLASS:
            members = {query.device_class: only}
        else:
            wanted = replace(wanted, members=only)
    properties = frozenset(filter(None, map(str.strip, query.properties.split(","))))
    return resources(snapshot, overview.devices, members, wanted, by=query.by, properties=properties, wide=query.wide)


COMPUTE_RESOURCES: Final = Table(
    "resources",
    "Devices with equal properties: how many there are, and how many of them are free.",
    Resources,
    _resources,
    {
        "node": "node-0",
        "resource": "example.com/gpu-3f2a91bc",
        "driver": "gpu.example.com",
        "attributes": {"model": "h100"},
        "capacity": {"memory": "80Gi"},
        "nodes": 1,
        "devices": 8,
        "allocatable": 8,
        "free": 5,
        "inUse": 3,
        "classes": {"gpu": 8},
    },
    (SLICES, CLAIMS, TAINT_RULES, NODES, CLASSES),
)
