"""PodSchedulingContexts: what comes late, when others have changed the context or the claim meanwhile."""

import asyncio
from pathlib import Path

import pytest

from extender.cluster.objects.claims import DEALLOCATION_REQUESTED
from extender.cluster.writes.other_kinds import ContextWrites
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, CONTEXTS
from tests.extender.plugins.negotiation.scenes import LICENSE, NAME, pods
from tests.extender.plugins.negotiation.test_scheduling_contexts import OTHER, OTHER_REQUEST, TWO_CLASSES, context
from tests.extender.plugins.negotiation.transport_scenes import KitScene, Licenses
from tests.kit import virtualtime
from tests.kit.clusters import claim, pod
from tests.kit.servers.memory import Fault
from tests.kit.virtualtime import in_virtual_time

POD, CLAIM = ObjectKey("ns", "p"), ObjectKey("ns", "p-c")


@pytest.mark.parametrize("given_back", [False, True], ids=["requested", "given back"])
@in_virtual_time
async def test_bind_does_not_use_an_allocation_that_is_to_be_given_back(tmp_path: Path, *, given_back: bool) -> None:
    """The bind of p waits for another controller, when somebody asks for the deallocation of its first claim."""
    objects = (pod("p", "p-c", "q-c"), claim("p-c", LICENSE), claim("q-c", OTHER_REQUEST))
    own, other = Licenses(), Licenses()
    scene = KitScene(tmp_path, *objects, contexts=True, controllers={NAME: own, OTHER: other}, world=TWO_CLASSES)
    await scene.filter()
    await scene.turn()
    first, second = scene.contexts
    bind = asyncio.ensure_future(scene.bind("p", "n"))
    await virtualtime.elapse(0.1)
    await first.turn()
    assert own.outside == {"uid-p-c": "n"}
    await ask_to_deallocate(scene, "p-c")
    if given_back:
        await first.turn()
        assert own.outside == {}
    await second.turn()
    error = await bind
    assert error.startswith("node n: controller licenses.example.com: ")
    assert "reservedFor" not in (await scene.claim("p-c")).get("status", {})
    assert await scene.schedule() in {"m", "n"}
    assert own.outside.keys() == {"uid-p-c"}
    assert other.outside.keys() == {"uid-q-c"}


@in_virtual_time
async def test_bind_never_writes_an_allocation_that_a_controller_has_cleared(tmp_path: Path) -> None:
    """The watch is late: the bind still sees the allocation when its controller has given it back."""
    licenses = Licenses()
    scene = KitScene(tmp_path, *pods("p"), contexts=True, controllers={NAME: licenses})

    async def given_back() -> None:
        await ask_to_deallocate(scene, "p-c")
        await scene.contexts[0].turn()
        assert licenses.outside == {}

    await scene.filter()
    await scene.turn()
    scene.transport.script("update_status resourceclaims", Fault(before=given_back))
    assert await scene.bound("p", "n") == "claim p-c was deallocated meanwhile"
    assert await scene.allocation() is None
    for _ in range(6):
        await scene.turn()
    assert await scene.schedule() in {"m", "n"}
    assert licenses.outside.keys() == {"uid-p-c"}


@in_virtual_time
async def test_claim_that_somebody_reserves_while_it_is_given_back_keeps_its_license(tmp_path: Path) -> None:
    """kube-controller-manager reserves claims of pods that have a node, whatever an annotation says."""
    licenses = Licenses()
    scene = KitScene(tmp_path, *pods("p"), contexts=True, controllers={NAME: licenses})
    await scene.schedule()
    users = (await scene.claim())["status"]["reservedFor"]
    await scene.cluster.api.patch_status(CLAIMS, CLAIM, {"status": {"reservedFor": []}})
    await ask_to_deallocate(scene, "p-c")

    async def reserved() -> None:
        await scene.cluster.api.patch_status(CLAIMS, CLAIM, {"status": {"reservedFor": users}})

    scene.foreign.script("update_status resourceclaims", Fault(before=reserved))
    await scene.contexts[0].turn()
    assert await scene.allocation() is not None
    assert licenses.outside.keys() == {"uid-p-c"}


@pytest.mark.parametrize("is_gone", [False, True])
@in_virtual_time
async def test_allocation_for_a_node_that_is_not_selected_any_more_is_given_back(
    tmp_path: Path, *, is_gone: bool
) -> None:
    licenses = Licenses()
    scene = KitScene(tmp_path, *pods("p"), contexts=True, controllers={NAME: licenses})
    await scene.filter()
    await scene.turn()
    bind = asyncio.ensure_future(scene.bind("p", "n"))
    await virtualtime.elapse(0.1)

    async def deselected() -> None:
        assert licenses.outside == {"uid-p-c": "n"}
        if is_gone:
            await scene.cluster.api.delete(CONTEXTS, POD)
        else:
            await scene.cluster.api.patch(CONTEXTS, POD, {"spec": {"selectedNode": None}})

    scene.foreign.script("get podschedulingcontexts", Fault(before=deselected))
    await scene.contexts[0].turn()
    assert await bind == f"node n: controller {NAME}: the node is not selected any more"
    assert await scene.allocation() is None
    assert licenses.outside == {}
    for _ in range(4):
        await scene.turn()
    assert await scene.schedule() in {"m", "n"}


