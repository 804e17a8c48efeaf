"""The opaque parameters of a claim for CPUs: its driver, and the CPUs on which nothing runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from allocator import Problem
from allocator.tools import Fields, hint
from extender.cluster.compute_claims.parameters import CORES, DRIVER, CoreGroup, Siblings, read_driver, read_parameters
from extender.cluster.compute_claims.requests import group_prefix
from extender.node.driver import AllocatedClaim, AllocatedDevice, DriverParameters, PrepareError
from extender.node.topology import Cpu

_KNOWN: Final = (CORES, DRIVER)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a claim wants of the CPUs that it is allocated.

    Attributes:
        driver: the CCI driver that chooses for each container; empty: the built-in one.
        idle: the CPUs on which nothing runs: siblings of CPUs that have a core alone.
    """

    driver: str = ""
    idle: frozenset[int] = frozenset()


def read_wishes(claim: AllocatedClaim, cpus: Mapping[str, Cpu]) -> Wishes:
    """The wishes of a claim. Its own parameters count before those of its classes.

    Args:
        claim: with its devices, and their parameters.
        cpus: of the machine, by device.

    Raises:
        PrepareError: all that is wrong with the parameters; or several requests have several drivers.
    """
    problems: list[Problem] = []
    drivers, idle = dict[str, str](), set[int]()
    for number, each in enumerate(claim.parameters):
        named, groups = _read(Fields(dict(each.value), f"parameters[{number}]", problems))
        if named:
            drivers |= {device.device: named for device in claim.devices if _is_for(each, device)}
        idle.update(_idle(claim.devices, groups, cpus))
    if problems:
        raise PrepareError(f"{claim}: {'; '.join(map(str, problems))}")
    found = {drivers.get(each.device, "") for each in claim.devices}
    if len(found) > 1:
        names = ", ".join(each or "none" for each in sorted(found))
        raise PrepareError(f"{claim}: its requests have different CCI drivers ({names}), and a claim has one")
    return Wishes(next(iter(found), ""), frozenset(idle))


def _read(fields: Fields) -> tuple[str, Sequence[CoreGroup]]:
    if fields.has(CORES):
        groups = read_parameters(fields)
        return str(fields.data.get(DRIVER) or ""), groups
    for name in sorted(fields.data.keys() - {DRIVER}):
        fields.problem(name, f"unknown field{hint(name, _KNOWN)}")
    return read_driver(fields), ()


def _is_for(parameters: DriverParameters, device: AllocatedDevice) -> bool:
    request = device.request.partition("/")[0]
    return not parameters.requests or device.request in parameters.requests or request in parameters.requests


def _idle(devices: Sequence[AllocatedDevice], groups: Sequence[CoreGroup], cpus: Mapping[str, Cpu]) -> Iterator[int]:
    """Of each core that a group has without its sibling, all CPUs but the first."""
    for number, group in enumerate(groups):
        if group.siblings is Siblings.DENIED:
            named = (each.device for each in devices if each.request.startswith(group_prefix(number)))
            own = [cpus[each] for each in named if each in cpus]  # a CPU that has gone offline since is not there
            first = dict[tuple[int, int], int]()
            for cpu in sorted(own, key=lambda each: each.number):
                if first.setdefault((cpu.socket, cpu.core), cpu.number) != cpu.number:
                    yield cpu.number
