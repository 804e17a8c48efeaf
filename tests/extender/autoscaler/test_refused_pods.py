"""Refused pods and Cluster Autoscaler: it brings a node for each pod that it sees, whatever the expander counts.

It sees the pods whose condition `PodScheduled` is false for the reason `Unschedulable`, and takes the number of nodes
from its own simulation, which knows neither quotas nor gangs.
"""

import pytest

from extender.cluster.objects.pods import GROUP, GROUP_SIZE
from extender.kube.resources import PODS
from tests.extender.autoscaler.scenes import SMALL, autoscaler_over, machine
from tests.extender.faces.grpc.scenes import call, serving
from tests.extender.plugins.scheduling_gates.scenes import Scene, crowd, of, waiting
from tests.kit.clusters import GPU, Object, claim, local_slice, node
from tests.kit.objects.quotas import limited, quota
from tests.kit.protobuf import answer, request

NODES = {"small": machine("template", "small", cpu="64", memory="64Gi", pods="110")}
FULL = [node("old"), local_slice("old", 1), *of("others", claim("held", allocated=["old/gpu-0"], at="old"))]
LOOP_SECONDS = 10.0
"""Between two looks of the autoscaler."""


def members(number: int, size: int) -> list[Object]:
    found = crowd("train", number)
    for each in found:
        if each["kind"] == "Pod":
            each["metadata"]["annotations"] = {GROUP: "train", GROUP_SIZE: str(size)}
    return found


CASES: dict[str, list[Object]] = {
    "five over quota, and a good one": [
        quota(limited(devices=0), namespace="poor"),
        *of("poor", *crowd("refused", 5)),
        *waiting("good"),
    ],
    "five, and a quota with room for one": [quota(limited(devices=1)), *crowd("p", 5)],
    "three of a gang of four, and a good one": [*members(3, 4), *of("rich", *waiting("good"))],
}


def without_gates(objects: list[Object]) -> list[Object]:
    return [
        {**each, "spec": {**each["spec"], "schedulingGates": []}} if each["kind"] == "Pod" else each for each in objects
    ]


def is_seen(raw: Object) -> bool:
    """Source: ArrangePodsBySchedulability of Cluster Autoscaler."""
    status = raw.get("status", {})
    told = {(each["type"], each["status"], each.get("reason")) for each in status.get("conditions", ())}
    has_place = raw["spec"].get("nodeName") or status.get("nominatedNodeName")
    return not has_place and ("PodScheduled", "False", "Unschedulable") in told


async def tried(scene: Scene) -> None:
    """Gates are lifted, and the scheduler finds no node for the pods that it sees."""
    for namespace in ("ns", "poor", "rich"):
        names = scene.lifted(namespace)
        scene.first.learn(*names, namespace=namespace)
        await scene.reject(*names, namespace=namespace)


async def nodes_brought(objects: list[Object], loops: int = 6) -> list[int]:
    """How many nodes the autoscaler would bring in each of its looks, if none of them came."""
    scene, found = Scene(GPU, *FULL, *objects), []
    async with serving(autoscaler_over(scene.state, SMALL)) as address:
        for _ in range(loops):
            await scene.turns(int(LOOP_SECONDS))
            await tried(scene)
            seen = [raw for raw in (await scene.cluster.api.list(PODS)).items if is_seen(raw)]
            options = answer(await call(address, request({"small": (len(seen), seen)}, NODES)))
            found.append(len(seen) if options else 0)
    return found


@pytest.mark.parametrize("case", CASES)
async def test_with_scheduling_gates_a_node_comes_for_the_good_pod_alone(case: str) -> None:
    assert await nodes_brought(CASES[case]) == [1] * 6


@pytest.mark.parametrize(("case", "number"), [*zip(CASES, (6, 5, 4), strict=True)])
async def test_without_them_a_node_comes_for_each_pod(case: str, number: int) -> None:
    assert await nodes_brought(without_gates(CASES[case]), 1) == [number]


async def test_without_a_good_pod_no_node_comes_whether_there_are_gates_or_not() -> None:
    refused = [quota(limited(devices=0)), *crowd("refused", 5), *of("rich", *members(3, 4))]
    assert await nodes_brought(refused) == [0] * 6
    assert await nodes_brought(without_gates(refused), 1) == [0]