@in_virtual_time
async def test_allocation_does_not_count_once_its_node_is_not_selected_any_more(tmp_path: Path) -> None:
    """A controller that does not look again writes it; then the claim is allocated, and the next filter sees that."""
    objects = (pod("p", "p-c", "q-c"), claim("p-c", LICENSE), claim("q-c", OTHER_REQUEST))
    controllers = {NAME: Licenses(), OTHER: Licenses()}
    scene = KitScene(tmp_path, *objects, contexts=True, controllers=controllers, world=TWO_CLASSES)
    await scene.filter()
    await scene.turn()
    bind = asyncio.ensure_future(scene.bind("p", "n"))
    await virtualtime.elapse(0.1)
    await scene.contexts[0].turn()
    await scene.cluster.api.patch(CONTEXTS, POD, {"spec": {"selectedNode": "m"}})
    assert (await bind).endswith("the node is not selected any more")
    assert "reservedFor" not in (await scene.claim("p-c"))["status"]


@in_virtual_time
async def test_answer_about_earlier_nodes_is_not_written_beside_other_nodes(tmp_path: Path) -> None:
    licenses = Licenses(refuses=["n"])
    scene = KitScene(tmp_path, *pods("p"), contexts=True, controllers={NAME: licenses})
    await scene.cluster.api.create(CONTEXTS, context("p", of="uid-p", potentialNodes=["m"]))

    async def replaced() -> None:
        await scene.cluster.api.delete(CONTEXTS, POD)
        await scene.cluster.api.create(CONTEXTS, context("p", of="uid-p", potentialNodes=["n"]))

    scene.foreign.script("get podschedulingcontexts", Fault(before=replaced))
    await scene.contexts[0].turn()
    assert "status" not in (await scene.context() or {})
    assert (await scene.reasons())[0].startswith(f"waiting for controller {NAME}")
    await scene.contexts[0].turn()
    assert (await scene.context() or {})["status"]["resourceClaims"] == [{"name": "p-c", "unsuitableNodes": ["n"]}]


@pytest.mark.parametrize(
    ("before", "answered", "asked"),
    [
        pytest.param({"potentialNodes": ["a"]}, True, ["a"], id="another replica asks"),
        pytest.param({"selectedNode": "a"}, True, ["b"], id="answers about the selected node"),
        pytest.param({"selectedNode": "a"}, False, ["b"], id="no answers"),
    ],
)
@in_virtual_time
async def test_nodes_are_never_added_beside_answers_about_others(
    tmp_path: Path, before: dict[str, object], *, answered: bool, asked: list[str]
) -> None:
    """The watch of this replica does not show the object yet."""
    scene = KitScene(tmp_path, *pods("p"), contexts=True, controllers={NAME: Licenses()})
    answer = {"resourceClaims": [{"name": "p-c", "unsuitableNodes": ["a"]}]}
    raw = await scene.cluster.api.create(CONTEXTS, context("p", of="uid-p", **before))
    if answered:
        await scene.cluster.api.update_status(CONTEXTS, {**raw, "status": answer})
    found = await ContextWrites(scene.transport).create(POD, "uid-p", {"potentialNodes": ["b"]})
    assert found == await scene.context()
    assert found["spec"]["potentialNodes"] == asked
    assert found.get("status") in ((answer,) if asked == ["a"] else (None, {}))


async def ask_to_deallocate(scene: KitScene, name: str) -> None:
    raw = await scene.claim(name)
    raw["metadata"]["annotations"] = {**raw["metadata"].get("annotations", {}), DEALLOCATION_REQUESTED: "true"}
    await scene.cluster.api.update(CLAIMS, raw)


@in_virtual_time
async def test_a_selection_that_could_not_be_taken_back_is_taken_back_later(tmp_path: Path) -> None:
    """Otherwise the controller refuses the selected node for ever, and the pod has no other node."""
    licenses = Licenses(fails=1)
    scene = KitScene(tmp_path, *pods("p"), contexts=True, controllers={NAME: licenses})
    await scene.filter("p", "n")
    await scene.turn()
    scene.transport.script("patch podschedulingcontexts", Fault(), Fault(lost=True))
    assert await bind_in_turns(scene) != ""
    for _ in range(5):
        await scene.turn()
        await scene.tick(2.0)
        if (await scene.filter("p", "n")).passed:
            break
    assert await bind_in_turns(scene) == ""


async def bind_in_turns(scene: KitScene) -> str:
    """The error of a bind that waits for the controllers."""
    bind = asyncio.ensure_future(scene.bind("p", "n"))
    await virtualtime.elapse(0.1)
    await scene.turn()
    return await bind


@in_virtual_time
async def test_claim_that_is_deleted_ends_the_bind_at_once_and_goes(tmp_path: Path) -> None:
    licenses = Licenses()
    scene = KitScene(tmp_path, *pods("p"), contexts=True, controllers={NAME: licenses})
    await scene.filter()
    await scene.turn()
    scene.contexts, away = [], scene.contexts
    bind = asyncio.ensure_future(scene.bind("p", "n"))
    await virtualtime.elapse(0.1)
    await scene.cluster.api.delete(CLAIMS, CLAIM)
    await virtualtime.elapse(0.1)
    assert bind.done()
    assert await bind == f"node n: controller {NAME}: claim ns/p-c is deleted"
    scene.contexts = away
    for _ in range(6):
        await scene.turn()
    assert licenses.outside == {}
    assert not await scene.exists()
