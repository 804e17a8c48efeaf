"""Gangs in a namespace with a DeviceQuota: what is kept for one gang counts for the next."""

from allocator import DeviceId
from extender.cluster.objects.pods import NOTHING_KEPT, Keeping
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, DEVICE_QUOTAS, PODS
from tests.extender.plugins.gangs.scenes import Scene, members, nodes
from tests.kit.clusters import DRIVER, claim, pod
from tests.kit.objects.quotas import limited, quota
from tests.kit.servers.memory import Fault


async def test_two_gangs_do_not_share_a_quota_that_suffices_for_one() -> None:
    scene = Scene(*nodes("abcd"), quota(limited(devices=3)), *members("x", 2), *members("y", 2))
    await scene.run()
    assert sorted(scene.bound()) == ["x0", "x1"]
    await scene.end("x0", "x1")
    await scene.run()
    assert sorted(scene.bound()) == ["y0", "y1"]


async def test_pods_of_the_namespace_do_not_get_what_the_gang_needs_of_the_quota() -> None:
    plain = [each for number in range(4) for each in (pod(f"s{number}", f"s{number}-c"), claim(f"s{number}-c"))]
    scene = Scene(*nodes("ab", 8), quota(limited(devices=4)), *members("x", 4), *plain)
    await asked_and_planned(scene, "x")
    await scene.schedule([f"s{number}" for number in range(4)])
    assert scene.bound() == {}
    assert scene.reason("s0") == "device quota gold: limit gpu allows 4 devices"
    await scene.run()
    assert sorted(scene.bound()) == ["x0", "x1", "x2", "x3"]


async def test_a_gang_is_not_planned_beside_pods_that_have_the_quota_kept() -> None:
    """Its members together would exceed the quota, so nothing is kept for them."""
    scene = Scene(*nodes("ab", 4), quota(limited(devices=4)), *members("x", 4), pod("s", "s-c"), claim("s-c"))
    await scene.nominator.keep(scene.known("s"), Keeping("a", (DeviceId(DRIVER, "a", "gpu-3"),)))
    await asked_and_planned(scene, "x")
    assert [scene.known(f"x{number}").kept for number in range(4)] == [NOTHING_KEPT] * 4
    await scene.nominator.end(scene.known("s"), "it is not needed any more")
    await asked_and_planned(scene, "x")
    assert all(scene.known(f"x{number}").kept.devices for number in range(4))


async def test_no_pod_of_a_gang_is_bound_if_the_quota_was_lowered_below_what_is_kept() -> None:
    scene = Scene(*nodes("ab", 4), quota(limited(devices=4)), *members("x", 4))
    await asked_and_planned(scene, "x")
    lower = {"spec": {"limits": [limited(devices=3)]}}
    await scene.cluster.api.patch(DEVICE_QUOTAS, ObjectKey("ns", "gold"), lower)
    await scene.schedule()
    assert scene.bound() == {}


async def test_what_is_kept_is_given_back_if_another_pod_has_got_the_quota_meanwhile() -> None:
    """Another replica has bound a pod while the plan was written. No member can be bound until that pod has gone."""
    scene = Scene(*nodes("ab", 4), quota(limited(devices=3)), *members("x", 3), pod("s", "s-c"), claim("s-c"))
    await asked_and_planned(scene, "x")
    await allocated_by_another(scene, "s")
    await scene.turns(1)
    assert [scene.known(f"x{number}").kept for number in range(3)] == [NOTHING_KEPT] * 3
    assert scene.reason("x0") == "waiting for devices for 3 pods of group x together"


async def test_of_two_gangs_for_which_too_much_is_kept_together_the_first_one_keeps_it() -> None:
    """Two replicas have planned them at the same time."""
    scene = Scene(*nodes("abcd"), quota(limited(devices=3)), *members("x", 2), *members("y", 2))
    names = ("x0", "x1", "y0", "y1")
    for name, on in zip(names, "abcd", strict=True):
        await kept_by_another(scene, name, on)
    await asked_and_planned(scene, "y")
    await scene.turns(1)
    assert [bool(scene.known(name).kept.node) for name in names] == [True, True, False, False]
    assert scene.reason("x0") == ""


async def test_a_gang_of_which_a_pod_is_bound_goes_before_one_that_can_wait() -> None:
    """Otherwise its other pods would lose what is kept for them, and it would run in part."""
    scene = Scene(*nodes("abcd"), quota(limited(devices=3)), *members("x", 2), *members("y", 2))
    for name, on in zip(("y0", "y1"), "cd", strict=True):
        await kept_by_another(scene, name, on)
    await scene.schedule(["y0"])
    assert scene.bound() == {"y0": "c"}
    for name, on in zip(("x0", "x1"), "ab", strict=True):
        await kept_by_another(scene, name, on)
    assert scene.reason("y1") == ""
    await asked_and_planned(scene, "x")
    assert [bool(scene.known(name).kept.node) for name in ("x0", "x1", "y1")] == [False, False, True]


async def test_a_part_of_a_gang_is_given_back_at_once_if_its_quota_refuses_even_that_part() -> None:
    """Other pods were bound since, and each write takes seconds (history 1001001329)."""
    scene = Scene(*nodes("ab", 4), quota(limited(devices=2)), *members("x", 2), *members("y", 2))
    await kept_by_another(scene, "x0", "a")
    for name, device in (("y0", "gpu-2"), ("y1", "gpu-3")):
        await allocated_by_another(scene, name, device)
    await asked_and_planned(scene, "x")
    assert scene.known("x0").kept == NOTHING_KEPT


async def test_the_rest_of_a_plan_is_not_written_once_the_quota_refuses_what_is_written() -> None:
    """Others have changed a pod, so its write is tried again, seconds later."""
    scene = Scene(*nodes("ab", 4), quota(limited(devices=2)), *members("x", 2), *members("y", 2))

    async def meanwhile() -> None:
        await scene.cluster.api.patch(PODS, ObjectKey("ns", "x1"), {"metadata": {"labels": {"new": "1"}}})
        for name, device in (("y0", "gpu-2"), ("y1", "gpu-3")):
            await allocated_by_another(scene, name, device)

    scene.transport.script("patch_status pods", Fault(), Fault(before=meanwhile))
    await asked_and_planned(scene, "x")
    assert [bool(scene.known(name).kept.node) for name in ("x0", "x1")] == [True, False]
    await scene.turns(1)
    assert scene.known("x0").kept == NOTHING_KEPT


async def kept_by_another(scene: Scene, name: str, on: str) -> None:
    """Another replica writes what is kept for a pod of a gang."""
    await scene.nominator.keep(scene.known(name), Keeping(on, (DeviceId(DRIVER, on, "gpu-0"),)), in_gang=True)


async def allocated_by_another(scene: Scene, name: str, device: str = "gpu-3") -> None:
    """Another replica writes the allocation of a pod, and its bind goes on."""
    found = claim(f"{name}-c", allocated=[f"b/{device}"], at="b", users=[name])["status"]
    await scene.cluster.api.patch_status(CLAIMS, ObjectKey("ns", f"{name}-c"), {"status": found})


async def asked_and_planned(scene: Scene, gang: str) -> None:
    for name in scene.pending():
        if name.startswith(gang):
            scene.filter(name)
    await scene.turns(1)
