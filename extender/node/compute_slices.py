"""CPUs and memory of a machine as devices: the slices of a node.

Attributes of CPUs are those of dra-driver-cpu in its mode ``individual`` (``pkg/device`` of
kubernetes-sigs/dra-driver-cpu). So classes and claims that are written for it work here.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from extender.node.topology import Cpu, Topology

CPU_DRIVER: Final = "dra.cpu"
MEMORY_DRIVER: Final = "dra.memory"

_NUMA_NODE: Final = "resource.kubernetes.io/numaNode"
_NUMA_NODE_OF_DRANET: Final = "dra.net/numaNode"
_MOST_DEVICES: Final = 128
"""In a slice."""

Spec = Mapping[str, Any]


def cpu_device(number: int) -> str:
    """The name of a CPU as a device."""
    return f"cpu-{number}"


def memory_device(numa_node: int) -> str:
    """The name of the memory of a NUMA node as a device."""
    return f"memory-{numa_node}"


def cpu_slices(topology: Topology, node: str, reserved: Collection[int]) -> Sequence[Spec]:
    """The slices of the CPUs that claims can have: all but the reserved ones, one device each.

    Devices of one core are next to each other, so that a claim for two of them gets siblings where it can.
    """
    devices = [_cpu(each, smt=topology.has_siblings) for each in topology.cpus if each.number not in reserved]
    return _slices(CPU_DRIVER, node, devices)


def memory_slices(topology: Topology, node: str) -> Sequence[Spec]:
    """The slice of the memory of NUMA nodes: one device each, of which claims take parts."""
    devices = [
        {
            "name": memory_device(numa_node),
            "attributes": {_NUMA_NODE: {"int": numa_node}},
            "allowMultipleAllocations": True,
            "capacity": {"memory": {"value": str(amount)}},
        }
        for numa_node, amount in sorted(topology.memory.items())
    ]
    return _slices(MEMORY_DRIVER, node, devices)


def _cpu(cpu: Cpu, *, smt: bool) -> Mapping[str, Any]:
    numbers = {
        "numaNodeID": cpu.numa_node,
        "socketID": cpu.socket,
        "coreID": cpu.core,
        "cpuID": cpu.number,
        "cacheL3ID": cpu.cache,
    }
    attributes: dict[str, Any] = {f"{CPU_DRIVER}/{name}": {"int": value} for name, value in numbers.items()}
    attributes |= {
        _NUMA_NODE: {"int": cpu.numa_node},
        _NUMA_NODE_OF_DRANET: {"int": cpu.numa_node},
        f"{CPU_DRIVER}/smtEnabled": {"bool": smt},
        f"{CPU_DRIVER}/coreType": {"string": cpu.core_type},
    }
    return {"name": cpu_device(cpu.number), "attributes": attributes}


def _slices(driver: str, node: str, devices: Sequence[Mapping[str, Any]]) -> Sequence[Spec]:
    parts = [devices[at : at + _MOST_DEVICES] for at in range(0, len(devices), _MOST_DEVICES)]
    pool = {"name": node, "resourceSliceCount": len(parts)}
    return [{"driver": driver, "nodeName": node, "pool": pool, "devices": part} for part in parts]
