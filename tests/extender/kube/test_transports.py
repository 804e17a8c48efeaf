"""Both transports with the same cases: a controller of the kit is asked by questions, or by PodSchedulingContexts."""

import asyncio
from pathlib import Path

import pytest

from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS
from tests.extender.plugins.negotiation.scenes import LICENSE, NAME, WORLD, negotiated_class, pods
from tests.extender.plugins.negotiation.transport_scenes import KitScene, Licenses
from tests.kit.clusters import claim, pinned, pod, request
from tests.kit.virtualtime import in_virtual_time

both = pytest.mark.parametrize("contexts", [pytest.param(False, id="http"), pytest.param(True, id="contexts")])
GPU_REQUEST = request("gpu")
OTHER = "fabric.example.com"


@both
@in_virtual_time
async def test_pod_gets_what_its_controller_allocates_and_gives_it_back(contexts: bool, tmp_path: Path) -> None:
    licenses = Licenses()
    scene = KitScene(tmp_path, *pods("p"), contexts=contexts, controllers={NAME: licenses})
    assert await scene.schedule() in {"m", "n"}
    allocation = await scene.allocation()
    assert allocation is not None
    (node,) = licenses.outside.values()
    assert allocation["devices"]["config"][0]["opaque"]["parameters"] == {"node": node}
    assert await scene.cluster.node_of("p") == node
    assert [each["name"] for each in (await scene.claim())["status"]["reservedFor"]] == ["p"]
    await scene.turn(2.0)
    assert await scene.context() is None
    await scene.end()
    for _ in range(8):
        await scene.turn()
    assert licenses.outside == {}
    assert (await scene.mark()).endswith(" released")
    assert await scene.allocation() is None


@both
@in_virtual_time
async def test_pod_waits_and_is_woken_when_its_controller_has_room(contexts: bool, tmp_path: Path) -> None:
    licenses = Licenses(left=0)
    scene = KitScene(tmp_path, *pods("p"), contexts=contexts, controllers={NAME: licenses})
    reason = "the node is not suitable" if contexts else "no license is left"
    assert await scene.schedule() == f"controller {NAME}: {reason}"
    assert not await scene.woken()
    licenses.left = 1
    for _ in range(20):
        await scene.turn(3.0)
    assert await scene.woken()
    assert await scene.schedule() in {"m", "n"}


@both
@in_virtual_time
async def test_pod_gets_a_node_that_its_controller_accepts(contexts: bool, tmp_path: Path) -> None:
    licenses = Licenses(refuses=["m"])
    scene = KitScene(tmp_path, *pods("p", requests=(LICENSE,)), contexts=contexts, controllers={NAME: licenses})
    assert await scene.schedule() == "n"
    assert list(licenses.outside.values()) == ["n"]


@both
@in_virtual_time
async def test_structured_and_negotiated_claim_of_a_pod_go_to_the_same_node(contexts: bool, tmp_path: Path) -> None:
    objects = (pod("p", "gpu-c", "p-c"), claim("gpu-c", GPU_REQUEST), claim("p-c", LICENSE))
    scene = KitScene(tmp_path, *objects, contexts=contexts, controllers={NAME: Licenses(refuses=["m"])})
    assert await scene.schedule() == "n"
    allocation = await scene.allocation("gpu-c")
    assert allocation is not None
    assert [each["pool"] for each in allocation["devices"]["results"]] == ["n"]


@both
@in_virtual_time
async def test_refusal_at_the_last_moment_leaves_nothing_and_the_pod_is_tried_again(
    contexts: bool, tmp_path: Path
) -> None:
    licenses = Licenses(fails=1)
    objects = (pod("p", "gpu-c", "p-c"), claim("gpu-c", GPU_REQUEST), claim("p-c", LICENSE))
    scene = KitScene(tmp_path, *objects, contexts=contexts, controllers={NAME: licenses})
    if contexts:
        await scene.filter()
        await scene.turn()
    assert "controller" in await scene.bound("p", "n")
    assert await scene.allocation("gpu-c") is None
    assert licenses.outside == {}
    for _ in range(4):
        await scene.turn()
    assert await scene.schedule() in {"m", "n"}


