"""Slices in the form of drivers that others make (`drivers/`): what claims get of them.

The manifests are our own: names, types and rules are those of the drivers, the devices are few. Each case is simulated,
and then the service is asked over HTTP, as kube-scheduler asks it.
"""

from collections.abc import Sequence
from typing import Any, Final

import pytest

from extender.faces.assembly import make_extender, make_solver
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, PODS
from extender.lab.cluster import EmbeddedCluster
from extender.lab.manifests import load_objects
from tests.extender.faces.http.scenes import post
from tests.kit import clusters
from tests.kit.clusters import Object, app_over, asking, binding, client_of
from tests.kit.objects.parts import api_object, claim_spec, exactly
from tests.neighbours.driver_scenes import SETTINGS, answers, simulated, world

GPU, NIC, CPUS = "gpu.example.com", "net.example.com", "cpu.example.com"
NVIDIA, MIG, NET, CPU, CHANNEL = "gpu.nvidia.com", "mig.nvidia.com", "dranet.net", "dra.cpu", "channel.example.com"

Asked = tuple[Object, ...]
"""The requests of the claim of a pod."""


def one(device_class: str, *expressions: str, name: str = "r", count: int = 1, **more: Any) -> Object:
    return exactly(name, device_class, count, *expressions, **more)


def part(device_class: str, name: str = "r", **amounts: str) -> Object:
    """A request of a part of a capacity; a name with a domain is written with two underscores before its own name."""
    asked = {each.replace("__", "/").replace("_", "."): amount for each, amount in amounts.items()}
    return one(device_class, name=name, capacity={"requests": asked})


def profile(name: str, request: str = "r") -> Object:
    return one(MIG, f"device.attributes['gpu.nvidia.com'].profile == '{name}'", name=request)


CARD: Final = 'device.attributes["dra.net"].rdma == true && device.attributes["dra.net"].virtual == false'
NEAR: Final = "resource.kubernetes.io/pcieRoot"
GPU_OF_ROOT_20: Final = "device.attributes['resource.kubernetes.io'].pcieRoot == 'pci0000:20'"
TOLERANT: Final = [{"key": "gpu.nvidia.com/xid", "operator": "Exists", "effect": "NoExecute"}]

