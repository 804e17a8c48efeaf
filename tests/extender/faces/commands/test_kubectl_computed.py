"""What `kubectl dra` computes from the objects of an API server: nothing is written for it."""

import gc
from typing import Any

import pytest

from extender.config.settings import Settings
from extender.faces.commands.computed_service import ComputedService
from extender.kube.discovery import Served
from extender.kube.remote import RemoteApi
from extender.kube.resources import CLAIMS, CLASSES, NODES, PODS, SLICES
from tests.extender.kube.live_scenes import SERVED, half
from tests.extender.plugins.negotiation.scenes import LICENSE, NAME, negotiated_class
from tests.kit.clusters import GPU, claim, local_slice, node, pod
from tests.kit.servers.transport import ALL_VERSIONS, FakeApi

WITH_CONTEXTS = Served({**SERVED.versions, "PodSchedulingContext": "v1alpha1"})
AWAY: dict[str, Any] = {"url": "http://127.0.0.1:1"}


async def test_the_table_has_the_first_line_of_the_explanation() -> None:
    fake = FakeApi(ALL_VERSIONS)
    held = claim("held", allocated=["n/gpu-0"], at="n", users=["runs"])
    objects = (*((CLASSES, GPU), (NODES, node("n")), (SLICES, local_slice("n"))), (PODS, pod("runs", "held", on="n")))
    for resource, obj in (*objects, (CLAIMS, held), (PODS, pod("p", "c")), (CLAIMS, claim("c"))):
        fake.put(resource, obj)
    computed = ComputedService(RemoteApi(fake, SERVED, random=half), Settings())
    await computed.refresh()
    (row,) = (await computed.http.get("/pods?state=pending&format=json")).json()["items"]
    assert row["reason"] == "the only device is in use"
    await computed.close()


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        (AWAY, f"waiting for controller {NAME} since "),
        ({"transport": "PodSchedulingContext"}, "so its answer is not known in a simulation"),
    ],
    ids=["HTTP", "PodSchedulingContexts"],
)
async def test_pod_that_needs_a_controller_has_a_reason(address: dict[str, Any], reason: str) -> None:
    fake = FakeApi({**ALL_VERSIONS, "dra-extender.dev": {"v1alpha1": frozenset({"podschedulingcontexts"})}})
    objects = ((CLASSES, negotiated_class()), (NODES, node("n")), (PODS, pod("p", "c")), (CLAIMS, claim("c", LICENSE)))
    for resource, obj in objects:
        fake.put(resource, obj)
    settings = Settings.model_validate({"controllers": [{"name": NAME, **address}]})
    computed = ComputedService(RemoteApi(fake, WITH_CONTEXTS, random=half), settings)
    await computed.refresh()
    explained = await computed.http.get("/explain/ns/p")
    assert reason in explained.text
    assert {each.method for each in fake.requests} == {"GET"}
    await computed.close()
    del computed
    gc.collect()  # a connection that is left open warns then, and warnings are errors
