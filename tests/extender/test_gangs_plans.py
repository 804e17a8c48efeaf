"""Plans of gangs: which pods count as alike, what other gangs have, and how long a plan takes."""

import asyncio
import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import pytest
from structlog.testing import capture_logs

from allocator import DeviceId
from extender.background.gangs import SHOWN_NODES
from extender.state.gang_annotations import GROUP, GROUP_SIZE
from extender.state.pod_conditions import Keeping
from tests.extender.ganging import Scene, members, nodes
from tests.kit.clusters import DRIVER, GPU, Object, claim, pod

T = TypeVar("T")


async def test_pods_that_were_asked_about_other_nodes_are_not_alike() -> None:
    scene = Scene(*nodes("ab"), *members("x", 2))
    for _ in range(2):
        scene.filter("x0", names="ab")
        scene.filter("x1", names="a")
        await scene.turns()
    assert (scene.known("x0").kept.node, scene.known("x1").kept.node) == ("b", "a")


def counted(scene: Scene) -> int:
    """How many nodes the plans of the task were asked about."""
    return scene.task._decider.asked


@pytest.mark.parametrize("devices", [1, 8])
async def test_the_work_for_a_gang_grows_with_its_pods_and_not_with_pods_times_nodes(devices: int) -> None:
    number = 32
    scene = Scene(*nodes(map(str, range(number // devices)), devices), *members("x", number))
    await scene.schedule()
    await scene.turns(1)
    assert all(scene.known(name).kept.node for name in scene.pending())
    assert counted(scene) <= 2 * number


async def test_the_log_names_few_nodes_of_a_large_gang() -> None:
    number = 2 * SHOWN_NODES
    scene = Scene(*nodes(map(str, range(number))), *members("x", number))
    await scene.schedule()
    with capture_logs() as logs:
        await scene.turns(1)
    (line,) = (each for each in logs if each["event"] == "group planned")
    assert (line["pods"], len(line["nodes"]), line["more_nodes"]) == (number, SHOWN_NODES, SHOWN_NODES)


async def test_pods_that_ask_for_extended_resources_are_alike() -> None:
    number = 16
    wanted = {"example.com/gpu": "1"}
    pods = [pod(f"x{place}", resources=wanted) for place in range(number)]
    for each in pods:
        each["metadata"]["annotations"] = {GROUP: "x", GROUP_SIZE: str(number)}
    offered = copy.deepcopy(GPU)
    offered["spec"]["extendedResourceName"] = "example.com/gpu"
    scene = Scene(*nodes(map(str, range(number)))[1:], offered, *pods)
    await scene.schedule()
    await scene.turns(1)
    assert all(scene.known(name).kept.node for name in scene.pending())
    assert counted(scene) <= 2 * number


async def test_pods_that_share_a_claim_go_where_the_claim_is_and_the_others_beside_them() -> None:
    raw = members("x", 4)
    for each in raw[:4:2]:
        each["spec"]["resourceClaims"] = [{"name": "shared", "resourceClaimName": "shared"}]
    scene = Scene(*nodes("abc"), *raw, claim("shared"))
    await scene.run()
    bound = scene.bound("x")
    assert bound["x0"] == bound["x1"]
    assert len(set(bound.values())) == 3


async def test_pods_that_all_share_a_claim_leave_a_node_that_is_too_small_for_all_of_them() -> None:
    raw = members("x", 3)
    for each in raw[::2]:
        each["spec"]["resourceClaims"].append({"name": "shared", "resourceClaimName": "shared"})
    scene = Scene(*nodes("a", 2), *nodes("b", 4)[1:], *raw, claim("shared"))
    await scene.run()
    assert set(scene.bound("x").values()) == {"b"}


class Slow(Scene):
    """A cluster in which each look at the clock takes a while.

    Attributes:
        is_open: plans that take long go on; otherwise they wait until it is set.
    """

    def __init__(self, *objects: Object, seconds: float = 0.01) -> None:
        super().__init__(*objects)
        self.seconds = seconds
        self.solver = replace(self.solver, clock=self.clock)
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.off_loop = self.when_open
        self.start()

    def clock(self) -> float:
        self.now += self.seconds
        return self.now

    async def when_open(self, work: Callable[[], T]) -> T:
        await self.is_open.wait()
        return work()

    def kept(self, gang: str) -> Sequence[str]:
        """The nodes that are kept for the pods of a gang."""
        pods = (self.known(name) for name in self.pending() if name.startswith(gang))
        return [each.kept.node for each in pods if each.kept.node]

    async def begin_long(self) -> None:
        """The plan of gang x begins, between the turns: half a second did not suffice."""
        await self.schedule(name for name in self.pending() if name != "s")
        await self.turns(1)
        self.is_open.clear()
        self.now += 40
        await self.task.tick()
        assert self.task.unfinished

    async def end_long(self) -> None:
        self.is_open.set()
        await asyncio.gather(*self.task.unfinished)


async def test_a_gang_that_takes_long_to_plan_gets_more_time_each_try() -> None:
    scene = Slow(*nodes(map(str, range(16))), *members("x", 16))
    await scene.schedule()
    await scene.turns(1)
    assert not any(scene.known(name).kept.node for name in scene.pending()), "half a second does not suffice"
    await scene.turns(4, seconds=40)
    assert all(scene.known(name).kept.node for name in scene.pending())


async def test_a_gang_that_needs_much_longer_than_a_call_is_planned_in_the_end() -> None:
    scene = Slow(*nodes(map(str, range(64))), *members("x", 64), seconds=0.05)
    await scene.schedule()
    tries, taken = 0, 0.0
    while not scene.kept("x"):
        tries += 1
        began = scene.now
        await scene.turns(1, seconds=0)
        taken = scene.now - began
        scene.now += 5 * taken
        assert tries < 10
    assert len(scene.kept("x")) == 64
    assert taken > 8


async def test_turns_go_on_while_a_gang_that_takes_long_is_planned() -> None:
    scene = Slow(*nodes(map(str, range(17))), *members("x", 16), *members("y", 1))
    await scene.begin_long()
    await scene.task.tick()
    assert not scene.kept("y"), "no other gang takes the devices meanwhile"
    await scene.end_long()
    assert len(scene.kept("x")) == 16
    await scene.turns(2)
    assert len(scene.kept("y")) == 1


async def test_a_long_plan_is_made_again_if_its_devices_were_kept_for_another_pod_meanwhile() -> None:
    scene = Slow(*nodes(map(str, range(17))), *members("x", 16), pod("s", "s-c"), claim("s-c"))
    await scene.begin_long()
    await scene.evictor.keep(scene.known("s"), Keeping("0", (DeviceId(DRIVER, "0", "gpu-0"),)))
    await scene.end_long()
    assert not scene.kept("x")
    await scene.turns(1)
    assert sorted(scene.kept("x")) == sorted(map(str, range(1, 17)))


async def test_a_gang_whose_pods_share_a_claim_is_not_like_one_whose_pods_have_their_own() -> None:
    sharing = [each for each in members("y", 2) if each["kind"] == "Pod"]
    for each in sharing:
        each["spec"]["resourceClaims"] = [{"name": "shared", "resourceClaimName": "shared"}]
    scene = Scene(*nodes("a"), *members("x", 2), *sharing, claim("shared"))
    for name in scene.pending():
        scene.filter(name)
    await scene.turns(1)
    assert [scene.known(name).kept.node for name in ("x0", "x1", "y0", "y1")] == ["", "", "a", "a"]