CASES: Final[dict[str, tuple[Sequence[str], Sequence[Asked], Sequence[str]]]] = {
    "whole GPUs, by model and by position": (
        ["example-gpus"],
        [
            (one(GPU, f"device.attributes['{GPU}'].index == 1"),),
            (one(GPU, f"device.capacity['{GPU}'].memory.compareTo(quantity('80Gi')) >= 0"),),
            (one(GPU),),
        ],
        ["gpu.example.com/n/gpu-1", "gpu.example.com/n/gpu-0", "1 no free device for request r"],
    ),
    "all GPUs for an administrator, who takes none of them": (
        ["example-gpus"],
        [
            (one(GPU, count=2),),
            ({"name": "r", "exactly": {"deviceClassName": GPU, "allocationMode": "All", "adminAccess": True}},),
        ],
        ["gpu.example.com/n/gpu-0, gpu.example.com/n/gpu-1", "gpu.example.com/n/gpu-0, gpu.example.com/n/gpu-1"],
    ),
    "the whole GPU leaves nothing to its partitions": (
        ["example-partitions"],
        [(one(GPU, "device.allowMultipleAllocations == false"),), (one(GPU),)],
        ["gpu.example.com/n/gpu-0", "1 not enough shared counters for request r"],
    ),
    "parts of partitions, in steps": (
        ["example-partitions"],
        [(part(GPU, memory="8Gi", compute="7"),), (part(GPU, memory="12Gi"),), (part(GPU, memory="12Gi"),)],
        [
            "gpu.example.com/n/gpu-0-partition-0 (compute: 10, memory: 8Gi)",
            "gpu.example.com/n/gpu-0-partition-0 (compute: 5, memory: 12Gi)",
            "gpu.example.com/n/gpu-0-partition-1 (compute: 5, memory: 12Gi)",
        ],
    ),
    "a device that is not ready": (
        ["example-preparing"],
        [(one(GPU),)],
        ["waiting for gpu.example.com/ready of gpu.example.com/n/gpu-0"],
    ),
    "bandwidth of a card, whose functions are counted": (
        ["example-cards"],
        [(part(NIC, ingressBandwidth="60G", egressBandwidth="5G"),), (part(NIC, ingressBandwidth="60G"),), (one(NIC),)],
        [
            "net.example.com/n/nic-0 (egressBandwidth: 5G, ingressBandwidth: 60G, vfs: 1)",
            "1 not enough device capacity for request r",
            "net.example.com/n/nic-0 (egressBandwidth: 1G, ingressBandwidth: 1G, vfs: 1)",
        ],
    ),
    "CPUs that are the node's own": (
        ["example-cpus"],
        [(part(CPUS, cpu_example_com__cpu="8"),), (part(CPUS, cpu_example_com__cpu="8"),)],
        ["cpu.example.com/n/numa-0 (cpu.example.com/cpu: 8)", "1 too little cpu for the pod and its devices"],
    ),
    "partitions at places that do not overlap": (
        ["nvidia-partitions"],
        [(profile("1g.5gb"),), (profile("3g.20gb"),), (profile("3g.20gb"),), (one(NVIDIA),)],
        [
            "gpu.nvidia.com/n/gpu-0-mig-1g5gb-19-0",
            "gpu.nvidia.com/n/gpu-0-mig-3g20gb-9-4",
            "1 not enough shared counters for request r",
            "1 not enough shared counters for request r",
        ],
    ),
    "partitions of one GPU": (
        ["nvidia-partitions"],
        [(profile("3g.20gb", "half"), profile("1g.5gb", "small"))],
        ["gpu.nvidia.com/n/gpu-0-mig-3g20gb-9-4, gpu.nvidia.com/n/gpu-0-mig-1g5gb-19-0"],
    ),
    "shares of a GPU, beside one that is unhealthy": (
        ["nvidia-shares"],
        [
            (part(NVIDIA, memory="30Gi"),),
            (part(NVIDIA, shares="3"),),
            (one(NVIDIA),),
            (one(NVIDIA, tolerations=TOLERANT),),
        ],
        [
            "gpu.nvidia.com/n/gpu-0 (memory: 30Gi, shares: 1)",
            "gpu.nvidia.com/n/gpu-0 (memory: 0, shares: 3)",
            "1 not enough device capacity for request r",
            "gpu.nvidia.com/n/gpu-1 (memory: 0, shares: 1)",
        ],
    ),
    "a card by its attributes, which a virtual interface lacks in part": (
        ["dranet"],
        [(one(NET, CARD, 'device.attributes["dra.net"].numaNode == 1'),), (one(NET, CARD, count=3),)],
        ["dra.net/n/pci-0000-20-02-0", "1 not enough free devices for request r"],
    ),
    "an attribute that a virtual interface lacks": (
        ["dranet"],
        [(one(NET, 'device.attributes["dra.net"].numaNode == 1'),)],
        ["1 claim ns/c0, request r: selector 0: no such key: numaNode"],
    ),
    "channels that the nodes of a clique reach": (
        ["fabric"],
        [(one(CHANNEL),), (one(CHANNEL),), (one(CHANNEL),)],
        [
            "channel.example.com/one/channel-0",
            "channel.example.com/one/channel-1",
            "1 no device for request r, 2 no free device for request r",
        ],
    ),
    "CPUs of a group": (
        ["cpu-grouped"],
        [(part(CPU, dra_cpu__cpu="10"),), (part(CPU, dra_cpu__cpu="10"),), (part(CPU, dra_cpu__cpu="10"),)],
        [
            "dra.cpu/n/cpudevnuma000 (dra.cpu/cpu: 10)",
            "dra.cpu/n/cpudevnuma001 (dra.cpu/cpu: 10)",
            "1 not enough device capacity for request r",
        ],
    ),
    "each CPU a device, two threads of a core beside each other": (
        ["cpu-individual"],
        [(one(CPU, count=2),), (one(CPU, "device.attributes['dra.cpu'].cacheL3ID == 1"),)],
        ["dra.cpu/n/cpudev000, dra.cpu/n/cpudev001", "dra.cpu/n/cpudev008"],
    ),
    "CPUs of a group that are the node's own": (
        ["cpu-mapped"],
        [(part(CPU, dra_cpu__cpu="16"),), (part(CPU, dra_cpu__cpu="16"),)],
        ["dra.cpu/n/cpudevnuma000 (dra.cpu/cpu: 16)", "1 too little cpu for the pod and its devices"],
    ),
}

