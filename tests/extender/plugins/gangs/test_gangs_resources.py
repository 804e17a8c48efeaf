"""Gangs whose devices take CPU of their nodes (gate DRANodeAllocatableResources)."""

from dataclasses import replace
from typing import Any

from allocator import Features
from extender.cluster.objects.pods import GROUP, GROUP_SIZE
from tests.extender.plugins.gangs.scenes import Scene
from tests.kit.clusters import GPU, Cluster, Object, claim, local_slice, node, pod


class Counting(Scene):
    """A cluster in which each node has 8 cores, and resources of nodes are counted."""

    def __init__(self, *objects: Object) -> None:
        super().__init__()
        self.cluster = Cluster.of(*objects, counts_resources=True)
        self.solver = replace(self.solver, features=replace(Features(), node_resources=True))
        self.start()


def nodes_with(cores: int, *names: str, devices: int = 1) -> list[Object]:
    """Nodes whose devices take this number of cores each."""
    takes = {"cpu": {"mapping": {"deviceMultiplier": str(cores)}}}
    pools = [local_slice(name, devices, nodeAllocatableResources=takes) for name in names]
    return [GPU, *(node(name, allocatable={"cpu": "8"}) for name in names), *pools]


def member(name: str, gang: str, size: int, **more: Any) -> list[Object]:
    """A pod of a gang, whose container has a claim of its own."""
    raw = pod(name, f"{name}-c", **more)
    raw["metadata"]["annotations"] = {GROUP: gang, GROUP_SIZE: str(size)}
    (container,) = raw["spec"]["containers"]
    container["resources"]["claims"] = [{"name": each["name"]} for each in raw["spec"]["resourceClaims"]]
    return [raw, claim(f"{name}-c")]


async def test_pods_whose_devices_take_too_much_together_do_not_share_a_node() -> None:
    pods = [*member("p", "x", 2), *member("q", "x", 2)]
    scene = Counting(*nodes_with(5, "a", devices=2), *pods)
    await scene.run()
    assert not scene.bound()
    scene = Counting(*nodes_with(5, "a", "b", devices=2), *pods)
    await scene.run()
    assert sorted(scene.bound().values()) == ["a", "b"]


async def test_a_gang_is_planned_after_a_larger_one_has_found_no_place() -> None:
    large, small = member("l0", "large", 1, resources={"cpu": "8"}), member("s0", "small", 1, resources={"cpu": "1"})
    scene = Counting(*nodes_with(1, "a"), *large, *small)
    await scene.run()
    assert scene.bound() == {"s0": "a"}


async def test_pods_that_need_more_of_a_node_are_not_alike() -> None:
    """If p and q go to node a, which is the first, no node is left for r."""
    small = [each for name in ("p", "q") for each in member(name, "x", 3, resources={"cpu": "1"})]
    other = pod("other", on="b", resources={"cpu": "4"})
    objects = [other, *small, *member("r", "x", 3, resources={"cpu": "3"})]
    scene = Counting(*nodes_with(2, "a", "b", devices=2), *objects)
    await scene.run()
    bound = scene.bound("x")
    assert sorted(bound.values()) == ["a", "a", "b"]
    assert bound["r"] == "a"


async def test_a_gang_that_lacked_cpu_is_planned_again_when_its_scheduler_asks_again() -> None:
    other = pod("other", on="a", resources={"cpu": "4"})
    scene = Counting(*nodes_with(5, "a"), other, *member("p", "x", 1))
    await scene.run()
    assert not scene.bound("x")
    await scene.end("other")
    await scene.run()
    assert scene.bound("x") == {"p": "a"}


async def test_what_is_kept_for_another_gang_takes_cpu_of_its_node() -> None:
    """Both gangs want one of two devices on node a, which has CPU for one of them."""
    pods = [*member("p", "x", 1, resources={"cpu": "1"}), *member("q", "y", 1, resources={"cpu": "1"})]
    scene = Counting(*nodes_with(4, "a", devices=2), *pods)
    for name in ("p", "q"):
        scene.filter(name)
    await scene.turns(2)
    assert [scene.known(name).kept.node for name in ("p", "q")] == ["a", ""]
