"""Where no scheduler follows a cluster, the table of pods says why each pod waits as filter would say now."""

from collections.abc import AsyncIterator

import pytest
from httpx import AsyncClient

from extender.answers.explain.explanation_service import LATER, UnaskedPods
from extender.config.settings import Settings
from extender.faces.assembly import Extender, Surroundings
from extender.framework.decisions.evaluate import Decider
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS
from extender.tools.offload import at_once
from extender.tools.verb_priority import VerbPriority
from tests.kit.clusters import (
    GPU,
    Cluster,
    app_over,
    claim,
    client_of,
    local_slice,
    node,
    pod,
    request,
    snapshot_of,
    solver,
)

HELD = claim("held", allocated=["a/gpu-0"], at="a", users=["runs"])
OBJECTS = (
    GPU,
    node("a"),
    local_slice("a"),
    HELD,
    pod("runs", "held", on="a"),
    *(claim("wanted"), pod("waits", "wanted")),
    *(claim("classless", request(device_class="nic")), pod("asks", "classless")),
    pod("lost", "gone"),
)


def alone(cluster: Cluster, settings: Settings | None = None) -> Extender:
    """What answers over manifests."""
    return cluster.extender(settings, at_once, Surroundings(has_schedulers=False))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster.of(*OBJECTS)


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[AsyncClient]:
    async with client_of(app_over(alone(cluster))) as connected:
        yield connected


async def reasons(client: AsyncClient) -> dict[str, str]:
    found = (await client.get("/pods?format=json&state=pending")).json()["items"]
    return {each["pod"]: each["reason"] for each in found}


async def test_a_pod_says_why_it_waits_although_nobody_has_asked_about_it(client: AsyncClient) -> None:
    assert await reasons(client) == {
        "asks": "device class nic does not exist",
        "lost": "claim gone does not exist",
        "waits": "the only device is in use",
    }


async def test_it_is_the_first_line_of_its_explanation(client: AsyncClient) -> None:
    for name, reason in (await reasons(client)).items():
        explained = (await client.get(f"/explain/ns/{name}", headers={"accept": "application/json"})).json()
        assert reason == explained["headline"]


async def test_it_is_that_of_the_cluster_as_it_is_now(cluster: Cluster, client: AsyncClient) -> None:
    assert (await reasons(client))["waits"] == "the only device is in use"
    await cluster.api.delete(CLAIMS, ObjectKey("ns", "held"))
    assert (await reasons(client))["waits"] == "its devices fit on 1 node"
    await client.post("/filter", json={"Pod": pod("waits", "wanted"), "NodeNames": ["a"]})
    cluster.load(claim("other", allocated=["a/gpu-0"], at="a", users=["other"]))
    assert (await reasons(client))["waits"] == "the only device is in use"


async def test_a_pod_of_another_scheduler_says_so_first(cluster: Cluster) -> None:
    settings = Settings.model_validate({"scheduling": {"schedulerNames": ["dra-scheduler"]}})
    async with client_of(app_over(alone(cluster, settings))) as client:
        assert (await reasons(client))["waits"].startswith("no scheduler of ours is asked: schedulerName is ")


def test_pods_for_which_there_is_no_time_are_judged_at_the_next_look() -> None:
    snapshot = snapshot_of(*OBJECTS)
    unasked = UnaskedPods(Decider(solver(), None), VerbPriority().turn)
    lost, waits = (snapshot.pods[ObjectKey("ns", name)] for name in ("lost", "waits"))
    assert unasked.reasons(snapshot, seconds=0.0)(lost) == LATER
    assert unasked.reasons(snapshot)(lost) == "claim gone does not exist"
    assert unasked.reasons(snapshot, seconds=0.0)(lost) == "claim gone does not exist", "it is remembered"
    assert unasked.reasons(snapshot, seconds=0.0)(waits) == LATER
