"""Plans of gangs: which pods count as alike, and what a plan costs."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from extender.cluster.objects.pods import GROUP, GROUP_SIZE
from extender.plugins.gangs.task import SHOWN_NODES
from tests.extender.plugins.gangs.scenes import Scene, members, nodes
from tests.kit.clusters import GPU, claim, pod


async def test_pods_that_were_asked_about_other_nodes_are_not_alike() -> None:
    scene = Scene(*nodes("ab"), *members("x", 2))
    for _ in range(2):
        scene.filter("x0", names="ab")
        scene.filter("x1", names="a")
        await scene.turns()
    assert (scene.known("x0").kept.node, scene.known("x1").kept.node) == ("b", "a")


def counted(scene: Scene) -> int:
    """How many nodes the plans of the task were asked about."""
    return scene.decider.asked


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


async def test_a_gang_whose_pods_share_a_claim_is_not_like_one_whose_pods_have_their_own() -> None:
    sharing = [each for each in members("y", 2) if each["kind"] == "Pod"]
    for each in sharing:
        each["spec"]["resourceClaims"] = [{"name": "shared", "resourceClaimName": "shared"}]
    scene = Scene(*nodes("a"), *members("x", 2), *sharing, claim("shared"))
    for name in scene.pending():
        scene.filter(name)
    await scene.turns(1)
    assert [scene.known(name).kept.node for name in ("x0", "x1", "y0", "y1")] == ["", "", "a", "a"]


async def test_a_gang_that_found_no_place_is_looked_for_again_only_after_a_change_or_on_other_nodes() -> None:
    scene, plans = Scene(*nodes("abc"), *members("x", 4), *members("y", 1)), 0

    async def count(work: Callable[[], Any]) -> Any:
        nonlocal plans
        plans += 1
        return work()

    async def made(names: str = "abc") -> int:
        """How many plans are made once schedulers have tried the gang again."""
        before = plans
        for name in ("x0", "x1", "x2", "x3"):
            scene.filter(name, names=names)
        await scene.turns()
        return plans - before

    scene.off_loop = count
    scene.start()
    assert [await made(), await made(), await made("ab"), await made("ab")] == [1, 0, 1, 0]
    scene.task.judge_anew(scene.known("x0"))
    assert await made("ab") == 1
    await scene.end("y0")
    assert await made("ab") == 1
