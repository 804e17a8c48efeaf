"""PodSchedulingContexts: who writes what when, and what becomes of them."""

import asyncio
from pathlib import Path

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from extender.answers.explain.explanation import Conclusion
from extender.cluster.objects.claims import DEALLOCATION_REQUESTED, MARK
from extender.config.settings import ControllerSettings
from extender.kube.api import ObjectKey, RawObject
from extender.kube.discovery import NotServedError
from extender.kube.encoding import loads
from extender.kube.resources import CLAIMS, CONTEXTS
from extender.plugins.negotiation.scheduling_contexts import MOST_NODES
from tests.extender.plugins.negotiation.scenes import LICENSE, NAME, WORLD, Scene, negotiated_class, pods
from tests.extender.plugins.negotiation.test_controllers_http import ODD
from tests.extender.plugins.negotiation.transport_scenes import KitScene, Licenses
from tests.kit import virtualtime
from tests.kit.clusters import NOW, claim, node, parsed, pinned, pod, request
from tests.kit.servers.memory import Fault
from tests.kit.virtualtime import in_virtual_time

GPU_REQUEST = request("gpu")
OTHER = "fabric.example.com"
OTHER_REQUEST = request("license", device_class="other")
TWO_CLASSES = (*WORLD, negotiated_class("other", OTHER))
POD, CLAIM = ObjectKey("ns", "p"), ObjectKey("ns", "p-c")
BY_CONTEXT = {"name": NAME, "transport": "PodSchedulingContext"}


def context(name: str, *, of: str, **spec: object) -> RawObject:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": of}
    metadata = {"namespace": "ns", "name": name, "ownerReferences": [owner]}
    return {
        "apiVersion": "dra-extender.dev/v1alpha1",
        "kind": "PodSchedulingContext",
        "metadata": metadata,
        "spec": spec,
    }


@in_virtual_time
async def test_filter_posts_the_nodes_and_waits_for_all_controllers(tmp_path: Path) -> None:
    objects = (pod("p", "p-c", "q-c"), claim("p-c", LICENSE), claim("q-c", OTHER_REQUEST))
    controllers = {NAME: Licenses(), OTHER: Licenses()}
    scene = KitScene(tmp_path, *objects, contexts=True, controllers=controllers, world=TWO_CLASSES)
    since = f"since {NOW:%Y-%m-%dT%H:%M:%SZ}"
    assert await scene.reasons() == [f"waiting for controller {NAME} {since}"]
    posted = await scene.context()
    assert posted is not None
    assert posted["spec"] == {"potentialNodes": ["m", "n"]}
    assert [each["uid"] for each in posted["metadata"]["ownerReferences"]] == ["uid-p"]
    first, second = scene.contexts
    await first.turn()
    assert await scene.reasons() == [f"waiting for controller {OTHER} {since}"]
    await second.turn()
    answered = await scene.context()
    assert answered is not None
    assert answered["status"]["resourceClaims"] == [
        {"name": "p-c", "unsuitableNodes": []},
        {"name": "q-c", "unsuitableNodes": []},
    ]
    await scene.tick()
    await scene.tick()
    assert await scene.woken()
    assert await scene.reasons() == []


@in_virtual_time
async def test_a_question_that_is_answered_already_writes_nothing(tmp_path: Path) -> None:
    scene = KitScene(tmp_path, *pods("p"), contexts=True, controllers={NAME: Licenses()})
    await scene.filter()
    await scene.turn()
    before = await scene.context()
    for names in (("n",), ("m",), ("n", "m")):
        await scene.filter("p", *names)
        await scene.turn()
    assert await scene.context() == before


@in_virtual_time
async def test_nodes_beyond_the_limit_are_asked_about_once_the_others_are_refused(tmp_path: Path) -> None:
    names = [f"n{number:03}" for number in range(600)]
    licenses = Licenses(refuses=names[:550])
    world = (negotiated_class(), *(node(each) for each in names))
    scene = KitScene(tmp_path, *pods("p"), contexts=True, controllers={NAME: licenses}, world=world)
    asked = []
    for _ in range(3):
        assert not (await scene.filter("p", *names)).passed
        posted = await scene.context()
        assert posted is not None
        asked.append(posted["spec"]["potentialNodes"])
        await scene.turn()
    assert [len(each) for each in asked] == [MOST_NODES, MOST_NODES, 600 - 2 * MOST_NODES]
    assert {name for each in asked for name in each} == set(names)
    assert sorted((await scene.filter("p", *names)).passed) == names[550:]


