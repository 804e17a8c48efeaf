"""Negotiated claims: controllers are asked where they can allocate, allocate at bind, and release in the end."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from allocator import DeviceId
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.writes.claims import ClaimWrites
from extender.cluster.writes.other_kinds import ContextWrites
from extender.config.settings import ControllerSettings
from extender.framework.decisions.evaluate import Decider
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS
from extender.plugins.negotiation.allocating import Allocating
from extender.plugins.negotiation.known_controller import ControllerMetrics, Reach, known_controllers
from extender.plugins.negotiation.negotiation import Negotiation
from extender.plugins.negotiation.protocol import ALLOCATE, DEALLOCATE, UNSUITABLE_NODES
from extender.plugins.negotiation.scheduling_contexts import Contexts
from extender.plugins.negotiation.tasks import OtherwiseSuitable
from extender.tools.intake import Budget
from extender.tools.offload import at_once
from tests.extender.plugins.negotiation.scenes import LICENSE, NAME, URL, WORLD, Scene, negotiated_class, pods
from tests.kit.clusters import GPU, NOW, Object, claim, local_slice, node, pinned, pod, request, solver
from tests.kit.controllers import NO_LICENSE, Licenses
from tests.kit.virtualtime import in_virtual_time

GPU_REQUEST = request("gpu")


@in_virtual_time
async def test_pod_gets_what_its_controller_allocates() -> None:
    scene = Scene(*pods("p"))
    assert sorted((await scene.filter()).passed) == ["m", "n"]
    assert await scene.bind() == ""
    allocation = await scene.allocation()
    assert allocation is not None
    (config,) = allocation["devices"]["config"]
    assert config["opaque"]["parameters"] == {"node": "n"}
    assert [each["name"] for each in (await scene.claim())["status"]["reservedFor"]] == ["p"]
    assert await scene.cluster.node_of("p") == "n"
    assert scene.licenses.held == {"uid-p-c": ("n", 1)}
    assert (await scene.mark()).startswith(f"{NAME} 1 ")


@in_virtual_time
async def test_claim_is_written_once_before_its_controller_allocates_and_once_after() -> None:
    scene = Scene(*pods("p"))
    await scene.filter()
    scene.transport.calls.clear()
    assert await scene.bind() == ""
    writes = [call for call in scene.transport.calls if not call.startswith("get ")]
    assert writes == ["update resourceclaims", "update_status resourceclaims", "bind pods"]


@in_virtual_time
async def test_released_claim_has_no_finalizer() -> None:
    scene = Scene(*pods("p"))
    await scene.filter()
    scene.licenses.left = 0
    await scene.bind()
    await scene.tick()
    assert await scene.mark() == f"{NAME} 2 released"
    assert (await scene.claim())["metadata"]["finalizers"] == []


@in_virtual_time
async def test_controller_releases_when_the_pod_is_gone() -> None:
    scene = Scene(*pods("p"))
    await scene.bind()
    await scene.tick()
    assert scene.licenses.asked(DEALLOCATE) == []
    await scene.end()
    await scene.tick()
    assert scene.licenses.held == {}
    assert await scene.mark() == f"{NAME} 2 released"


@in_virtual_time
async def test_deleted_claim_stays_until_its_controller_has_released_it() -> None:
    scene = Scene(*pods("p"))
    await scene.bind()
    await scene.cluster.api.delete(CLAIMS, ObjectKey("ns", "p-c"))
    await scene.end()
    assert await scene.exists()
    await scene.tick()
    assert scene.licenses.held == {}
    assert not await scene.exists()


@in_virtual_time
async def test_claim_can_be_allocated_again_after_its_release() -> None:
    scene = Scene(*pods("p"), pod("q", "p-c"))
    await scene.bind()
    await scene.end()
    assert await scene.reasons("q") == [f"claim p-c waits until controller {NAME} has released it"]
    await scene.tick()
    assert await scene.reasons("q") == []
    assert await scene.bind("q", "m") == ""
    assert scene.licenses.held == {"uid-p-c": ("m", 3)}


@in_virtual_time
async def test_structured_devices_are_searched_only_where_the_controller_accepts() -> None:
    licenses = Licenses(refuses={"n": "the site has no server"})
    scene = Scene(*pods("p", requests=(GPU_REQUEST, LICENSE)), licenses=licenses)
    result = await scene.filter()
    assert list(result.passed) == ["m"]
    assert result.unresolvable.in_words() == {"n": f"controller {NAME}: the site has no server"}
    assert await scene.bind(on="m") == ""
    allocation = await scene.allocation()
    assert allocation is not None
    assert [each["request"] for each in allocation["devices"]["results"]] == ["gpu"]
    assert len(allocation["devices"]["config"]) == 1
    (question,) = scene.licenses.asked(ALLOCATE)
    (ask,) = question.claims
    assert [each["name"] for each in ask.requests] == ["license"]


@in_virtual_time
async def test_controller_may_name_devices() -> None:
    scene = Scene(*pods("p"), licenses=Licenses(device=DeviceId("licenses.example.com", "seats", "seat-7")))
    assert await scene.bind() == ""
    allocation = await scene.allocation()
    assert allocation is not None
    assert [each["device"] for each in allocation["devices"]["results"]] == ["seat-7"]


@in_virtual_time
async def test_refusal_at_the_last_moment_leaves_nothing() -> None:
    scene = Scene(*pods("p", requests=(GPU_REQUEST, LICENSE)))
    await scene.filter()
    scene.licenses.left = 0
    assert await scene.bind() == f"node n: controller {NAME}: {NO_LICENSE}"
    assert await scene.allocation() is None
    assert not scene.cluster.state.snapshot.assumed
    await scene.tick()
    assert await scene.mark() == f"{NAME} 2 released"
    assert await scene.reasons() == [f"controller {NAME}: {NO_LICENSE}"]


@in_virtual_time
async def test_answers_are_remembered_for_a_second_or_until_the_version_changes() -> None:
    scene = Scene(*pods("p", "q"), licenses=Licenses(left=5, version="1"))
    await scene.filter()
    await scene.filter()
    assert len(scene.licenses.asked(UNSUITABLE_NODES)) == 1
    scene.licenses.version = "2"
    await scene.filter("q")
    await scene.filter("p")
    assert len(scene.licenses.asked(UNSUITABLE_NODES)) == 3
    scene.seconds = 1.0
    await scene.filter("p")
    assert len(scene.licenses.asked(UNSUITABLE_NODES)) == 4


@in_virtual_time
async def test_pod_is_woken_when_its_controller_accepts_a_node() -> None:
    scene = Scene(*pods("p"), licenses=Licenses(left=0))
    assert await scene.reasons() == [f"controller {NAME}: {NO_LICENSE}"]
    await scene.tick(2.0)
    assert not await scene.woken()
    scene.licenses.left = 1
    await scene.tick(4.0)
    await scene.tick()
    assert await scene.woken()


@in_virtual_time
async def test_release_asks_for_the_pods_that_wait() -> None:
    scene = Scene(*pods("p", "q"))
    await scene.bind()
    assert await scene.reasons("q") == [f"controller {NAME}: {NO_LICENSE}"]
    await scene.end("p")
    for _ in range(3):
        await scene.tick()
    assert await scene.woken("q")


@in_virtual_time
async def test_only_suitable_nodes_are_asked_about() -> None:
    selector = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "site", "operator": "In", "values": ["a"]}]}]}
    world = (
        negotiated_class(suitable_nodes=json.dumps(selector)),
        node("n", labels={"site": "a", "rack": "1"}),
        node("m", labels={"site": "b"}),
    )
    scene = Scene(*pods("p"), world=world)
    told = [{"name": NAME, "url": "http://localhost:1", "nodeLabels": ["site"]}]
    result = await scene.filter(by=scene.replica(controllers=told))
    assert list(result.passed) == ["n"]
    assert result.unresolvable.in_words() == {"m": "device class license: the node is not suitable"}
    (question,) = scene.licenses.questions
    assert [(each.name, each.labels) for each in question.nodes] == [("n", {"site": "a"})]


@in_virtual_time
async def test_controller_is_told_the_configuration_of_class_and_claim() -> None:
    of_class, of_claim = ({"opaque": {"driver": "licenses.example.com", "parameters": {"of": x}}} for x in ("a", "b"))
    made = negotiated_class()
    made["spec"]["config"] = [of_class]
    asked = claim("p-c", GPU_REQUEST, LICENSE)
    asked["spec"]["devices"]["config"] = [{**of_claim, "requests": ["license"]}, {**of_class, "requests": ["gpu"]}]
    scene = Scene(pod("p", "p-c"), asked, world=(GPU, made, node("n"), local_slice("n")))
    await scene.filter("p", "n")
    (question,) = scene.licenses.questions
    assert question.claims[0].config == (
        {"source": "FromClass", "requests": ["license"], **of_class},
        {"source": "FromClaim", "requests": ["license"], **of_claim},
    )


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (
            claim("p-c", LICENSE, request("other", device_class="other")),
            f"claim p-c: spec.devices.requests: name several controllers: {NAME}, other.example.com",
        ),
        (
            claim(
                "p-c",
                {"name": "any", "firstAvailable": [{"name": "a", "deviceClassName": "license"}]},
            ),
            "claim p-c: request any: firstAvailable cannot name a device class with a controller",
        ),
        (
            claim("p-c", request("other", device_class="other")),
            "controller other.example.com of device class other is not in the settings",
        ),
    ],
)
@in_virtual_time
async def test_claim_that_cannot_be_negotiated_says_why(asked: dict[str, Any], reason: str) -> None:
    world = (*WORLD, negotiated_class("other", "other.example.com"))
    scene = Scene(pod("p", "p-c"), asked, world=world)
    assert await scene.reasons() == [reason]
    assert scene.licenses.questions == []


@in_virtual_time
async def test_constraint_cannot_name_a_negotiated_request() -> None:
    asked = claim("p-c", GPU_REQUEST, LICENSE)
    asked["spec"]["devices"]["constraints"] = [{"matchAttribute": "a.example.com/x", "requests": ["gpu", "license"]}]
    scene = Scene(pod("p", "p-c"), asked)
    assert await scene.reasons() == [
        "claim p-c: spec.devices.constraints[0]: names request license, about which a controller decides"
    ]


@in_virtual_time
async def test_optional_request_cannot_be_negotiated() -> None:
    asked = claim("p-c", GPU_REQUEST, LICENSE)
    asked["metadata"]["annotations"] = {"dra-extender.dev/optional-requests": "license"}
    scene = Scene(pod("p", "p-c"), asked)
    (reason,) = await scene.reasons()
    assert reason.startswith("claim p-c: metadata.annotations[dra-extender.dev/optional-requests]: names request ")


@in_virtual_time
async def test_immediate_claim_is_allocated_by_its_controller() -> None:
    asked = claim("p-c", LICENSE)
    asked["metadata"]["annotations"] = {"dra-extender.dev/allocation-mode": "Immediate"}
    scene = Scene(pod("p", "p-c"), asked, licenses=Licenses(refuses={"m": "no server"}))
    for _ in range(6):
        await scene.tick(3.0)
    assert scene.licenses.held == {"uid-p-c": ("n", 1)}
    assert await scene.allocation() is not None
    assert await scene.bind() == ""


@in_virtual_time
async def test_pod_whose_author_chose_the_node_gets_its_claim_there() -> None:
    scene = Scene(pinned("p", "p-c", on="m"), claim("p-c", LICENSE))
    for _ in range(6):
        await scene.tick(3.0)
    assert scene.licenses.held == {"uid-p-c": ("m", 1)}
    assert scene.licenses.asked(UNSUITABLE_NODES) == []
    assert [each["name"] for each in (await scene.claim())["status"]["reservedFor"]] == ["p"]


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ({"controller": "Not A Name"}, 'metadata.annotations[dra-extender.dev/controller]: "Not A Name" '),
        ({"suitable_nodes": "site=a"}, 'metadata.annotations[dra-extender.dev/suitable-nodes]: "site=a" is not a '),
        ({"suitable_nodes": "{}"}, "metadata.annotations[dra-extender.dev/suitable-nodes]: has no nodeSelectorTerms"),
    ],
)
@in_virtual_time
async def test_class_with_wrong_annotations_is_not_used(annotations: dict[str, str], problem: str) -> None:
    scene = Scene(*pods("p"), world=(negotiated_class(**annotations), node("n"), node("m")))
    (reason,) = await scene.reasons()
    assert reason.startswith("device class license can't be read: ")
    assert problem in reason


@pytest.mark.parametrize(
    ("requests", "reads"),
    [pytest.param((LICENSE,), 1, id="negotiated"), pytest.param((GPU_REQUEST,), 0, id="not negotiated")],
)
@in_virtual_time
async def test_sent_nodes_are_read_only_for_a_question(requests: tuple[Object, ...], reads: int) -> None:
    scene = Scene(*pods("p", requests=requests))
    state, read = scene.cluster.state, []

    def sent() -> Mapping[str, NodeObject]:
        read.append(state.snapshot.version)
        return dict(state.snapshot.nodes)

    settings = [ControllerSettings.model_validate(URL)]
    metrics = ControllerMetrics(CollectorRegistry())
    claims = ClaimWrites(scene.transport, state)
    suitable = OtherwiseSuitable(state, Decider(solver(), state), (), at_once)
    contexts = Contexts(ContextWrites(scene.transport), state, lambda: 0.0, suitable)
    known = known_controllers(
        settings, Reach(Budget(), scene.controllers), lambda: 0.0, lambda: NOW, metrics, contexts, claims
    )
    allocating = Allocating(known, claims, lambda: NOW)
    negotiation = Negotiation(state, allocating, lambda: 0.0)
    for _ in range(2):
        await negotiation.ask(state.snapshot.pods[ObjectKey("ns", "p")], ["n", "m"], sent)
    assert len(read) == len(scene.licenses.questions) == reads


@in_virtual_time
async def test_pods_without_negotiated_classes_ask_nobody() -> None:
    scene = Scene(*pods("p", requests=(GPU_REQUEST,)))
    assert await scene.bind() == ""
    await scene.end()
    await scene.tick()
    assert scene.licenses.questions == []
    assert await scene.mark() == ""
