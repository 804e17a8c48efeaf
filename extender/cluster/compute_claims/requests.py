"""Groups of cores as requests and constraints over CPU devices, with the attributes of dra-driver-cpu.

What a group prefers is the first of several alternatives, so it orders the solutions and refuses none. Siblings are the
CPUs of one core of one socket.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Final

from allocator import MAX_RESULTS
from extender.cluster.compute_claims.parameters import CoreGroup, Need, Siblings

CLASS: Final = "dra.cpu"
"""The device class of dra-driver-cpu; also the name of the driver, and the domain of its attributes."""

_NUMA_NODE: Final = "resource.kubernetes.io/numaNode"
_CORE: Final = (f"{CLASS}/coreID", f"{CLASS}/socketID")
_PAIR: Final = 2
"""CPUs of a core that has siblings."""

_ZONES: Final = 2
"""NUMA nodes over which cores are spread: 0 and 1."""

_ONE_THREAD: Final = f'"smtEnabled" in device.attributes["{CLASS}"] && !device.attributes["{CLASS}"].smtEnabled'

_NEAR, _BOUND, _SPREAD, _SIBLINGS, _ANY = "near", "bound", "spread", "siblings", "any"
_WHOLE, _SINGLE = "whole", "single"

Object = dict[str, Any]


@dataclass(slots=True)
class ClaimParts:
    """What is added to a claim.

    Attributes:
        requests: of CPUs.
        optional: the names of those of them that may be left out: more cores than the least.
        instead: requests of devices that are replaced, by name: where the NUMA node is only preferred.
    """

    requests: list[Object] = field(default_factory=list)
    constraints: list[Object] = field(default_factory=list)
    optional: list[str] = field(default_factory=list)
    instead: dict[str, Object] = field(default_factory=dict)

    def match(self, attribute: str, names: Sequence[str]) -> None:
        """All devices of some requests have the same value of an attribute."""
        if names:
            self.constraints.append({"requests": [*names], "matchAttribute": attribute})


@dataclass(frozen=True, slots=True)
class _Unit:
    """CPUs of one request.

    Attributes:
        is_more: they are beyond the least number of their group.
        zone: the NUMA node for cores that are spread.
        is_plain: they prefer no siblings, whatever their group does.
    """

    name: str
    count: int
    is_more: bool = False
    zone: int = 0
    is_plain: bool = False


def parts_of(groups: Sequence[CoreGroup], devices: Sequence[Object], room: int) -> ClaimParts:
    """The requests for groups of cores.

    Args:
        groups: of one claim.
        devices: the requests that the claim has for other devices.
        room: how many constraints there should be at most. What is preferred is left out as far as that is needed: the
            last pairs first, then NUMA nodes, then those of devices. What is required may need more.
    """
    parts = ClaimParts()
    unbound = [replace(each, bind=_required(each.bind)) for each in groups]
    alone = [replace(each, with_devices=_required(each.with_devices)) for each in unbound]
    for weaker, preferred in product((groups, unbound, alone), range(MAX_RESULTS // _PAIR, -1, -1)):
        parts = _parts(weaker, devices, preferred)
        if len(parts.constraints) <= room and all(len(each["requests"]) <= MAX_RESULTS for each in parts.constraints):
            break
    return parts


def _required(need: Need) -> Need:
    """The need without a preference."""
    return need if need is Need.REQUIRED else Need.NONE


def _parts(groups: Sequence[CoreGroup], devices: Sequence[Object], preferred: int) -> ClaimParts:
    """The requests. Of groups that prefer siblings, only the first ``preferred`` pairs do."""
    parts = ClaimParts()
    names = [each["name"] for each in devices]
    for number, group in enumerate(groups):
        if group.is_shared:
            continue
        units = list(_units(group_prefix(number), group))
        if group.siblings is Siblings.PREFERRED:
            pairs = [each for each in units if each.count == _PAIR]
            plain, preferred = pairs[preferred:], max(0, preferred - len(pairs))
            units = [replace(each, is_plain=each in plain) for each in units]
        alternatives = {each.name: _alternatives(each, group, has_devices=bool(names)) for each in units}
        parts.requests += (_request(each, alternatives[each.name]) for each in units)
        _add_siblings(parts, group, units, alternatives)
        _add_places(parts, group, alternatives, devices)
        parts.optional += (each.name for each in units if each.is_more)
    return parts


def group_prefix(number: int) -> str:
    """How the names of the requests of a group begin."""
    return f"cores-{number}-"


def _units(prefix: str, group: CoreGroup) -> Iterator[_Unit]:
    """The CPUs that are requested together: the least number, and one or two at a time of those beyond it."""
    least = _sizes(group, group.least, are_together=True)
    more = _sizes(group, group.most - group.least, are_together=False)
    for number, size in enumerate((*least, *more)):
        yield _Unit(f"{prefix}{number}", size, number >= len(least), number % _ZONES)


def _sizes(group: CoreGroup, count: int, *, are_together: bool) -> list[int]:
    """The CPUs of each request for a number of cores; the claim gets all or none of them if they are together."""
    if group.siblings in (Siblings.PREFERRED, Siblings.REQUIRED):
        return [_PAIR] * (count // _PAIR) + [1] * (count % _PAIR)
    if group.siblings is Siblings.DENIED or not are_together:
        return [1] * count
    sizes = [count] if group.interleave is Need.NONE else [count - count // _ZONES, count // _ZONES]
    return [each for each in sizes if each]


def _alternatives(unit: _Unit, group: CoreGroup, *, has_devices: bool) -> list[tuple[str, str]]:
    """The alternatives of a request: its NUMA node and its siblings, the best first; empty: nothing is said."""
    places = [_NEAR] if group.with_devices is Need.PREFERRED and has_devices else []
    places += [_BOUND] if group.bind is Need.PREFERRED and group.most > 1 else []
    places += [_SPREAD] if group.interleave is not Need.NONE else []
    if group.interleave is not Need.REQUIRED:
        places.append("")
    ways = [""]
    if group.siblings is Siblings.DENIED:
        ways = [_WHOLE, _SINGLE]
    elif group.siblings is Siblings.PREFERRED and unit.count == _PAIR and not unit.is_plain:
        ways = [_SIBLINGS, ""]
    return [(place, way) for place in places for way in ways]


def _label(alternative: tuple[str, str]) -> str:
    return "-".join(filter(None, alternative)) or _ANY


def _request(unit: _Unit, alternatives: Sequence[tuple[str, str]]) -> Object:
    ways = [_way(unit, each) for each in alternatives]
    if len(ways) == 1:
        return {"name": unit.name, "exactly": ways[0]}
    named = [{"name": _label(each), **way} for each, way in zip(alternatives, ways, strict=True)]
    return {"name": unit.name, "firstAvailable": named}


def _way(unit: _Unit, alternative: tuple[str, str]) -> Object:
    place, way = alternative
    count = 2 * unit.count if way == _WHOLE else unit.count
    selectors = [_ONE_THREAD] if way == _SINGLE else []
    if place == _SPREAD:
        domain, _, name = _NUMA_NODE.partition("/")
        attributes = f'device.attributes["{domain}"]'
        selectors.append(f'"{name}" in {attributes} && {attributes}.{name} == {unit.zone}')
    found: Object = {"deviceClassName": CLASS, "count": count}
    return found | ({"selectors": [{"cel": {"expression": each}} for each in selectors]} if selectors else {})


def _add_siblings(
    parts: ClaimParts, group: CoreGroup, units: Sequence[_Unit], alternatives: Mapping[str, Sequence[tuple[str, str]]]
) -> None:
    """Each request for CPUs of one core gets them from one core of one socket."""
    for unit in units:
        every = alternatives[unit.name]
        if group.siblings is Siblings.REQUIRED:
            names = _named(unit.name, every, {way for _, way in every})
        else:
            names = _named(unit.name, every, {_WHOLE, _SIBLINGS})
        for attribute in _CORE:
            parts.match(attribute, names)


def _named(name: str, every: Sequence[tuple[str, str]], ways: set[str]) -> list[str]:
    """The alternatives of a request that have one of some ways, as constraints name them."""
    if len(every) == 1:
        return [name] if every[0][1] in ways else []
    return [f"{name}/{_label(each)}" for each in every if each[1] in ways]


def _add_places(
    parts: ClaimParts,
    group: CoreGroup,
    alternatives: Mapping[str, Sequence[tuple[str, str]]],
    devices: Sequence[Object],
) -> None:
    """The group is on one NUMA node, or on that of the devices of the claim, or prefers it."""

    def at(*places: str) -> list[str]:
        return [f"{name}/{_label(each)}" for name, every in alternatives.items() for each in every if each[0] in places]

    names = [each["name"] for each in devices]
    if group.with_devices is Need.REQUIRED and names:
        parts.match(_NUMA_NODE, [*names, *alternatives])
    elif group.bind is Need.REQUIRED and group.most > 1:
        parts.match(_NUMA_NODE, [*alternatives])
    elif group.bind is Need.PREFERRED:
        parts.match(_NUMA_NODE, at(_BOUND))  # those that are near devices are on one NUMA node by that
    if group.with_devices is Need.PREFERRED and names:
        parts.instead |= {each["name"]: _softened(each) for each in devices}
        parts.match(_NUMA_NODE, [*(f"{name}/{_NEAR}" for name in names), *at(_NEAR)])


def _softened(request: Object) -> Object:
    """The request for a device with two equal alternatives: the first is on the NUMA node of cores."""
    own = request["exactly"]
    return {"name": request["name"], "firstAvailable": [{"name": _NEAR, **own}, {"name": _ANY, **own}]}
