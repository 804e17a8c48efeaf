"""Filter and prioritize of an autoscaler that speaks the protocol of schedulers: judged by templates, no effects."""

from collections.abc import AsyncIterator

import orjson
import pytest
from httpx import AsyncClient

from extender.config.settings import Settings
from extender.faces.assembly import Extender
from extender.faces.http.app import create_app
from tests.extender.autoscaler.http_scenes import NEW, nodes
from tests.extender.autoscaler.scenes import autoscaler_over, machine
from tests.extender.faces.http.scenes import post
from tests.kit.clusters import GPU, Cluster, Object, asking, claim, claim_template, client_of, local_slice, pod

HELD = claim("kept", allocated=["b/gpu-0"], at="b")
"""It keeps its pod off node a, and no other pod uses it: a rejection by a scheduler deallocates it."""

OBJECTS = (
    GPU,
    claim_template(),
    *(each for name in ("a", "b") for each in (machine(name), local_slice(name))),
    HELD,
    pod("pending", "kept"),
    pod("late", "c"),
    claim("c"),
)
NEWEST = "99999"


class Scene:
    """A service, the client of its application, and what a call leaves behind."""

    def __init__(self, cluster: Cluster, extender: Extender, client: AsyncClient) -> None:
        self.cluster, self.extender, self.client = cluster, extender, client

    async def effects(self, path: str, body: Object) -> list[str]:
        """What one call has changed, with the work in the background after it."""
        before, log = self.cluster.state.snapshot, self.extender.overview.decision_log
        entries = len(log.entries)
        reply = (await self.client.post(path, content=orjson.dumps(body))).json()
        assert "Error" not in reply, reply
        await self.settle()
        found = {"cluster": self.cluster.state.snapshot is not before, "decision log": len(log.entries) > entries}
        return [name for name, has_changed in found.items() if has_changed]

    async def settle(self) -> None:
        """The work in the background after a call."""
        for _ in range(3):
            await self.extender.service.background.tick()


@pytest.fixture
async def scene(cluster: Cluster) -> AsyncIterator[Scene]:
    extender = cluster.extender()
    app = create_app(extender, autoscaler_over(cluster.state, NEW), Settings())
    async with client_of(app) as client:
        made = Scene(cluster, extender, client)
        # The first call of a scheduler after a start has an effect of its own: all its pods that wait are woken.
        await post(client, "filter", asking(pod("late", "c"), "b"))
        await made.settle()
        yield made


def made_up_pod(*claims: str, version: str = "") -> Object:
    """A pod that the cluster does not have."""
    raw = pod("made-up", *claims)
    raw["metadata"]["resourceVersion"] = version
    return raw


def new_node(version: str = "") -> Object:
    raw = machine("new", "g")
    raw["metadata"]["resourceVersion"] = version
    return raw


# --- what has no effect -------------------------------------------------------------------------------------

WITHOUT_EFFECT: dict[str, tuple[str, Object]] = {
    "a made-up node": ("/filter", nodes(pod("pending", "kept"), machine("a"), new_node())),
    "made-up nodes alone": ("/filter", nodes(pod("pending", "kept"), new_node())),
    "a made-up pod": ("/filter", nodes(made_up_pod("kept"), machine("a"))),
    "a made-up pod that fits": ("/filter", nodes(made_up_pod("c"), machine("a"))),
    "a made-up pod, and names": ("/filter", asking(made_up_pod("kept"), "a")),
    "a made-up pod that fits, and names": ("/filter", asking(made_up_pod("c"), "a")),
    "scores for a made-up node": ("/prioritize", nodes(pod("pending", "kept"), machine("a"), new_node())),
    "scores for a made-up pod": ("/prioritize", nodes(made_up_pod("c"), machine("a"))),
    "a caller that only asks": ("/autoscaler/filter", nodes(pod("pending", "kept"), machine("a"))),
    "a caller that only asks for scores": ("/autoscaler/prioritize", nodes(pod("pending", "kept"), machine("a"))),
}


@pytest.mark.parametrize(("path", "body"), WITHOUT_EFFECT.values(), ids=WITHOUT_EFFECT)
async def test_a_simulated_call_has_no_effect(scene: Scene, path: str, body: Object) -> None:
    assert await scene.effects(path, body) == []


WITH_EFFECT: dict[str, Object] = {
    "names": asking(pod("pending", "kept"), "a"),
    "whole nodes that exist": nodes(pod("pending", "kept"), machine("a")),
    "a node that the watch has not shown yet": nodes(pod("pending", "kept"), machine("a"), new_node(NEWEST)),
}


@pytest.mark.parametrize("body", WITH_EFFECT.values(), ids=WITH_EFFECT)
async def test_a_call_of_a_scheduler_has_its_effects(scene: Scene, body: Object) -> None:
    assert await scene.effects("/filter", body) == ["cluster", "decision log"]


async def test_a_pod_that_the_watch_has_not_shown_yet_is_not_made_up(scene: Scene) -> None:
    new = made_up_pod("c", version=NEWEST)
    assert await scene.effects("/filter", nodes(new, machine("a"))) == ["decision log"]
    assert await scene.effects("/filter", asking(new, "a")) == ["decision log"]


async def test_an_idle_claim_is_deallocated_for_a_pod_that_the_watch_has_not_shown_yet(scene: Scene) -> None:
    body = asking(made_up_pod("kept", version=NEWEST), "a")
    assert await scene.effects("/filter", body) == ["cluster", "decision log"]


# --- what is answered ---------------------------------------------------------------------------------------


async def test_a_made_up_node_has_what_its_template_brings(scene: Scene) -> None:
    sent = [machine("other"), new_node(), machine("b"), machine("a")]
    reply = await post(scene.client, "filter", nodes(made_up_pod("c"), *sent))
    assert reply == {
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {
            "other": "no device for request gpu",
            "b": "no free device for request gpu",
        },
        "Nodes": {"items": [sent[1], sent[3]]},
    }
    scores = await post(scene.client, "prioritize", nodes(made_up_pod("c"), *sent))
    assert [each["Host"] for each in scores] == ["other", "new", "b", "a"]


async def test_a_pod_without_devices_gets_all_made_up_nodes(scene: Scene) -> None:
    sent = [new_node(), machine("a")]
    reply = await post(scene.client, "filter", nodes(pod("plain"), *sent))
    assert reply["Nodes"] == {"items": sent}


async def test_the_scores_of_a_scheduler_are_not_those_of_a_simulation(scene: Scene) -> None:
    asked = asking(pod("late", "c"), "a", "b")
    await post(scene.client, "filter", asked)
    before = await post(scene.client, "prioritize", asked)
    await post(scene.client, "filter", nodes(pod("late", "c"), new_node()))
    assert await post(scene.client, "prioritize", asked) == before


async def test_a_node_that_cannot_be_read_is_named(scene: Scene) -> None:
    wrong = {**new_node(), "status": 7}
    reply = await post(scene.client, "filter", nodes(made_up_pod("c"), wrong))
    assert reply == {"Error": "Nodes.items[0]: status: 7 is not an object"}
