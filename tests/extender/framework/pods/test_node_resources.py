"""Devices that take CPU, memory or huge pages of their node (KEP-5517)."""

from dataclasses import replace
from typing import Any

import pytest

from allocator import Features
from extender import Cluster, Settings
from extender.cluster.cluster_state import ClusterState
from extender.cluster.resources import ClaimResources, read_claim_resources
from extender.framework.bind_errors import BindError
from extender.kube.api import ObjectKey
from extender.kube.resources import PODS
from tests.extender.framework.bind.scenes import BIND, FORBIDDEN
from tests.kit import virtualtime
from tests.kit.binders import binder_over
from tests.kit.clusters import Object, claim, device_class, local_slice, node, pod, solver
from tests.kit.servers.memory import Fault, Transport, memory_api

ON = Settings().over({"DRANodeAllocatableResources": True})
OFFERED = {"cpu": "8", "memory": "16Gi", "hugepages-2Mi": "1Gi", "pods": "110"}

CORES = {"cpu": {"mapping": {"deviceMultiplier": "4"}}}
HOST_MEMORY = {"memory": {"overhead": {"perPod": "1Gi", "perContainer": "512Mi"}}}
SHARED = {
    "allowMultipleAllocations": True,
    "capacity": {"cores": {"value": "8", "requestPolicy": {"default": "3", "validRange": {"min": "1"}}}},
    "nodeAllocatableResources": {"cpu": {"mapping": {"capacityKey": "cores", "capacityMultiplier": "1500m"}}},
}


def taking(resources: Object, **more: Any) -> Object:
    return {"nodeAllocatableResources": resources, **more}


def using(made: Object, *, times: int = 1, **spec: Any) -> Object:
    """The pod whose containers have all claims of the pod."""
    entries = [{"name": each["name"]} for each in made["spec"]["resourceClaims"]]
    (container,) = made["spec"]["containers"]
    container["resources"]["claims"] = entries
    containers = [container | {"name": f"c{index}"} for index in range(times)]
    return made | {"spec": made["spec"] | {"containers": containers} | spec}


def cluster_of(device: Object, *objects: Object, devices: int = 2, offered: Object | None = None) -> Cluster:
    here = node("n", allocatable=OFFERED if offered is None else offered)
    return Cluster.from_objects([device_class(), here, local_slice("n", devices, **device), *objects], settings=ON)


def reason_of(cluster: Cluster) -> str:
    """Why the last pod is not placed; empty if it is."""
    return cluster.schedule()[-1].reason.removeprefix("1 ")