@both
@in_virtual_time
async def test_two_controllers_of_one_pod_agree_on_a_node(contexts: bool, tmp_path: Path) -> None:
    other = request("license", device_class="other")
    objects = (pod("p", "p-c", "q-c"), claim("p-c", LICENSE), claim("q-c", other))
    controllers = {NAME: Licenses(refuses=["m"]), OTHER: Licenses()}
    world = (*WORLD, negotiated_class("other", OTHER))
    scene = KitScene(tmp_path, *objects, contexts=contexts, controllers=controllers, world=world)
    assert await scene.schedule() == "n"
    assert [list(each.outside.values()) for each in controllers.values()] == [["n"], ["n"]]


@both
@in_virtual_time
async def test_immediate_claim_is_allocated_before_a_pod_needs_it(contexts: bool, tmp_path: Path) -> None:
    asked = claim("p-c", LICENSE)
    asked["metadata"]["annotations"] = {"dra-extender.dev/allocation-mode": "Immediate"}
    licenses = Licenses(refuses=["m"])
    scene = KitScene(tmp_path, asked, pod("p", "p-c"), contexts=contexts, controllers={NAME: licenses})
    for _ in range(6):
        await scene.turn(3.0)
    assert licenses.outside == {"uid-p-c": "n"}
    assert await scene.allocation() is not None
    assert await scene.schedule() in {"m", "n"}
    assert await scene.context() is None


@both
@in_virtual_time
async def test_pod_whose_author_chose_the_node_gets_its_claim_there(contexts: bool, tmp_path: Path) -> None:
    licenses = Licenses()
    objects = (pinned("p", "p-c", on="m"), claim("p-c", LICENSE))
    scene = KitScene(tmp_path, *objects, contexts=contexts, controllers={NAME: licenses})
    for _ in range(8):
        await scene.turn(3.0)
    assert licenses.outside == {"uid-p-c": "m"}
    assert [each["name"] for each in (await scene.claim())["status"]["reservedFor"]] == ["p"]
    assert "judge" not in licenses.events
    assert await scene.context() is None


@both
@in_virtual_time
async def test_deleted_claim_stays_until_its_controller_has_released_it(contexts: bool, tmp_path: Path) -> None:
    licenses = Licenses()
    scene = KitScene(tmp_path, *pods("p"), contexts=contexts, controllers={NAME: licenses})
    await scene.schedule()
    await scene.cluster.api.delete(CLAIMS, ObjectKey("ns", "p-c"))
    await scene.end()
    assert await scene.exists()
    for _ in range(8):
        await scene.turn()
    assert licenses.outside == {}
    assert not await scene.exists()


@both
@in_virtual_time
async def test_controller_that_ends_after_it_has_allocated_gives_it_back_or_goes_on(
    contexts: bool, tmp_path: Path
) -> None:
    """The process ends before anybody hears of the allocation; the next one has its store."""
    licenses = Licenses()
    scene = KitScene(tmp_path, *pods("p"), contexts=contexts, controllers={NAME: licenses})
    scene.lose_next_answer(NAME)
    await scene.schedule(rounds=2)
    scene.restart(NAME)
    for _ in range(30):
        await scene.turn()
    assert await scene.schedule() in {"m", "n"}
    assert len(licenses.outside) == 1


@both
@in_virtual_time
async def test_pods_that_share_a_claim_run_where_it_is_allocated_and_it_is_given_back_after_both(
    contexts: bool, tmp_path: Path
) -> None:
    """Both binds begin before the claim is allocated, for different nodes."""
    licenses = Licenses(is_local=True)
    shared = (pod("p", "p-c"), pod("q", "p-c"), claim("p-c", LICENSE))
    scene = KitScene(tmp_path, *shared, contexts=contexts, controllers={NAME: licenses})
    for name in ("p", "q"):
        await scene.filter(name)
    await scene.turn()
    for name in ("p", "q"):
        assert (await scene.filter(name)).passed == ("n", "m")
    first, second = await asyncio.gather(scene.during("p", "n"), scene.during("q", "m"))
    assert (first, second) == ("", "claim p-c is being allocated for another pod")
    assert await scene.schedule("q") == "n"
    assert [event for event in licenses.events if event != "judge"] == ["allocate p-c n"]
    await scene.end("p")
    for _ in range(6):
        await scene.turn(3.0)
    assert licenses.outside == {"uid-p-c": "n"}
    await scene.end("q")
    for _ in range(6):
        await scene.turn(3.0)
    assert licenses.outside == {}
