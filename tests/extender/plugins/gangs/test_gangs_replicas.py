"""Two processes that look after one gang: only the one whose scheduler asks about the pods plans and gives back."""

import pytest

from allocator import DeviceId
from extender.cluster.objects.pods import GangKey, Keeping
from extender.kube.api import ApiError, ObjectKey
from extender.kube.resources import PODS
from extender.plugins.gangs.gang import gang_at
from extender.plugins.gangs.task import IDLE_SECONDS, KEPT_SECONDS, SEEN_SECONDS
from tests.extender.plugins.gangs.scenes import Scene, members, nodes
from tests.kit.clusters import DRIVER, GPU, Object, claim, local_slice, node, request
from tests.kit.servers.memory import Fault


async def test_the_idle_replica_adds_nothing_to_a_plan_that_is_being_written() -> None:
    scene = Scene(*nodes("abc"), *members("x", 3))
    other = scene.replica()
    for name, on in (("x0", "a"), ("x1", "c"), ("x2", "b")):
        scene.filter(name, names=[on])

    async def turn() -> None:
        scene.now += 0.3
        other.hear()
        await other.task.tick()

    scene.transport.script("patch_status pods", Fault(), Fault(before=turn))
    await scene.turns(1)
    assert [scene.known(name).kept.node for name in ("x0", "x1", "x2")] == ["a", "c", "b"]
    assert other.transport.calls == []


async def test_the_idle_replica_gives_nothing_back_while_the_other_one_binds() -> None:
    scene = Scene(*nodes("ab"), *members("x", 2))
    other = scene.replica()
    await scene.schedule(["x0", "x1"])
    await scene.turns(1)
    other.hear()
    await other.task.tick()
    scene.now += KEPT_SECONDS + 1
    await other.task.tick()
    assert scene.known("x0").kept.node
    assert other.transport.calls == []


async def test_the_other_replica_carries_on_at_once_when_it_is_asked() -> None:
    scene = Scene(*nodes("abc"), *members("x", 3))
    scene.transport.script("patch_status pods", Fault(), Fault(refused=ApiError(500, "InternalError", "it is slow")))
    await scene.schedule()
    await scene.turns(1)
    scene.start()
    scene.filter("x0")
    await scene.turns(2)
    assert all(scene.known(f"x{number}").kept.node for number in range(3))


async def test_a_replica_that_is_not_asked_carries_on_after_a_while() -> None:
    scene = Scene(*nodes("ab"), *members("x", 2))
    await scene.schedule()
    await scene.turns(1)
    scene.start()
    await scene.turns(2, seconds=IDLE_SECONDS + 1)
    assert not scene.known("x0").kept.node


async def test_a_replica_that_is_not_asked_gives_back_at_once_what_is_kept_for_a_gang_that_lacks_a_pod() -> None:
    """No process has a plan for such a gang. Its other pods may be of a scheduler that never tries them."""
    scene = Scene(*nodes("abc"), *members("x", 3))
    await scene.schedule()
    await scene.turns(1)
    scene.start()
    await scene.turns(1)
    await scene.end("x2")
    await scene.turns(1, seconds=SEEN_SECONDS / 2)
    assert scene.known("x0").kept.node, "the watch may be late: the pod may have a successor"
    await scene.turns(1, seconds=SEEN_SECONDS + 1)
    assert not any(scene.known(name).kept.node for name in ("x0", "x1"))


async def test_a_part_of_a_gang_is_given_back_when_no_other_process_writes_the_rest() -> None:
    """Another process may just write the rest, and bind a pod once it sees all of it."""
    scene = Scene(*nodes("a"), *members("x", 2))
    await keep(scene, "x0", "a")
    await scene.schedule()
    await scene.turns(2, seconds=SEEN_SECONDS / 3)
    assert scene.known("x0").kept.node
    await scene.turns(2, seconds=SEEN_SECONDS / 2)
    assert not scene.known("x0").kept.node


async def test_nothing_more_is_taken_from_a_gang_once_one_of_its_pods_is_bound() -> None:
    """The API server has refused the first try to give it back: another process has changed the pod, and bound one."""
    scene = Scene(*nodes("ab"), *members("x", 2))
    await scene.schedule()
    await scene.turns(1)

    async def meanwhile() -> None:
        await scene.cluster.api.patch(PODS, ObjectKey("ns", "x0"), {"metadata": {"labels": {"new": "1"}}})
        assert await scene.bind("x1", scene.known("x1").kept.node) == ""

    scene.transport.script("patch_status pods", Fault(before=meanwhile), Fault(lost=True))
    scene.now += KEPT_SECONDS + 1
    await scene.task.tick()
    assert scene.known("x1").node_name
    assert scene.known("x0").kept.node


KEPT_FOR_BOTH = {
    "a whole device": ({}, {}, ["x1"]),
    "a device that claims share": ({"allowMultipleAllocations": True}, {}, []),
    "admin access": ({}, {"adminAccess": True}, []),
}


@pytest.mark.parametrize(("device", "asked", "lost"), KEPT_FOR_BOTH.values(), ids=KEPT_FOR_BOTH)
async def test_a_gang_is_not_ready_if_two_plans_have_kept_one_device_for_two_pods(
    device: Object, asked: Object, lost: list[str]
) -> None:
    wanted = request()
    wanted["exactly"] |= asked
    scene = Scene(GPU, node("a"), local_slice("a", 1, **device), *members("x", 2, wanted))
    for name in ("x0", "x1"):
        await keep(scene, name, "a")
    gang = gang_at(GangKey("ns", "x"), scene.cluster.state.snapshot)
    assert gang is not None
    assert [pod.name for pod in gang.lost] == lost
    assert gang.is_ready == (not lost)


async def test_a_device_that_pods_share_by_one_claim_may_be_kept_for_both() -> None:
    raw = [each for each in members("x", 2) if each["kind"] == "Pod"]
    for each in raw:
        each["spec"]["resourceClaims"] = [{"name": "shared", "resourceClaimName": "shared"}]
    scene = Scene(*nodes("a"), *raw, claim("shared"))
    for name in ("x0", "x1"):
        await keep(scene, name, "a")
    assert scene.filter("x0").passed == ("a",)


async def test_a_device_that_was_kept_for_two_pods_is_kept_for_one_at_the_end() -> None:
    scene = Scene(*nodes("ab"), *members("x", 2))
    for name in ("x0", "x1"):
        await keep(scene, name, "b")
    await scene.run()
    assert sorted(scene.bound("x").values()) == ["a", "b"]


async def keep(scene: Scene, name: str, on: str) -> None:
    """Write that the only device of a node is kept for a pod."""
    await scene.nominator.keep(scene.known(name), Keeping(on, (DeviceId(DRIVER, on, "gpu-0"),)))


async def test_a_pod_whose_plan_could_not_be_written_is_woken_when_its_gang_is_ready() -> None:
    """Another process has kept the devices before; while the watch was silent, this one has planned the gang again."""
    scene = Scene(*nodes("ab"), *members("x", 2))
    await scene.schedule()
    refused = Fault(refused=ApiError(500, "InternalError", "it is slow"))
    scene.transport.script("patch_status pods", refused, refused)
    await scene.turns(1)
    for name, on in (("x0", "a"), ("x1", "b")):
        await keep(scene, name, on)
    before = {name: scene.known(name).resource_version for name in ("x0", "x1")}
    await scene.turns(1)
    assert all(scene.known(name).resource_version != version for name, version in before.items())
