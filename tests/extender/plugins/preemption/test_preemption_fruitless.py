"""A pod that no eviction helps is chosen for again when something has changed that matters, and not too often."""

from collections.abc import Sequence

import pytest

from extender.kube.api import ObjectKey, key_of
from extender.kube.resources import PODS, RESOURCES
from extender.plugins.preemption.choice import LONGEST_SECONDS, PAUSE
from tests.extender.plugins.preemption.scenes import Scene, runs, waits
from tests.kit.clusters import Object, budget, claim, device_class, local_slice, network_slice, node, pod, request

BOSS = runs("boss", "a/gpu-0", on="a", priority=200)
MINOR = runs("minor", "b/gpu-0", on="b", priority=1)


def hopeless(*more: Object) -> Scene:
    """The pod p waits for two devices; the nodes a, b and c have one each."""
    return Scene.of(*waits("p", request(count=2)), *BOSS, *MINOR, *more, nodes="abc")


async def rejected(scene: Scene, name: str = "p") -> int:
    """A pod is rejected on the nodes a and b; returns how many searches for victims that has made."""
    before = scene.searches
    scene.filter(name, names="ab")
    await scene.turns()
    return scene.searches - before


async def test_a_pod_that_no_eviction_helps_is_chosen_for_once() -> None:
    scene = hopeless()
    assert [await rejected(scene) for _ in range(3)] == [1, 0, 0]


async def test_a_choice_among_more_nodes_is_made() -> None:
    scene = hopeless()
    assert await rejected(scene) == 1
    scene.filter("p", names="abc")
    await scene.turns()
    assert scene.searches == 2
    assert await rejected(scene) == 0


async def test_pods_of_one_kind_are_chosen_for_once() -> None:
    scene = hopeless()
    for name in ("t1", "t2"):
        for each in (_templated(pod(name, priority=100), name), _owned(name)):
            scene.cluster.load(each)
    assert [await rejected(scene, name) for name in ("t1", "t2", "p")] == [1, 0, 1]


def _templated(raw: Object, name: str) -> Object:
    raw["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]
    raw["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]
    return raw


def _owned(name: str) -> Object:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}", "controller": True}
    return claim(f"{name}-gpu", request(count=2), metadata={"ownerReferences": [owner]})


MATTERS = {
    "a device more": [local_slice("b", 2)],
    "a device for all nodes": [network_slice("net")],
    "a node that is asked about": [node("a", labels={"new": "label"})],
    "a device class": [device_class(selectors=["true"])],
    "a pod that has a node": [pod("boss", "boss-c", on="a", priority=50)],
    "a claim that is used": [claim("minor-c", allocated=["b/gpu-0"], at="b", users=["minor", "other"])],
}


@pytest.mark.parametrize("change", MATTERS.values(), ids=MATTERS)
async def test_the_pod_is_chosen_for_again_after(change: Sequence[Object]) -> None:
    scene = hopeless()
    await rejected(scene)
    await _change(scene, change)
    assert await rejected(scene) >= 1


MATTERS_NOT = {
    "a node that is not asked about": [node("c", labels={"new": "label"}), local_slice("c", 2)],
    "a pod that waits": waits("other"),
    "a budget": [budget("all", {"app": "db"}, 0)],
}


@pytest.mark.parametrize("change", MATTERS_NOT.values(), ids=MATTERS_NOT)
async def test_the_pod_is_not_chosen_for_again_after(change: Sequence[Object]) -> None:
    scene = hopeless()
    await rejected(scene)
    await _change(scene, change)
    assert await rejected(scene) == 0


async def _change(scene: Scene, change: Sequence[Object]) -> None:
    """Objects are added, or take the place of those with their names."""
    api = scene.cluster.api
    for each in change:
        resource, key = RESOURCES[each["kind"]], key_of(each)
        if not api.has(resource, key):
            scene.cluster.load(each)
            continue
        now = await api.get(resource, key)
        labels = {"labels": each["metadata"].get("labels", {})}
        new = await api.update(resource, {**now, "spec": each.get("spec", {}), "metadata": now["metadata"] | labels})
        if "status" in each:
            await api.update_status(resource, {**new, "status": each["status"]})


async def test_the_pod_is_chosen_for_again_after_some_time_in_any_case() -> None:
    scene = hopeless()
    await rejected(scene)
    scene.now += LONGEST_SECONDS
    assert await rejected(scene) == 1


async def test_the_longer_a_choice_takes_the_later_is_the_next_one() -> None:
    """It comes without another rejection."""
    scene = hopeless()
    scene.search_seconds = 0.25
    await rejected(scene)
    await _change(scene, MATTERS["a device more"])
    assert await rejected(scene) == 0
    scene.now += PAUSE * scene.search_seconds
    await scene.turns()
    assert await scene.pods() == ["boss", "p"]


async def test_the_pod_is_chosen_for_again_once_a_nomination_ends() -> None:
    scene = hopeless(*waits("first", nominated="b"))
    await rejected(scene)
    await scene.cluster.api.patch_status(PODS, ObjectKey("ns", "first"), {"status": {"nominatedNodeName": None}})
    assert await rejected(scene) == 1
