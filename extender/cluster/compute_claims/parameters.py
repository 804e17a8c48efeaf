"""The parameters of a compute claim, as KEP-3675 writes them: groups of cores, and where their CPUs have to be."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from allocator import MAX_RESULTS
from allocator.tools import Fields, dns_subdomain, hint, shown

_T = TypeVar("_T")

CORES: Final = "cores"
_DEVICE, _MEMORY, _CPU = "device attributes", "mem attributes", "cpu attributes"
DRIVER: Final = "cci driver"
"""Not of the text: the driver that chooses among the CPUs of the claim, for each of its containers."""

_LISTS: Final = (_DEVICE, _MEMORY, _CPU)
_KEYS: Final = (CORES, *_LISTS, DRIVER)
_RANGE: Final = re.compile(r"(?P<least>[1-9][0-9]{0,3})(?:-(?P<most>[1-9][0-9]{0,3}))?", re.ASCII)
_EXCLUSIVE, _SHARED = "EXCLUSIVE", "SHARED"
_THREADS: Final = 2


class Need(Enum):
    """How much a group needs something."""

    NONE = "none"
    PREFERRED = "preferred"
    REQUIRED = "required"


class Siblings(Enum):
    """What a group does with the CPUs of one core."""

    ANY = ""
    PREFERRED = "CORE-SIBLING-PREFERRED"
    REQUIRED = "CORE-SIBLING-REQUIRED"
    DENIED = "CORE-SIBLING-DENIED"


_OF_DEVICES: Final[Mapping[str, Need]] = {
    "NO-DEVICE-AFFINITY": Need.NONE,
    "NUMA-DEVICE-AFFINITY-PREFERRED": Need.PREFERRED,
    "NUMA-DEVICE-AFFINITY-REQUIRED": Need.REQUIRED,
}
_OF_MEMORY: Final[Mapping[str, tuple[Need, Need]]] = {
    "NO-MEM-AFFINITY": (Need.NONE, Need.NONE),
    "NUMA-MEM-AFFINITY-BIND-PREFERRED": (Need.PREFERRED, Need.NONE),
    "NUMA-MEM-AFFINITY-BIND-REQUIRED": (Need.REQUIRED, Need.NONE),
    "NUMA-MEM-AFFINITY-INTERLEAVE-PREFERRED": (Need.NONE, Need.PREFERRED),
    "NUMA-MEM-AFFINITY-INTERLEAVE-REQUIRED": (Need.NONE, Need.REQUIRED),
}
"""By attribute: one NUMA node for all cores, and cores of several NUMA nodes."""

_OF_CPUS: Final = (_EXCLUSIVE, _SHARED, *(each.value for each in Siblings if each.value))


@dataclass(frozen=True, slots=True)
class CoreGroup:
    """Some cores of a compute claim. A core of the proposal is a logical CPU.

    Attributes:
        least, most: how many; more than the least are taken where they are free.
        is_shared: they are the CPUs that nobody has for itself. Then nothing else is said of them.
        bind: all of them belong to one NUMA node.
        interleave: they are spread over NUMA nodes.
        with_devices: they belong to the NUMA node of the devices of the claim.
    """

    least: int
    most: int
    is_shared: bool = True
    siblings: Siblings = Siblings.ANY
    bind: Need = Need.NONE
    interleave: Need = Need.NONE
    with_devices: Need = Need.NONE

    @property
    def devices(self) -> int:
        """The most CPUs that the group takes from others: a core without its sibling takes both."""
        return 0 if self.is_shared else self.most * (_THREADS if self.siblings is Siblings.DENIED else 1)


def read_parameters(fields: Fields) -> tuple[CoreGroup, ...]:
    """The groups of the parameters; what is wrong becomes problems of the fields."""
    for name in sorted(fields.data.keys() - set(_KEYS)):
        fields.problem(name, f"unknown field{hint(name, _KEYS)}")
    cores = fields.items(CORES)
    if not cores:
        fields.problem(CORES, "needs at least one number of cores")
    read_driver(fields)
    lists = {name: fields.items(name) for name in _LISTS}
    for name, entries in lists.items():
        if entries and len(entries) != len(cores):
            fields.problem(name, f"has {len(entries)} entries, and {CORES} has {len(cores)}: each group has one")
            lists[name] = []
    found = tuple(
        _group(fields, number, {name: each[number] if each else None for name, each in lists.items()})
        for number in range(len(cores))
    )
    total = sum(each.devices for each in found)
    if total > MAX_RESULTS:
        fields.problem(CORES, f"takes {total} CPUs for itself, a claim can hold {MAX_RESULTS} devices")
    return found


def read_driver(fields: Fields) -> str:
    """The driver that parameters name; empty: none."""
    name = fields.text(DRIVER)
    if name and (problem := dns_subdomain(name)):
        fields.problem(DRIVER, f"{shown(name)}: {problem}")
    return name


def _group(fields: Fields, number: int, entries: Mapping[str, object]) -> CoreGroup:
    least, most = _range(fields, number)
    words = _words(fields, number, entries[_CPU])
    siblings = next((each for each in Siblings if each.value and each.value in words), Siblings.ANY)
    device = _choice(fields, f"{_DEVICE}[{number}]", entries[_DEVICE], _OF_DEVICES) or Need.NONE
    bind, interleave = _choice(fields, f"{_MEMORY}[{number}]", entries[_MEMORY], _OF_MEMORY) or (Need.NONE, Need.NONE)
    found = CoreGroup(least, most, _EXCLUSIVE not in words, siblings, bind, interleave, device)
    place = f"{_CPU}[{number}]"
    if found.is_shared:
        if siblings is not Siblings.ANY:
            fields.problem(place, f"{siblings.value} needs {_EXCLUSIVE}")
        if Need.REQUIRED in (bind, interleave, device):
            fields.problem(place, f"{_SHARED} cores belong to no NUMA node: nothing about their place can be REQUIRED")
        return CoreGroup(least, most)
    if siblings is Siblings.REQUIRED and (least % _THREADS or most % _THREADS):
        fields.problem(f"{CORES}[{number}]", f"{siblings.value} needs an even number of cores: siblings are {_THREADS}")
    if interleave is Need.REQUIRED and device is Need.REQUIRED:
        fields.problem(f"{_MEMORY}[{number}]", "cores of several NUMA nodes cannot all be on that of the devices")
    if interleave is Need.REQUIRED and least < _THREADS:
        fields.problem(f"{CORES}[{number}]", "one core cannot be on several NUMA nodes")
    return found


def _range(fields: Fields, number: int) -> tuple[int, int]:
    value = fields.items(CORES)[number]
    match = _RANGE.fullmatch(str(value)) if isinstance(value, str | int) else None
    least = int(match["least"]) if match else 0
    most = int(match["most"] or least) if match else 0
    if match is None or most < least:
        fields.problem(f"{CORES}[{number}]", f'{shown(value)} is neither a number of cores, nor a range such as "6-8"')
        return 1, 1
    return least, most


def _words(fields: Fields, number: int, entry: object) -> Sequence[str]:
    """The CPU attributes of a group; without any, the cores are shared."""
    place = f"{_CPU}[{number}]"
    if entry is None:
        return (_SHARED,)
    if not isinstance(entry, list) or not all(isinstance(each, str) for each in entry):
        fields.problem(place, f"expected a list of texts, not {shown(entry)}")
        return (_SHARED,)
    for each in entry:
        if each not in _OF_CPUS:
            fields.problem(place, f"{shown(each)} is not one of {', '.join(_OF_CPUS)}{hint(each, _OF_CPUS)}")
    if _EXCLUSIVE in entry and _SHARED in entry:
        fields.problem(place, f"cores are either {_EXCLUSIVE} or {_SHARED}")
    if len([each for each in Siblings if each.value in entry]) > 1:
        fields.problem(place, "names two rules for siblings")
    return entry


def _choice(fields: Fields, place: str, entry: object, known: Mapping[str, _T]) -> _T | None:
    if entry is None:
        return None
    if isinstance(entry, str) and entry in known:
        return known[entry]
    fields.problem(place, f"{shown(entry)} is not one of {', '.join(known)}")
    return None
