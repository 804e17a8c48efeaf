"""docs/how-to/compute.md: the claim of the page gets what the page says, from slices of the node part."""

import re

import yaml

from extender import Cluster
from extender.node.compute import cpu_slices, memory_slices
from extender.node.topology import Cpu, Topology
from tests.extender.deployed import DEPLOY, documents
from tests.extender.test_docs import DOCS
from tests.kit.clusters import claim, node, pod

MACHINE = Topology.of([Cpu(number, number % 8, 0, number % 8 // 4) for number in range(16)], {0: 2**33, 1: 2**33})
"""Two NUMA nodes with four cores of two CPUs and 8 GiB each."""


def test_the_claim_of_the_page_gets_two_cores_and_memory_of_one_numa_node() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", (DOCS / "how-to/compute.md").read_text(), re.DOTALL)
    spec = yaml.safe_load(text)["spec"]["spec"]
    published = [*cpu_slices(MACHINE, "n", {0, 8}), *memory_slices(MACHINE, "n")]
    slices = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"slice-{number}"},
            "spec": {**each, "pool": {**each["pool"], "generation": 1}},
        }
        for number, each in enumerate(published)
    ]
    wanted = {**claim("c"), "spec": spec}
    classes = documents(DEPLOY / "node/classes.yaml")
    (placed,) = Cluster.from_objects([node("n"), *slices, *classes, wanted, pod("p", "c")]).schedule()
    assert placed.reason == ""
    assert [each.result.device.device for each in placed.devices] == ["cpu-1", "cpu-9", "cpu-2", "cpu-10", "memory-0"]
