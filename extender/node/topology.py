"""The topology of a machine: CPUs with their cores, sockets, caches and NUMA nodes; memory of each NUMA node."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from allocator import Problem, Quantity
from allocator.tools import Fields
from extender.node import cpu_list
from extender.tools.user_error import UserError
from extender.tools.yamltext import single_mapping

SYS: Final = Path("/sys")
_TOTAL: Final = re.compile(r"MemTotal:\s+(\d+) kB")
_STANDARD: Final = "standard"
_CORE_TYPES: Final = {"devices/cpu_core/cpus": "p-core", "devices/cpu_atom/cpus": "e-core"}
"""Where the kernel lists the cores of hybrid processors, and what dra-driver-cpu calls them."""

_KEYS: Final = ("id", "core", "socket", "numaNode", "cache", "coreType")
_NODE: Final = re.compile(r"node(\d+)")


class TopologyError(UserError):
    """The topology of a machine cannot be read; the text names file and field."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """A logical CPU.

    Attributes:
        core: number of the core within the socket. CPUs of one core are siblings.
        cache: number of the level-3 cache; -1: none.
        core_type: ``standard``, or of processors with two types of cores, ``p-core`` or ``e-core``.
    """

    number: int
    core: int
    socket: int
    numa_node: int
    cache: int = -1
    core_type: str = _STANDARD


@dataclass(frozen=True, slots=True)
class Topology:
    """A machine.

    Attributes:
        cpus: those that are online. Siblings are next to each other, and so are CPUs of one NUMA node.
        memory: of each NUMA node, in bytes.
    """

    cpus: tuple[Cpu, ...]
    memory: Mapping[int, int]

    @classmethod
    def of(cls, cpus: Iterable[Cpu], memory: Mapping[int, int]) -> "Topology":
        """A machine with CPUs in any order."""
        ordered = sorted(cpus, key=lambda each: (each.numa_node, each.socket, each.core, each.number))
        return cls(tuple(ordered), memory)

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers of all CPUs."""
        return frozenset(each.number for each in self.cpus)

    @property
    def has_siblings(self) -> bool:
        """Whether a core has more than one CPU (SMT)."""
        return len({(each.socket, each.core) for each in self.cpus}) < len(self.cpus)


def read_machine(sys: Path = SYS) -> Topology:
    """The topology that the kernel tells. Raises TopologyError: it does not."""
    cpus = sys / "devices/system/cpu"
    try:
        nodes = dict(_numa_nodes(sys / "devices/system/node"))
        of_cpu = {number: node for node, (numbers, _) in nodes.items() for number in numbers}
        online = cpu_list.parse((cpus / "online").read_text())
        types = {number: name for path, name in _CORE_TYPES.items() for number in _listed(sys / path)}
        found = [
            _cpu(cpus / f"cpu{number}", number, of_cpu.get(number, 0), types.get(number, _STANDARD))
            for number in online
        ]
    except (OSError, ValueError) as error:
        raise TopologyError(f"{sys}: {error}") from error
    return Topology.of(found, {node: amount for node, (_, amount) in nodes.items() if amount})


def _listed(path: Path) -> frozenset[int]:
    return cpu_list.parse(path.read_text()) if path.exists() else frozenset()


def _cpu(folder: Path, number: int, numa_node: int, core_type: str) -> Cpu:
    def value(name: str, default: int) -> int:
        path = folder / name
        # Virtual machines may not tell all of it; the kernel writes -1 for what it does not know.
        return max(int(path.read_text()), default) if path.exists() else default

    core, socket = value("topology/core_id", -1), value("topology/physical_package_id", 0)
    return Cpu(number, number if core < 0 else core, socket, numa_node, value("cache/index3/id", -1), core_type)


def _numa_nodes(folder: Path) -> Iterator[tuple[int, tuple[frozenset[int], int]]]:
    """The CPUs of each NUMA node, and its memory in bytes."""
    for path in sorted(folder.glob("node*")):
        if match := _NODE.fullmatch(path.name):
            total = _TOTAL.search((path / "meminfo").read_text())
            numbers = cpu_list.parse((path / "cpulist").read_text())
            yield int(match[1]), (numbers, int(total[1]) * 1024 if total else 0)


def read_file(text: str, file: str) -> Topology:
    """The topology of a file, for tests and for machines whose kernel tells too little.

    ``cpus`` is a list of ``{id, core, socket, numaNode, cache}``; ``memory`` is an amount for each NUMA node.

    Raises:
        TopologyError: all problems, each with the field.
    """
    try:
        tree = single_mapping(text)
    except ValueError as error:
        raise TopologyError(f"{file}: {error}") from error
    problems: list[Problem] = []
    top = Fields(tree or {}, "", problems)
    for key in top.data:
        if key not in {"cpus", "memory"}:
            top.problem(key, "unknown key (known: cpus, memory)")
    cpus = [cpu_of(each) for each in top.children("cpus")]
    if not problems and len({each.number for each in cpus}) < len(cpus):
        top.problem("cpus", "a CPU is there twice")
    if not cpus:
        top.problem("cpus", "is required: the CPUs of the machine")
    memory = dict(_memory(top.child("memory")))
    if problems:
        raise TopologyError("; ".join(f"{file}: {each}" for each in problems))
    return Topology.of(cpus, memory)


def entry_of(cpu: Cpu) -> dict[str, int | str]:
    """The entry of a CPU in a file."""
    values = (cpu.number, cpu.core, cpu.socket, cpu.numa_node, cpu.cache, cpu.core_type)
    return dict(zip(_KEYS, values, strict=True))


def cpu_of(fields: Fields) -> Cpu:
    """The CPU of an entry of a file; what is wrong becomes problems of the fields."""
    for key in fields.data:
        if key not in _KEYS:
            fields.problem(key, f"unknown key (known: {', '.join(sorted(_KEYS))})")
    if not fields.has("id"):
        fields.problem("id", "is required")
    number = fields.integer("id")
    core = fields.integer("core") if fields.has("core") else number
    cache = fields.integer("cache") if fields.has("cache") else -1
    if min(number, core, fields.integer("socket"), fields.integer("numaNode")) < 0:
        fields.problem("", "numbers must not be negative")
    core_type = fields.text("coreType") or _STANDARD
    return Cpu(number, core, fields.integer("socket"), fields.integer("numaNode"), cache, core_type)


def _memory(fields: Fields) -> Iterator[tuple[int, int]]:
    for key, value in fields.data.items():
        try:
            yield int(str(key)), _bytes(value)
        except ValueError as error:
            fields.problem(str(key), f"is no amount of memory of a NUMA node: {error}")


def _bytes(value: Any) -> int:  # noqa: ANN401  # of YAML
    amount = Quantity.parse(str(value)).nano // 10**9
    if amount <= 0:
        raise ValueError("must be greater than zero")
    return amount
