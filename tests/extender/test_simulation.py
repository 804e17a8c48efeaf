"""Simulation: pending pods one after the other, by the verbs that the service runs."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from extender.cluster.manifests import RawObject
from extender.embedded import EmbeddedCluster
from extender.metrics import Metrics
from extender.serving import make_service
from extender.settings import Settings
from extender.simulation import Placement, scheduler_reason, simulate
from tests.extender.clusters import DRIVER, Object, claim, device_class, local_slice, node, pod, request, solver

GPU = device_class(selectors=[f'device.driver == "{DRIVER}"'])


def embedded(objects: Iterable[Object]) -> EmbeddedCluster:
    manifests = [
        RawObject(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"], each, Path("x"), 1)
        for each in objects
    ]
    return EmbeddedCluster(manifests)


async def placed(*objects: Object) -> dict[str, Placement]:
    cluster = embedded(objects)
    async with cluster.running():
        service = make_service(cluster.api, cluster.state, solver(), Settings(), Metrics(CollectorRegistry()))
        return {each.pod: each for each in await simulate(service, cluster)}


def template(name: str) -> Object:
    spec = {"spec": {"devices": {"requests": [request()]}}}
    metadata = {"name": name, "namespace": "ns"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}


def pod_from_template(name: str, created: str) -> Object:
    found = pod(name, created=created)
    found["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    return found


async def test_pods_go_in_order_of_their_age_until_nothing_is_left() -> None:
    days = {"third": "2026-01-03", "first": "2026-01-01", "second": "2026-01-02"}
    pods = [pod_from_template(name, f"{day}T00:00:00Z") for name, day in days.items()]
    found = await placed(GPU, node("a"), local_slice("a", 2), template("t"), *pods)
    assert list(found) == ["ns/first", "ns/second", "ns/third"]
    assert [(each.node, [d.result.device.device for d in each.devices]) for each in found.values()] == [
        ("a", ["gpu-0"]),
        ("a", ["gpu-1"]),
        ("", []),
    ]
    assert found["ns/third"].reason == "1 no free device for request gpu"


async def test_equal_reasons_of_nodes_are_counted() -> None:
    cordoned = {**node("d"), "spec": {"unschedulable": True}}
    found = await placed(
        GPU, node("a"), node("b"), node("c"), cordoned, local_slice("c"), claim("c", request(count=2)), pod("p", "c")
    )
    assert found["ns/p"].reason == (
        "2 no device for request gpu, 1 node is unschedulable, 1 not enough free devices for request gpu"
    )


async def test_without_nodes_that_is_the_reason() -> None:
    assert (await placed(GPU, claim("c"), pod("p", "c")))["ns/p"].reason == "there are no nodes"


async def test_pods_that_run_or_are_done_are_left_alone() -> None:
    done = pod("done")
    done["status"]["phase"] = "Succeeded"
    found = await placed(node("a"), pod("running", on="a"), done, pod("new"))
    assert {name: each.node for name, each in found.items()} == {"ns/new": "a"}


async def test_a_claim_that_a_pod_shares_takes_it_to_the_same_node() -> None:
    found = await placed(GPU, node("a"), node("b"), local_slice("b"), claim("c"), pod("p", "c"), pod("q", "c"))
    assert [each.node for each in found.values()] == ["b", "b"]
    assert found["ns/p"].devices == found["ns/q"].devices


async def test_the_same_manifests_give_the_same_result() -> None:
    objects = [GPU, node("a"), local_slice("a"), template("t"), pod_from_template("p", "2026-01-01T00:00:00Z")]
    first, second = (await placed(*objects))["ns/p"], (await placed(*objects))["ns/p"]
    assert first.as_json() == second.as_json()
    assert first.as_json()["node"] == "a"


@pytest.mark.parametrize(
    ("spec", "on", "reason"),
    [
        ({}, node("a"), ""),
        ({"nodeSelector": {"zone": "1"}}, node("a", labels={"zone": "1"}), ""),
        ({"nodeSelector": {"zone": "1"}}, node("a"), "node does not match spec.nodeSelector"),
        ({"nodeSelector": {"zone": "1"}}, node("a", labels={"zone": "2"}), "node does not match spec.nodeSelector"),
        ({}, {**node("a"), "spec": {"unschedulable": True}}, "node is unschedulable"),
        ({"nodeSelector": None}, {**node("a"), "spec": None}, ""),
    ],
)
def test_of_what_the_scheduler_checks_itself_a_little_is_checked(spec: Object, on: Object, reason: str) -> None:
    assert scheduler_reason({"spec": spec}, on) == reason