ALIGNED: Final[dict[str, tuple[Sequence[str], Sequence[Asked], Sequence[str]]]] = {
    "a GPU and a card of one root": (
        ["dranet"],
        [(one(NVIDIA, name="gpu"), one(NET, CARD, name="nic"))] * 3,
        [
            "gpu.nvidia.com/n/gpu-0, dra.net/n/pci-0000-10-00-0",
            "gpu.nvidia.com/n/gpu-1, dra.net/n/pci-0000-20-02-0",
            "1 no free device for request gpu",
        ],
    ),
    "a GPU and two cards of one root": (
        ["dranet"],
        [(one(NVIDIA, name="gpu"), one(NET, CARD, name="nic", count=2))] * 2,
        [
            "gpu.nvidia.com/n/gpu-0, dra.net/n/pci-0000-10-00-0, dra.net/n/pci-0000-10-01-0",
            "1 not enough free devices for request nic",
        ],
    ),
    "a GPU and CPUs that have a list of roots": (
        ["cpu-grouped", "dranet"],
        [(part(CPU, "cpu", dra_cpu__cpu="4"), one(NVIDIA, GPU_OF_ROOT_20, name="gpu"))],
        ["dra.cpu/n/cpudevnuma001 (dra.cpu/cpu: 4), gpu.nvidia.com/n/gpu-1"],
    ),
}
"""With the constraint that all devices of a claim have a PCIe root in common."""


def workload(asked: Sequence[Asked], **devices: Any) -> list[Object]:
    """A pod with a CPU for each claim, in the order of their age."""
    claims = [
        api_object("ResourceClaim", f"c{number}", namespace="ns", spec=claim_spec(requests, **devices))
        for number, requests in enumerate(asked)
    ]
    pods = [
        clusters.pod(f"p{number}", f"c{number}", created=f"2026-01-01T00:00:0{number}Z", resources={"cpu": "1"})
        for number in range(len(asked))
    ]
    labels = {"resource.kubernetes.io/admin-access": "true"}
    return [api_object("Namespace", "ns", metadata={"labels": labels}), *claims, *pods]


@pytest.mark.parametrize(("worlds", "asked", "expected"), ALIGNED.values(), ids=ALIGNED)
def test_devices_of_several_drivers_stand_near_each_other(
    worlds: Sequence[str], asked: Sequence[Asked], expected: Sequence[str]
) -> None:
    pods = workload(asked, constraints=[{"matchAttribute": NEAR}])
    assert answers(simulated([*world(*worlds), *pods])) == list(expected)


def test_an_extended_resource_gets_a_device_of_its_class() -> None:
    asking_by_name = clusters.pod(resources={"nvidia.com/gpu": "2"})
    assert answers(simulated([*world("dranet"), asking_by_name])) == ["gpu.nvidia.com/n/gpu-0, gpu.nvidia.com/n/gpu-1"]


@pytest.mark.parametrize(("worlds", "asked", "expected"), CASES.values(), ids=CASES)
async def test_claims_get_what_the_driver_has_in_a_simulation_and_by_the_service(
    worlds: Sequence[str], asked: Sequence[Asked], expected: Sequence[str]
) -> None:
    objects = [*world(*worlds), *workload(asked)]
    found = simulated(objects)
    assert answers(found) == list(expected)
    cluster = EmbeddedCluster.by_settings(SETTINGS, load_objects(objects, "objects").objects)
    extender = make_extender(cluster.api, cluster.state, make_solver(SETTINGS), SETTINGS)
    nodes = [each["metadata"]["name"] for each in objects if each["kind"] == "Node"]
    async with client_of(app_over(extender, SETTINGS)) as client:
        for number, each in enumerate(found):
            sent = await cluster.api.get(PODS, ObjectKey("ns", f"p{number}"))
            reply = await post(client, "filter", asking(sent, *nodes))
            assert bool(reply["NodeNames"]) == (bool(each.node) or each.reason.startswith("waiting for"))
            if each.node:
                uid = sent["metadata"]["uid"]
                assert await post(client, "bind", {**binding(f"p{number}", each.node), "PodUID": uid}) == {}
                claim = await cluster.api.get(CLAIMS, ObjectKey("ns", f"c{number}"))
                assert held(claim) == [str(device.result.device) for device in each.devices]


def held(claim: Object) -> list[str]:
    """The devices that a claim holds."""
    results = claim["status"]["allocation"]["devices"]["results"]
    return [f"{each['driver']}/{each['pool']}/{each['device']}" for each in results]