@in_virtual_time
async def test_context_of_an_earlier_pod_of_that_name_is_replaced(tmp_path: Path) -> None:
    scene = KitScene(tmp_path, *pods("p"), contexts=True, controllers={NAME: Licenses()})
    await scene.cluster.api.create(CONTEXTS, context("p", of="uid-before", selectedNode="m"))
    await scene.contexts[0].turn()
    assert await scene.allocation() is None
    assert await scene.schedule() in {"m", "n"}


@in_virtual_time
async def test_context_of_a_pod_that_is_gone_is_deleted_and_controllers_ignore_it(tmp_path: Path) -> None:
    scene = KitScene(tmp_path, *pods("p"), contexts=True, controllers={NAME: Licenses()})
    await scene.cluster.api.create(CONTEXTS, context("gone", of="uid-gone", potentialNodes=["n"]))
    await scene.contexts[0].turn()
    found = await scene.context("gone")
    assert found is not None
    assert "status" not in found
    await scene.cluster.api.create(CONTEXTS, context("p", of="uid-p", potentialNodes=["n"]))
    await scene.end("p")
    await scene.turn(2.0)
    assert [await scene.context(name) for name in ("gone", "p")] == [None, None]


@in_virtual_time
async def test_claim_in_the_way_of_its_pod_is_deallocated_by_its_controller(tmp_path: Path) -> None:
    """Both controllers accept both nodes; one allocates for a node, and then the other cannot allocate there."""
    objects = (pod("p", "p-c", "q-c"), claim("p-c", LICENSE), claim("q-c", OTHER_REQUEST))
    local, other = Licenses(is_local=True), Licenses()
    scene = KitScene(tmp_path, *objects, contexts=True, controllers={NAME: local, OTHER: other}, world=TWO_CLASSES)
    await scene.filter()
    await scene.turn()
    await scene.filter()
    other.refuses = ["n"]
    error = await scene.bound("p", "n")
    assert error == f"node n: controller {OTHER}: the node is not suitable"
    assert local.outside == {"uid-p-c": "n"}
    for _ in range(4):
        await scene.turn()
    assert await scene.reasons() == [
        "claim p-c is allocated for other nodes",
        f"controller {OTHER}: the node is not suitable",
    ]
    await scene.tick()
    annotations = (await scene.claim("p-c"))["metadata"]["annotations"]
    assert DEALLOCATION_REQUESTED in annotations
    assert await scene.reasons() == ["claim p-c waits until its controller has deallocated it"]
    for _ in range(4):
        await scene.turn()
    assert await scene.schedule() == "m"
    assert [local.outside, other.outside] == [{"uid-p-c": "m"}, {"uid-q-c": "m"}]
    assert DEALLOCATION_REQUESTED not in (await scene.claim("p-c"))["metadata"]["annotations"]


@pytest.mark.parametrize("mark", ["kept", "removed", "of nobody"])
@in_virtual_time
async def test_claim_that_was_allocated_for_a_pod_that_is_gone_is_deallocated(tmp_path: Path, mark: str) -> None:
    licenses = Licenses()
    objects = (pod("p", "p-c", "q-c"), claim("p-c", LICENSE), claim("q-c", OTHER_REQUEST))
    controllers = {NAME: licenses, OTHER: Licenses(fails=1)}
    scene = KitScene(tmp_path, *objects, contexts=True, controllers=controllers, world=TWO_CLASSES)
    await scene.filter()
    await scene.turn()
    assert await scene.bound("p", "n") != ""
    assert licenses.outside == {"uid-p-c": "n"}
    if mark != "kept":
        raw = await scene.claim("p-c")
        raw["metadata"]["annotations"].pop(MARK)
        raw["metadata"]["annotations"] |= {MARK: "nobody 1 released"} if mark == "of nobody" else {}
        await scene.cluster.api.update(CLAIMS, raw)
    await scene.end("p")
    for _ in range(20):
        await scene.turn(1.0)
    assert licenses.outside == {}
    assert await scene.allocation() is None


