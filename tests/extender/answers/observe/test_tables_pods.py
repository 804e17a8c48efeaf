"""The table of pods: which there are, what they ask for, and why they wait."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from httpx import AsyncClient

from extender.answers.observe.tables.pods import WaitingReasons, pods
from extender.cluster.objects.pods import GATE
from extender.config.sources import load
from extender.tools.table import duration, page
from tests.kit.clusters import (
    GPU,
    Cluster,
    Object,
    asking,
    binding,
    claim,
    claim_template,
    client_of,
    device_class,
    local_slice,
    node,
    pod,
    request,
    snapshot_of,
)

BIG: Object = {
    "name": "big",
    "firstAvailable": [
        {"name": "one", "deviceClassName": "gpu"},
        {"name": "rest", "deviceClassName": "nic", "allocationMode": "All"},
    ],
}


SHARE = request("link")
SHARE["exactly"]["capacity"] = {"requests": {"bandwidth": "6G", "queues": "2"}}


def templated(name: str, template: str, **status: Any) -> Object:
    made = pod(name)
    made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": template}]
    made["status"] |= status
    return made


OBJECTS = (
    GPU,
    device_class("card", extended="example.com/gpu"),
    node("a"),
    local_slice("a"),
    claim("big", BIG, request("nic", device_class="nic", count=2)),
    claim("held", allocated=["a/gpu-0"], at="a", users=["runs"]),
    claim("wanted"),
    claim("shared", SHARE),
    claim_template("one"),
    pod("asks-for-more", "big", "held"),
    pod("runs", "held", on="a"),
    pod("streams", "shared"),
    pod("leaves", "wanted", deleting=True),
    pod("waits", "wanted"),
    pod("extended", resources={"example.com/gpu": "2", "cpu": "1"}),
    templated("made", "one"),
    templated("unmade", "missing"),
    templated("needless", "one", resourceClaimStatuses=[{"name": "gpu"}]),
    pod("plain"),
)


async def rows(client: AsyncClient, query: str = "") -> Mapping[str, Any]:
    response = await client.get(f"/pods?format=json&{query}")
    assert response.status_code == 200
    return {each["pod"]: each for each in response.json()["items"]}


async def ask(client: AsyncClient, verb: str, body: Object) -> None:
    assert (await client.post(f"/{verb}", content=orjson.dumps(body))).status_code == 200


PENDING = ["asks-for-more", "extended", "made", "needless", "streams", "unmade", "waits"]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", sorted([*PENDING, "leaves", "runs"])),
        ("state=pending", PENDING),
        ("state=bound", ["runs"]),
        ("state=deleting", ["leaves"]),
        ("state=finished", []),
        ("node=a", ["runs"]),
        ("namespace=other", []),
        ("namespace=ns&state=bound", ["runs"]),
        ("pod=runs", ["runs"]),
        ("namespace=other&pod=runs", []),
    ],
)
async def test_pods_with_devices_by_namespace_state_and_node(client: AsyncClient, query: str, names: list[str]) -> None:
    assert list(await rows(client, query)) == names


@pytest.mark.parametrize(
    ("name", "requests"),
    [
        ("waits", ["gpu: 1 gpu"]),
        ("asks-for-more", ["big: 1 gpu or all nic", "nic: 2 nic", "gpu: 1 gpu"]),
        ("streams", ["link: 1 gpu (bandwidth: 6G, queues: 2)"]),
        ("extended", ["2 example.com/gpu"]),
        ("made", ["gpu: 1 gpu"]),
        ("unmade", ["gpu: unknown"]),
        ("needless", []),
    ],
)
async def test_requests_are_those_of_claims_templates_and_containers(
    client: AsyncClient, name: str, requests: list[str]
) -> None:
    assert (await rows(client))[name]["requests"] == requests


async def test_reason_is_what_the_scheduler_was_told_last(client: AsyncClient) -> None:
    assert (await rows(client))["waits"]["reason"] == "no scheduler has asked this replica about the pod lately"
    await ask(client, "filter", asking(pod("waits", "wanted"), "a", "new"))
    waits = (await rows(client))["waits"]
    assert waits["reason"] == "1x no free device for request gpu, 1x node not yet known"
    (decision,) = (await client.get("/decisions?format=json")).json()["items"]
    assert waits["decision"] == decision["id"]
    await ask(client, "bind", binding("waits", "a"))
    assert (await rows(client))["waits"]["reason"].startswith("bind: ")


async def test_a_pod_whose_devices_fit_says_on_how_many_nodes(cluster: Cluster) -> None:
    cluster.load(local_slice("b"))
    cluster.load(node("b"))
    async with client_of(cluster.app()) as client:
        await ask(client, "filter", asking(pod("waits", "wanted"), "a", "b"))
        assert (await rows(client))["waits"]["reason"] == "its devices fit on 1 node"


async def test_preempt_does_not_replace_the_reason(client: AsyncClient) -> None:
    await ask(client, "filter", asking(pod("waits", "wanted"), "a"))
    victims = {"a": {"Pods": [{"UID": "u"}], "NumPDBViolations": 0}}
    args = {"Pod": pod("waits", "wanted"), "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
    await ask(client, "preempt", args)
    assert (await rows(client))["waits"]["reason"] == "1x no free device for request gpu"


async def test_a_pod_keeps_its_reason_while_another_one_is_tried_again_and_again(cluster: Cluster) -> None:
    async with client_of(cluster.app(load("server: {decisions: 4}"))) as client:
        await ask(client, "filter", asking(pod("waits", "wanted"), "a"))
        for _ in range(5):
            await ask(client, "filter", asking(pod("asks-for-more", "big"), "a"))
        assert (await rows(client))["waits"]["reason"] == "1x no free device for request gpu"


@pytest.mark.parametrize(
    ("schedulers", "gates", "reason"),
    [
        ("", ["quota"], "scheduling gate quota keeps the pod from its scheduler"),
        (
            "dra-scheduler",
            [],
            "no scheduler of ours is asked: schedulerName is default-scheduler; write dra-scheduler",
        ),
        (
            "dra-scheduler",
            ["quota"],
            "no scheduler of ours is asked: schedulerName is default-scheduler; write dra-scheduler",
        ),
        ("default-scheduler", [], "no scheduler has asked this replica about the pod lately"),
        ("default-scheduler", [GATE], f"scheduling gate {GATE} keeps the pod from its scheduler until it has its turn"),
        ("default-scheduler", ["quota", GATE], "scheduling gate quota keeps the pod from its scheduler"),
    ],
)
async def test_pod_that_no_scheduler_of_ours_tries_says_so(
    cluster: Cluster, schedulers: str, gates: list[str], reason: str
) -> None:
    gated = pod("gated", "wanted")
    gated["spec"]["schedulingGates"] = [{"name": name} for name in gates]
    cluster.load(gated)
    async with client_of(cluster.app(load(f"scheduling: {{schedulerNames: [{schedulers}]}}"))) as client:
        assert (await rows(client))["gated"]["reason"] == reason


async def test_only_pending_pods_have_a_reason(client: AsyncClient) -> None:
    assert {name for name, each in (await rows(client)).items() if each["reason"]} == set(PENDING)


async def test_link_leads_to_the_explanation(client: AsyncClient) -> None:
    link = (await rows(client))["waits"]["explain"]
    assert (await client.get(link)).text.startswith("pod ns/waits ")


async def test_text_has_ages_as_kubectl_shows_them(client: AsyncClient) -> None:
    heading, row = (await client.get("/pods?state=bound")).text.splitlines()
    assert heading.split() == ["NAMESPACE", "POD", "STATE", "AGE", "NODE", "REQUESTS", "REASON", "EXPLAIN"]
    assert row.split()[3].endswith("d")


CREATED = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(("later", "age"), [(timedelta(seconds=312), 312), (timedelta(seconds=-5), 0)])
def test_age_is_in_seconds_and_never_negative(later: timedelta, age: int) -> None:
    view = pods(snapshot_of(pod("waits", "c")), WaitingReasons(lambda _: None), CREATED + later)
    (item,) = page(view, limit=9).items
    assert item["age"] == age


def test_pod_from_a_manifest_has_no_age() -> None:
    of_manifest = pod("waits", "c")
    del of_manifest["metadata"]["creationTimestamp"]
    view = pods(snapshot_of(of_manifest), WaitingReasons(lambda _: None), CREATED)
    found = page(view, limit=9)
    assert found.items[0]["age"] is None
    assert found.as_text().splitlines()[1].split()[3] == "-"


async def test_decision_about_an_earlier_pod_of_that_name_does_not_count(client: AsyncClient) -> None:
    earlier = pod("waits", "wanted")
    earlier["metadata"]["uid"] = "uid-earlier"
    await ask(client, "filter", asking(earlier, "a"))
    assert (await rows(client))["waits"]["reason"] == "no scheduler has asked this replica about the pod lately"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (312, "5m12s"),
        (600, "10m"),
        (3599, "59m"),
        (10799, "179m"),
        (10800, "3h"),
        (11100, "3h5m"),
        (28800, "8h"),
        (108000, "30h"),
        (529200, "6d3h"),
        (691200, "8d"),
        (3456000, "40d"),
    ],
)
def test_durations_are_written_as_kubectl_writes_them(seconds: int, text: str) -> None:
    assert duration(seconds) == text