CASES: dict[str, tuple[Object, tuple[Object, ...], str]] = {
    "the device and the containers fit": (
        taking(CORES),
        (claim("a"), using(pod("p", "a", resources={"cpu": "4"}))),
        "",
    ),
    "the containers leave too little": (
        taking(CORES),
        (claim("a"), using(pod("p", "a", resources={"cpu": "4001m"}))),
        "too little cpu for the pod and its devices",
    ),
    "a pod without devices leaves too little": (
        taking(CORES),
        (claim("a"), pod("other", on="n", resources={"cpu": "5"}), using(pod("p", "a"))),
        "too little cpu for the pod and its devices",
    ),
    "a finished pod takes nothing": (
        taking(CORES),
        (
            claim("a"),
            pod("other", on="n", resources={"cpu": "5"}) | {"status": {"phase": "Succeeded"}},
            using(pod("p", "a")),
        ),
        "",
    ),
    "what the claims of other pods take counts": (
        taking({"cpu": {"mapping": {"deviceMultiplier": "5"}}}),
        (claim("a"), claim("b"), using(pod("first", "a")), using(pod("p", "b"))),
        "too little cpu for the pod and its devices",
    ),
    "overhead counts for the pod and for each container": (
        taking({"memory": {"overhead": {"perPod": "4Gi", "perContainer": "6Gi"}}}),
        (claim("a"), using(pod("p", "a"), times=2)),
        "",
    ),
    "a third container is too much": (
        taking({"memory": {"overhead": {"perPod": "4Gi", "perContainer": "6Gi"}}}),
        (claim("a"), using(pod("p", "a"), times=3)),
        "too little memory for the pod and its devices",
    ),
    "a claim without containers takes no share for containers": (
        taking({"memory": {"overhead": {"perPod": "16Gi", "perContainer": "1Gi"}}}),
        (claim("a"), pod("p", "a")),
        "",
    ),
    "a shared capacity counts with its multiplier": (
        SHARED,
        (claim("a"), using(pod("p", "a", resources={"cpu": "3500m"}))),
        "",
    ),
    "a shared capacity is too much": (
        SHARED,
        (claim("a"), using(pod("p", "a", resources={"cpu": "3501m"}))),
        "too little cpu for the pod and its devices",
    ),
    "a capacity of which the claim consumes no part": (
        {"capacity": {"cores": {"value": "8"}}, "nodeAllocatableResources": SHARED["nodeAllocatableResources"]},
        (claim("a"), using(pod("p", "a"))),
        "claim a, device gpu-0: its cpu follows capacity cores, but the claim consumes no part of that capacity",
    ),
    "huge pages": (
        taking({"hugepages-2Mi": {"mapping": {"deviceMultiplier": "2Gi"}}}),
        (claim("a"), using(pod("p", "a"))),
        "too little hugepages-2Mi for the pod and its devices",
    ),
    "a part of the node cannot be shared by pods": (
        taking(CORES),
        (claim("a", allocated=["n/gpu-0"], users=["other"]), using(pod("other", "a", on="n")), using(pod("p", "a"))),
        "claim a takes cpu of its node: only one pod can use it",
    ),
    "an overhead can be shared by pods": (
        taking(HOST_MEMORY),
        (claim("a", allocated=["n/gpu-0"], users=["other"]), using(pod("other", "a", on="n")), using(pod("p", "a"))),
        "",
    ),
    "requests of the whole pod have to cover the device": (
        taking(CORES),
        (claim("a"), using(pod("p", "a"), resources={"requests": {"cpu": "3"}})),
        "spec.resources.requests[cpu] of the pod does not cover its containers and devices",
    ),
    "requests of the whole pod count instead of the parts": (
        taking(CORES),
        (claim("a"), using(pod("p", "a", resources={"cpu": "1"}), resources={"requests": {"cpu": "8"}})),
        "",
    ),
    "requests of the whole pod are too much": (
        taking(CORES),
        (claim("a"), using(pod("p", "a"), resources={"requests": {"cpu": "9"}})),
        "Insufficient cpu",
    ),
    "limits of the whole pod have to cover each container": (
        taking(CORES),
        (
            claim("a"),
            using(
                {
                    **pod("p", "a"),
                    "spec": {
                        **pod("p", "a")["spec"],
                        "containers": [
                            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}
                        ],
                    },
                },
                resources={"requests": {"cpu": "5"}, "limits": {"cpu": "5"}},
            ),
        ),
        "spec.resources.limits[cpu] of the pod does not cover its containers and devices",
    ),
}


@pytest.mark.parametrize(("device", "objects", "reason"), CASES.values(), ids=CASES)
def test_a_pod_fits_if_its_node_has_what_its_devices_take(
    device: Object, objects: tuple[Object, ...], reason: str
) -> None:
    assert reason_of(cluster_of(device, *objects)) == reason


def test_a_node_that_tells_no_resources_takes_the_pod() -> None:
    assert reason_of(cluster_of(taking(CORES), claim("a"), using(pod("p", "a")), offered={"pods": "110"})) == ""


def test_a_device_that_takes_of_its_node_serves_no_extended_resource() -> None:
    asking = pod("p", resources={"example.com/gpu": "1"})
    here = [node("n", allocatable=OFFERED), local_slice("n", 1, **taking(CORES))]
    cluster = Cluster.from_objects([device_class(extended="example.com/gpu"), *here, asking], settings=ON)
    assert reason_of(cluster) == "a device takes cpu of its node, and cannot serve an extended resource"


def test_nothing_is_counted_while_the_gate_is_off() -> None:
    objects = [device_class(), node("n", allocatable=OFFERED), local_slice("n", 1, **taking(CORES)), claim("a")]
    cluster = Cluster.from_objects([*objects, using(pod("p", "a", resources={"cpu": "5"}))])
    assert reason_of(cluster) == ""
    assert cluster.snapshot.node_requests is None