@in_virtual_time
async def test_claim_of_a_pod_that_has_its_node_stays_while_the_pod_waits_for_another_controller(
    tmp_path: Path,
) -> None:
    objects = (pinned("p", "p-c", "q-c", on="n"), claim("p-c", LICENSE), claim("q-c", OTHER_REQUEST))
    own, other = Licenses(is_local=True), Licenses(left=0)
    scene = KitScene(tmp_path, *objects, contexts=True, controllers={NAME: own, OTHER: other}, world=TWO_CLASSES)
    for _ in range(120):
        await scene.turn(1.0)
    assert [each for each in own.events if each != "judge"] == ["allocate p-c n"]
    other.left = 1
    for _ in range(60):
        await scene.turn(1.0)
    assert [own.outside, other.outside] == [{"uid-p-c": "n"}, {"uid-q-c": "n"}]
    users = [(await scene.claim(name))["status"]["reservedFor"] for name in ("p-c", "q-c")]
    assert [[each["name"] for each in names] for names in users] == [["p"], ["p"]]


@in_virtual_time
async def test_allocation_that_takes_too_long_ends_and_the_node_is_not_selected_any_more(tmp_path: Path) -> None:
    licenses = Licenses()
    scene = KitScene(tmp_path, *pods("p"), contexts=True, controllers={NAME: licenses})
    await scene.filter()
    await scene.turn()
    scene.contexts, away = [], scene.contexts
    assert await scene.bound("p", "n") == f"node n: controller {NAME}: no allocation within 5 s"
    left = await scene.context()
    assert left is not None
    assert "selectedNode" not in left["spec"]
    scene.contexts = away
    for _ in range(6):
        await scene.turn()
    assert licenses.outside == {}
    assert await scene.schedule() in {"m", "n"}


@in_virtual_time
async def test_context_that_somebody_deletes_ends_the_bind_and_is_made_again(tmp_path: Path) -> None:
    scene = KitScene(tmp_path, *pods("p"), contexts=True, controllers={NAME: Licenses()})
    await scene.filter()
    await scene.turn()
    scene.contexts, away = [], scene.contexts
    bind = asyncio.ensure_future(scene.bind("p", "n"))
    await virtualtime.elapse(0.1)
    await scene.cluster.api.delete(CONTEXTS, ObjectKey("ns", "p"))
    assert await bind == f"node n: controller {NAME}: the node is not selected any more"
    scene.contexts = away
    assert await scene.schedule() in {"m", "n"}


async def test_explanation_says_since_when_a_pod_waits_and_writes_nothing(tmp_path: Path) -> None:
    scene = KitScene(tmp_path, *pods("p"), contexts=True, controllers={NAME: Licenses()})
    asked = parsed(pod("p", "p-c"))
    assert f"waiting for controller {NAME} (m, n)" in str(await scene.extender.explanations.explain(asked))
    assert await scene.context() is None
    await scene.filter()
    waiting = f"waiting for controller {NAME} since {NOW:%Y-%m-%dT%H:%M:%SZ} (m, n)"
    assert waiting in str(await scene.extender.explanations.explain(asked))
    await scene.contexts[0].turn()
    await scene.filter()
    assert (await scene.extender.explanations.explain(asked, ["n"])).verdict is Conclusion.FITS


@in_virtual_time
async def test_bind_after_a_crash_finds_the_claim_that_the_controller_has_allocated(tmp_path: Path) -> None:
    licenses = Licenses()
    scene = KitScene(tmp_path, *pods("p"), contexts=True, controllers={NAME: licenses})
    await scene.filter()
    await scene.turn()
    bind = asyncio.ensure_future(scene.bind("p", "n"))
    await virtualtime.elapse(0.1)
    scene.transport.script("patch podschedulingcontexts", Fault(lost=True))  # a process that ends tidies nothing up
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    for each in scene.contexts:
        await each.turn()
    assert bind.cancelled()
    assert licenses.outside == {"uid-p-c": "n"}
    assert await scene.bind("p", "n", by=scene.replica()) == ""
    assert licenses.events.count("allocate p-c n") == 1


