"""The topology of a machine, from /sys or a file, and what is published of it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.model.validation import validate
from extender.node import cpu_list
from extender.node.compute import cpu_slices, memory_slices
from extender.node.topology import Cpu, Topology, TopologyError, read_file, read_machine

SMT = """
cpus:
- {id: 0, core: 0, socket: 0, numaNode: 0, cache: 0}
- {id: 1, core: 1, socket: 0, numaNode: 0, cache: 0}
- {id: 2, core: 0, socket: 1, numaNode: 1, cache: 1, coreType: e-core}
- {id: 4, core: 0, socket: 0, numaNode: 0, cache: 0}
memory: {0: 64Gi, 1: 32Gi}
"""


@given(st.frozensets(st.integers(0, 300)))
def test_law_a_list_of_cpus_is_read_as_it_was_written(numbers: frozenset[int]) -> None:
    assert cpu_list.parse(cpu_list.render(numbers)) == numbers


@pytest.mark.parametrize(("text", "numbers"), [("", ()), ("0-2,5\n", (0, 1, 2, 5)), ("7", (7,)), ("1,1-2", (1, 2))])
def test_lists_of_the_kernel_are_read(text: str, numbers: tuple[int, ...]) -> None:
    assert cpu_list.parse(text) == set(numbers)


@pytest.mark.parametrize(
    "text", ["x", "2-1", "1-", "-1", "0-99999999", "65536", "1;2", "0-65535,0-65535", "x" * 10_000]
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no list of CPUs such as 0-3,8") as refused:
        cpu_list.parse(text)
    assert len(str(refused.value)) < 200


def machine(folder: Path) -> Path:
    """What the kernel shows of a machine with four CPUs on two cores, of which CPU 3 is offline."""
    files = {
        "devices/system/cpu/online": "0-2",
        "devices/system/node/node0/cpulist": "0,2",
        "devices/system/node/node0/meminfo": "Node 0 MemTotal:       1024 kB\nNode 0 MemFree: 3 kB",
        "devices/system/node/node1/cpulist": "1",
        "devices/system/node/node1/meminfo": "Node 1 MemTotal:       0 kB",
        "devices/cpu_atom/cpus": "1",
    }
    for number, core, package, cache in ((0, 0, 0, 0), (1, 0, 1, 1), (2, 0, 0, 0)):
        base = f"devices/system/cpu/cpu{number}"
        files |= {f"{base}/topology/core_id": str(core), f"{base}/topology/physical_package_id": str(package)}
        files |= {f"{base}/cache/index3/id": str(cache)}
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return folder


def test_the_kernel_tells_the_cpus_that_are_online_and_the_memory_of_numa_nodes(tmp_path: Path) -> None:
    found = read_machine(machine(tmp_path))
    assert found == Topology((Cpu(0, 0, 0, 0, 0), Cpu(2, 0, 0, 0, 0), Cpu(1, 0, 1, 1, 1, "e-core")), {0: 1024 * 1024})
    assert found.has_siblings


def test_a_machine_that_tells_little_has_a_core_for_each_cpu(tmp_path: Path) -> None:
    (tmp_path / "devices/system/cpu").mkdir(parents=True)
    (tmp_path / "devices/system/cpu/online").write_text("0-1\n")
    assert read_machine(tmp_path) == Topology((Cpu(0, 0, 0, 0), Cpu(1, 1, 0, 0)), {})


def test_a_machine_without_files_is_told(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="No such file or directory"):
        read_machine(tmp_path)


def test_siblings_are_next_to_each_other_and_reserved_cpus_are_not_published() -> None:
    (spec,) = cpu_slices(read_file(SMT, "t.yaml"), "n", {1})
    assert [each["name"] for each in spec["devices"]] == ["cpu-0", "cpu-4", "cpu-2"]
    assert spec["devices"][2]["attributes"] == {
        "dra.cpu/cpuID": {"int": 2},
        "dra.cpu/coreID": {"int": 0},
        "dra.cpu/socketID": {"int": 1},
        "dra.cpu/cacheL3ID": {"int": 1},
        "dra.cpu/numaNodeID": {"int": 1},
        "dra.cpu/smtEnabled": {"bool": True},
        "dra.cpu/coreType": {"string": "e-core"},
        "dra.net/numaNode": {"int": 1},
        "resource.kubernetes.io/numaNode": {"int": 1},
    }


def test_an_api_server_takes_the_slices_of_a_large_machine() -> None:
    topology = Topology.of([Cpu(number, number, 0, number % 4) for number in range(300)], {0: 2**40, 1: 2**40})
    specs = [*cpu_slices(topology, "node-1.example.com", {0}), *memory_slices(topology, "node-1.example.com")]
    assert [len(each["devices"]) for each in specs] == [128, 128, 43, 2]
    for spec in specs:
        whole = {**spec, "pool": {**spec["pool"], "generation": 1}}
        obj = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": whole}
        assert validate(obj) == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "t.yaml: cpus: is required: the CPUs of the machine"),
        ("cpus: [{core: 1}]", r"t.yaml: cpus\[0\].id: is required"),
        ("cpus: [{id: 1}, {id: 1}]", "t.yaml: cpus: a CPU is there twice"),
        ("cpus: [{id: 0}, {id: a}]", r't.yaml: cpus\[1\].id: "a" is not a whole number of 64 bits$'),
        ("cpus: [{id: -1}]", r"t.yaml: cpus\[0\]: numbers must not be negative"),
        (
            "cpus: [{id: 1, numa: 1}]",
            r"t.yaml: cpus\[0\].numa: unknown key \(known: cache, core, coreType, id, numaNode",
        ),
        (
            "cpus: [{id: 1}]\nmemory: {0: 1Gx}",
            'memory.0: is no amount of memory of a NUMA node: "1Gx" is not a quantity',
        ),
        ("cpus: [{id: 1}]\nmemory: {zero: 1Gi}", "memory.zero: is no amount of memory of a NUMA node"),
        ("cpus: [{id: 1}]\nmemories: {}", r"t.yaml: memories: unknown key \(known: cpus, memory\)"),
        ("cpus: [", "t.yaml: "),
    ],
)
def test_a_file_with_mistakes_is_refused_with_the_field(text: str, problem: str) -> None:
    with pytest.raises(TopologyError, match=problem):
        read_file(text, "t.yaml")