def test_an_explanation_has_the_reason() -> None:
    cluster = cluster_of(taking(CORES), claim("a"), using(pod("p", "a", resources={"cpu": "5"})))
    assert "too little cpu for the pod and its devices" in cluster.explain("ns/p").summary


class Scene:
    """Node n with two devices that take 3 cores each, and a binder."""

    def __init__(self, *objects: Object) -> None:
        device = taking({"cpu": {"mapping": {"deviceMultiplier": "3"}, "overhead": {"perContainer": "500m"}}})
        self.api = memory_api(device_class(), node("n", allocatable=OFFERED), local_slice("n", 2, **device), *objects)
        self.state = ClusterState(counts_resources=True)
        self.api.follow(self.state)
        self.transport = Transport(self.api)
        features = replace(Features(), node_resources=True)
        self.binder = binder_over(self.transport, self.state, by=solver(features=features))

    def bind(self, name: str) -> str:
        """Bind a pod to the node; the error, empty for a success."""

        async def bound() -> str:
            try:
                await self.binder.bind(ObjectKey("ns", name), f"uid-{name}", "n")
            except BindError as error:
                return str(error)
            return ""

        return virtualtime.run(bound())

    def status(self, name: str) -> object:
        return virtualtime.run(self.api.get(PODS, ObjectKey("ns", name)))["status"].get(
            "nodeAllocatableResourceClaimStatuses"
        )

    @property
    def requested(self) -> dict[str, int]:
        requests = self.state.snapshot.node_requests
        assert requests is not None
        return dict(requests.on("n", ObjectKey("", "")))


ONE = {
    "resourceClaimName": "a",
    "containers": ["c0"],
    "mapping": [{"name": "cpu", "quantity": "3"}],
    "overhead": [{"name": "cpu", "perContainer": "500m"}],
}


def test_bind_writes_what_the_claims_take_and_it_counts() -> None:
    scene = Scene(claim("a"), using(pod("p", "a", resources={"cpu": "1"})))
    assert scene.bind("p") == ""
    assert scene.status("p") == [ONE]
    assert scene.requested == {"cpu": 4500}


def test_a_second_pod_is_refused_once_the_node_is_full() -> None:
    scene = Scene(claim("a"), claim("b"), using(pod("p", "a", resources={"cpu": "1"})), using(pod("q", "b")))
    assert scene.bind("p") == ""
    assert scene.bind("q") == ""
    full = Scene(claim("a"), claim("b"), using(pod("p", "a", resources={"cpu": "2"})), using(pod("q", "b")))
    assert full.bind("p") == ""
    assert full.bind("q") == "node n: too little cpu for the pod and its devices"


def test_a_bind_that_fails_takes_everything_back() -> None:
    scene = Scene(claim("a"), using(pod("p", "a", resources={"cpu": "1"})))
    scene.transport.faults[BIND] = [Fault(refused=FORBIDDEN)]
    assert "not allowed" in scene.bind("p")
    assert not scene.status("p")
    assert scene.requested == {}


def test_a_server_that_drops_the_field_is_told() -> None:
    scene = Scene(claim("a"), using(pod("p", "a")))

    def without(answer: Object) -> Object:
        return answer | {"status": {k: v for k, v in answer["status"].items() if not k.startswith("nodeAlloc")}}

    scene.transport.faults["patch_status pods"] = [Fault(reply=without)]
    assert "dropped status.nodeAllocatableResourceClaimStatuses (feature gate" in scene.bind("p")


def test_a_pod_that_is_gone_takes_nothing() -> None:
    scene = Scene(pod("p", on="n", resources={"cpu": "1", "memory": "1Gi"}), pod("q", on="n", resources={"cpu": "1u"}))
    assert scene.requested == {"cpu": 1001, "memory": 2**30}
    virtualtime.run(scene.api.delete(PODS, ObjectKey("ns", "p")))
    assert scene.requested == {"cpu": 1}


def test_a_status_is_read_as_it_is_written() -> None:
    status = {"nodeAllocatableResourceClaimStatuses": [ONE]}
    (found,) = read_claim_resources(status)
    assert found.as_json() == ONE
    assert found.of_pod == {"cpu": 3_500_000_000}
    assert ClaimResources("b").as_json() == {"resourceClaimName": "b", "containers": [], "mapping": [], "overhead": []}