@in_virtual_time
async def test_controller_that_writes_allocations_serves_whole_claims_only(tmp_path: Path) -> None:
    objects = pods("p", requests=(GPU_REQUEST, LICENSE))
    scene = KitScene(tmp_path, *objects, contexts=True, controllers={NAME: Licenses()})
    reason = f"claim p-c: spec.devices.requests: controller {NAME} serves all requests of a claim or none, and not gpu"
    assert await scene.reasons() == [reason]
    assert await scene.bound("p", "n") == f"node n: {reason}"
    assert await scene.context() is None


@in_virtual_time
async def test_simulation_does_not_know_controllers_of_contexts(tmp_path: Path) -> None:
    scene = KitScene(tmp_path, *pods("p"), contexts=True, controllers={NAME: Licenses()})
    by = scene.replica(simulation=True)
    text = "it answers by PodSchedulingContexts, so its answer is not known in a simulation"
    assert [each.partition(" (")[0] for each in await scene.reasons(by=by)] == [f"controller {NAME}: {text}"]
    assert await scene.context() is None


@in_virtual_time
async def test_missing_kind_is_a_reason() -> None:
    scene = Scene(*pods("p"))
    scene.controllers = {}
    scene.transport.script("create podschedulingcontexts", Fault(refused=NotServedError(CONTEXTS)))
    (reason,) = await scene.reasons(by=scene.replica(controllers=[BY_CONTEXT]))
    assert reason.startswith(f"waiting for controller {NAME} since ")
    assert reason.endswith(": the kind PodSchedulingContext is not installed")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"name": NAME}, "url is required with transport Http"),
        ({**BY_CONTEXT, "url": "https://x"}, "url has no use with transport PodSchedulingContext"),
        ({**BY_CONTEXT, "nodeLabels": ["a"]}, "nodeLabels has no use with transport PodSchedulingContext"),
    ],
)
def test_settings_that_contradict_the_transport_are_refused(given: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        ControllerSettings.model_validate(given)


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
@in_virtual_time
async def test_claim_with_odd_parameters_is_served(tmp_path: Path, text: str) -> None:
    wanted = claim("p-c", LICENSE)
    raw = b'{"opaque":{"driver":"a.example.com","parameters":%s}}' % text.encode()
    wanted["spec"]["devices"]["config"] = [loads(raw)]
    scene = KitScene(tmp_path, pod("p", "p-c"), wanted, contexts=True, controllers={NAME: Licenses()})
    assert await scene.schedule() in {"m", "n"}
    scene.restart(NAME)
    assert scene.kit[NAME].store.allocated.keys() == {"uid-p-c"}


def with_parameters(folder: Path, licenses: Licenses) -> KitScene:
    """A pod whose claim names parameters of a kind that the controller reads."""
    kind = {"apiVersion": "x.example.com/v1", "kind": "Needs", "resource": "needs"}
    wanted = claim("p-c", LICENSE)
    named = '{"apiGroup": "x.example.com", "kind": "Needs", "name": "small"}'
    wanted["metadata"]["annotations"] = {"dra-extender.dev/parameters-ref": named}
    objects = (pod("p", "p-c"), wanted)
    return KitScene(folder, *objects, contexts=True, controllers={NAME: licenses}, parameters=[kind])


@in_virtual_time
async def test_missing_parameters_are_logged_once_until_they_have_been_there(tmp_path: Path) -> None:
    scene = with_parameters(tmp_path, Licenses())
    await scene.filter()
    counts = []
    for is_there in (False, True, False):
        scene.foreign.objects = {"needs": {"kind": "Needs"}} if is_there else {}
        with capture_logs() as logs:
            for _ in range(40):
                await scene.turn()
        counts.append([each["event"] for each in logs].count("subject not served"))
    assert counts == [1, 0, 1]


@in_virtual_time
async def test_controller_reads_the_parameters_that_a_claim_names(tmp_path: Path) -> None:
    needs = {"kind": "Needs", "metadata": {"name": "small", "namespace": "ns"}, "memory": "2Gi"}
    licenses = Licenses()
    scene = with_parameters(tmp_path, licenses)
    await scene.schedule(rounds=2)
    assert licenses.events == []
    scene.foreign.objects["needs"] = needs
    for _ in range(4):
        await scene.turn()
    assert await scene.schedule() in {"m", "n"}
    assert licenses.parameters == [{"source": "FromClaim", "requests": ["license"], "object": needs}]
