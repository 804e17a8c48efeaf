"""Gangs from the rejected pods to the bound ones, in a cluster in memory."""

from dataclasses import replace

import pytest

from allocator import Limits
from extender.cluster.objects.pods import GROUP, GROUP_SIZE, KEPT
from extender.framework.decisions.verdict import UNKNOWN_NODE, Reasons
from extender.framework.filter import Code, FilterResult
from extender.framework.task import Rejection
from extender.kube.api import ApiError, ObjectKey
from extender.kube.resources import CLAIMS, NODES, PODS
from extender.plugins.gangs.gang import GANG
from extender.plugins.gangs.task import KEPT_SECONDS, SEEN_SECONDS
from tests.extender.plugins.gangs.scenes import Scene, member, members, nodes
from tests.kit.clusters import DRIVER, GPU, Object, claim, local_slice, node, pod, request
from tests.kit.servers.memory import Fault


async def test_the_pods_of_a_gang_get_devices_together() -> None:
    scene = Scene(*nodes("abc"), *members("x", 3))
    await scene.schedule()
    assert scene.bound() == {}
    await scene.turns()
    await scene.schedule()
    assert sorted(scene.bound().values()) == ["a", "b", "c"]


async def test_no_pod_of_a_gang_is_bound_if_devices_for_one_of_them_are_missing() -> None:
    scene = Scene(*nodes("ab"), *members("x", 3))
    await scene.run()
    assert scene.bound() == {}
    assert scene.reason("x0") == "waiting for devices for 3 pods of group x together"


async def test_a_gang_waits_for_its_pods() -> None:
    scene = Scene(*nodes("abc"), *members("x", 3)[:4])
    await scene.run()
    assert scene.reason("x0") == "waiting for the pods of group x: 2 of 3 are there"
    assert scene.bound() == {}


async def test_of_two_gangs_that_want_the_same_devices_one_gets_all() -> None:
    scene = Scene(*nodes("abcd"), *members("x", 3), *members("y", 3))
    await scene.run()
    assert sorted(map(len, (scene.bound("x"), scene.bound("y")))) == [0, 3]


async def test_the_other_gang_follows_when_devices_are_free() -> None:
    scene = Scene(*nodes("abc"), *members("x", 3), *members("y", 3))
    await scene.run()
    assert scene.bound("y") == {}
    await scene.end("x0", "x1", "x2")
    await scene.run()
    assert len(scene.bound("y")) == 3


BAD = {
    "no size": ({GROUP: "x"}, f"annotation {GROUP_SIZE} of the pod: it is missing, but {GROUP} is set"),
    "no name": ({GROUP_SIZE: "2"}, f"annotation {GROUP} of the pod: it has no name, but {GROUP_SIZE} is set"),
    "a word": (
        {GROUP: "x", GROUP_SIZE: "two"},
        f'annotation {GROUP_SIZE} of the pod: "two" is not a number from 1 to 1024',
    ),
    "zero": ({GROUP: "x", GROUP_SIZE: "0"}, f'annotation {GROUP_SIZE} of the pod: "0" is not a number from 1 to 1024'),
    "too large": (
        {GROUP: "x", GROUP_SIZE: "1025"},
        f'annotation {GROUP_SIZE} of the pod: "1025" is not a number from 1 to 1024',
    ),
}


@pytest.mark.parametrize(("annotations", "reason"), BAD.values(), ids=BAD)
async def test_annotations_that_cannot_be_used_are_named(annotations: dict[str, str], reason: str) -> None:
    raw = [*nodes("a"), *members("x", 1)]
    raw[-2]["metadata"]["annotations"] = annotations
    scene = Scene(*raw)
    assert scene.reason("x0") == reason
    await scene.turns()
    assert await scene.bind("x0", "a") == reason
    assert not scene.known("x0").kept.node


async def test_one_pod_with_a_bad_annotation_keeps_its_gang_waiting() -> None:
    raw = members("x", 3)
    raw[0]["metadata"]["annotations"][GROUP_SIZE] = "two"
    scene = Scene(*nodes("abc"), *raw)
    await scene.run()
    problem = f'annotation {GROUP_SIZE} of the pod: "two" is not a number from 1 to 1024'
    assert scene.reason("x0") == problem
    assert scene.reason("x1") == f"pod x0 of the group: {problem}"
    assert scene.bound() == {}
    assert not any(scene.known(f"x{number}").kept.node for number in range(3))


async def test_pods_of_one_gang_agree_on_its_size() -> None:
    scene = Scene(*nodes("abc"), *member("p", "x", 2), *member("q", "x", 3))
    await scene.run()
    assert scene.reason("p") == f"annotation {GROUP_SIZE}: the pods with the same {GROUP} have different sizes: 2, 3"


async def planned(*more: Object, size: int = 2, names: str = "ab") -> Scene:
    """Devices are kept for all pods of a gang, and no pod is bound yet."""
    scene = Scene(*nodes(names), *members("x", size), *more)
    await scene.schedule(f"x{number}" for number in range(size))
    await scene.turns()
    assert all(scene.known(f"x{number}").kept.node for number in range(size))
    return scene


async def test_kept_devices_are_kept_from_other_pods_of_equal_priority() -> None:
    scene = await planned(pod("p", "p-c"), claim("p-c"))
    assert not scene.filter("p").passed
    await scene.schedule()
    assert len(scene.bound("x")) == 2


async def test_a_pod_of_a_gang_is_bound_to_no_node_but_its_own() -> None:
    scene = await planned(names="abc")
    other = ({"a", "b", "c"} - {scene.known("x0").kept.node}).pop()
    assert scene.filter("x0", names=[other]).unresolvable.in_words() == {
        other: f"devices are kept for the pod on node {scene.known('x0').kept.node}"
    }


async def test_no_pod_is_bound_while_its_gang_is_not_ready() -> None:
    scene = Scene(*nodes("ab"), *members("x", 2))
    assert "waiting for devices for 2 pods of group x together" in await scene.bind("x0", "a")


async def test_everything_is_given_back_if_not_all_pods_are_bound_in_time() -> None:
    scene = await planned(pod("p", "p-c"), claim("p-c"))
    await scene.turns(1, seconds=KEPT_SECONDS + 1)
    assert [scene.known(name).kept.node for name in ("x0", "x1")] == ["", ""]
    assert scene.filter("p").passed
    assert scene.counted("gangs_given_back_total") == 1


async def test_the_gang_is_planned_again_after_a_pause() -> None:
    scene = await planned()
    await scene.turns(1, seconds=KEPT_SECONDS + 1)
    await scene.turns(1, seconds=1)
    assert not scene.known("x0").kept.node
    await scene.run(seed=1)
    assert len(scene.bound("x")) == 2


async def test_bound_pods_stay_and_the_rest_is_planned_anew() -> None:
    scene = await planned(names="abc")
    await scene.schedule(["x0"])
    gone = scene.known("x1").kept.node
    await scene.cluster.api.delete(NODES, ObjectKey("", gone))
    await scene.turns(1)
    conditions = (await scene.cluster.api.get(PODS, ObjectKey("ns", "x1")))["status"]["conditions"]
    why = f"node {gone} is gone, or another claim or pod has a device that was kept for the pod"
    assert [each["message"] for each in conditions if each["type"] == KEPT] == [why]
    await scene.run()
    assert len(scene.bound("x")) == 2


async def test_a_process_that_starts_completes_what_another_one_has_begun() -> None:
    scene = await planned(size=3, names="abc")
    await scene.nominator.end(scene.known("x1"), "as if it was never written")
    scene.start()
    assert scene.reason("x0") == "waiting for devices for 3 pods of group x together"
    await scene.run()
    assert len(scene.bound("x")) == 3


async def test_a_process_that_starts_gives_back_what_cannot_be_completed() -> None:
    scene = await planned(pod("p", "p-c"), claim("p-c"), size=2)
    await scene.nominator.end(scene.known("x1"), "as if it was never written")
    await scene.schedule(["p"])
    scene.start()
    scene.filter("x0")
    await scene.turns(2, seconds=SEEN_SECONDS + 1)
    assert not scene.known("x0").kept.node
    assert scene.bound("x") == {}


async def test_a_write_that_fails_leaves_no_half_gang() -> None:
    scene = Scene(*nodes("ab"), *members("x", 2))
    scene.transport.script("patch_status pods", Fault(refused=ApiError(403, "Forbidden", "not allowed")))
    await scene.schedule()
    await scene.turns(1)
    assert [bool(scene.known(name).kept.node) for name in ("x0", "x1")].count(True) == 1
    assert scene.reason("x0") == scene.reason("x1") == "waiting for devices for 2 pods of group x together"
    await scene.run()
    assert len(scene.bound("x")) == 2


async def test_a_gang_is_not_ready_while_another_claim_holds_a_kept_device() -> None:
    scene = await planned()
    device = f"{scene.known('x1').kept.node}/gpu-0"
    taken = claim("thief", allocated=[device], at=scene.known("x1").kept.node, users=["thief"])
    await scene.cluster.api.create(CLAIMS, taken)
    await scene.cluster.api.patch_status(CLAIMS, ObjectKey("ns", "thief"), {"status": taken["status"]})
    assert scene.reason("x0") == "waiting for devices for 2 pods of group x together"
    await scene.run()
    assert scene.bound("x") == {}


async def test_another_node_is_chosen_if_the_scheduler_rejects_the_kept_one() -> None:
    scene = await planned(names="abc")
    refused = scene.known("x1").kept.node
    others = sorted({"a", "b", "c"} - {refused})
    for _ in range(3):
        scene.filter("x1", names=others)
        await scene.turns()
    assert scene.known("x1").kept.node in others
    await scene.schedule()
    assert len(scene.bound("x")) == 2


async def test_a_forgotten_nomination_is_written_again() -> None:
    scene = await planned(names="abc")
    await scene.cluster.api.patch_status(PODS, ObjectKey("ns", "x1"), {"status": {"nominatedNodeName": None}})
    scene.filter("x1", names=sorted({"a", "b", "c"} - {scene.known("x1").kept.node}))
    await scene.turns()
    raw = await scene.cluster.api.get(PODS, ObjectKey("ns", "x1"))
    assert raw["status"]["nominatedNodeName"] == scene.known("x1").kept.node


async def test_a_pod_that_was_asked_about_too_early_is_woken() -> None:
    scene = Scene(*nodes("ab"), *members("x", 2))
    await scene.schedule()
    await scene.turns(1)
    early = scene.known("x0")
    refused = FilterResult((), unresolvable=Reasons.alike(["a"], UNKNOWN_NODE), by={GANG: Code.NOWHERE})
    scene.task.on_rejected(Rejection(early, ["a"], refused, scene.cluster.state.snapshot))
    await scene.turns(1)
    raw = await scene.cluster.api.get(PODS, ObjectKey("ns", "x0"))
    assert "dra-extender/DevicesChanged" in {each["type"] for each in raw["status"]["conditions"]}


async def test_a_pod_with_a_scheduling_gate_is_not_there_yet() -> None:
    raw = members("x", 2)
    raw[0]["spec"]["schedulingGates"] = [{"name": "later"}]
    scene = Scene(*nodes("ab"), *raw)
    assert scene.reason("x1") == "waiting for the pods of group x: 1 of 2 are there"


async def test_a_further_pod_of_a_gang_that_runs_is_on_its_own() -> None:
    scene = Scene(*nodes("abc"), *members("x", 2))
    await scene.run()
    for each in member("x2", "x", 2):
        await scene.cluster.api.create(PODS if each["kind"] == "Pod" else CLAIMS, each)
    assert scene.filter("x2").passed == ("c",)


async def test_pods_of_a_gang_may_share_a_claim() -> None:
    raw = [each for number in range(2) for each in member(f"x{number}", "x", 2) if each["kind"] == "Pod"]
    for each in raw:
        each["spec"]["resourceClaims"] = [{"name": "shared", "resourceClaimName": "shared"}]
    scene = Scene(*nodes("ab"), *raw, claim("shared"))
    await scene.run()
    assert len(scene.bound("x")) == 2
    assert len(set(scene.bound("x").values())) == 1


LARGE = f"device.attributes['{DRIVER}'].large"


async def test_a_pod_that_takes_any_device_leaves_the_only_suitable_one_to_another_pod() -> None:
    published = local_slice("a", 2)
    published["spec"]["devices"][0]["attributes"] = {"large": {"bool": True}}
    published["spec"]["devices"][1]["attributes"] = {"large": {"bool": False}}
    pods = [*member("any", "x", 2), *member("large", "x", 2, request(selectors=[LARGE]))]
    scene = Scene(GPU, node("a"), published, *pods)
    await scene.run()
    assert len(scene.bound("x")) == 2


async def test_a_gang_shares_a_label_of_nodes_if_it_can() -> None:
    racks = {"a": "1", "b": "2", "c": "1", "d": "2", "e": "2"}
    raw = [node(name, labels={"rack": rack}) for name, rack in racks.items()]
    scene = Scene(GPU, *raw, *(local_slice(name) for name in racks), *members("x", 3, topology="rack"))
    await scene.run()
    assert sorted(scene.bound("x").values()) == ["b", "d", "e"]


async def test_a_gang_that_fits_in_no_domain_takes_several() -> None:
    racks = {"a": "1", "b": "2", "c": "1"}
    raw = [node(name, labels={"rack": rack}) for name, rack in racks.items()]
    scene = Scene(GPU, *raw, *(local_slice(name) for name in racks), *members("x", 3, topology="rack"))
    await scene.run()
    assert len(scene.bound("x")) == 3


async def test_a_gang_shares_an_attribute_of_devices_if_it_can() -> None:
    published = [local_slice(name, 2) for name in "ab"]
    for each in published:
        for device, fabric in zip(each["spec"]["devices"], ("one", "two"), strict=True):
            device["attributes"] = {"fabric": {"string": fabric}}
    held = claim("held", allocated=["a/gpu-0"], at="a", users=["someone"])
    scene = Scene(GPU, node("a"), node("b"), *published, held, *members("x", 2, topology=f"{DRIVER}/fabric"))
    await scene.run()
    devices = [device.device for name in ("x0", "x1") for device in scene.known(name).kept.devices]
    assert devices == ["gpu-1", "gpu-1"]


async def test_the_gang_of_higher_priority_goes_first() -> None:
    scene = Scene(*nodes("ab"), *members("x", 2), *members("y", 2, priority=5))
    await scene.run()
    assert (len(scene.bound("x")), len(scene.bound("y"))) == (0, 2)


async def test_metrics_count_gangs() -> None:
    scene = Scene(*nodes("ab"), *members("x", 2))
    await scene.run()
    assert scene.counted("gangs_planned_total") == scene.counted("gang_duration_seconds_count") == 1


async def test_the_successor_of_a_pod_of_a_gang_that_has_run_for_long_is_planned() -> None:
    scene = Scene(*nodes("abc"), *members("x", 2))
    await scene.run()
    await scene.turns()
    await scene.end("x1")
    await scene.turns()
    for each in member("x2", "x", 2):
        await scene.cluster.api.create(PODS if each["kind"] == "Pod" else CLAIMS, each)
    await scene.run()
    assert scene.known("x2").kept.node


async def test_a_further_pod_is_woken_when_its_gang_is_placed() -> None:
    scene = Scene(*nodes("abc"), *members("x", 2), *member("x2", "x", 2))
    for name in ("x0", "x1", "x2"):
        scene.filter(name)
    await scene.turns(1)
    (further,) = (name for name in scene.pending() if not scene.known(name).kept.node)
    await scene.schedule(name for name in scene.pending() if name != further)
    before = scene.known(further).resource_version
    await scene.turns(2)
    assert scene.known(further).resource_version != before, "its scheduler sees a new condition"
    await scene.schedule()
    assert len(scene.bound("x")) == 3


async def test_a_member_keeps_its_devices_when_a_limit_stops_the_search_on_its_node() -> None:
    scene = Scene(*nodes("ab", 2), *members("x", 2, request(count=2)))
    await scene.schedule()
    await scene.turns()
    kept = {name: scene.known(name).kept for name in ("x0", "x1")}
    assert all(each.devices for each in kept.values())
    quick, scene.solver = scene.solver, replace(scene.solver, limits=Limits(steps=1))
    assert scene.filter("x0").is_undecided
    woken = scene.known("x0").resource_version
    await scene.turns(1)
    assert {name: scene.known(name).kept for name in kept} == kept
    assert scene.known("x0").resource_version != woken, "its scheduler tries it again"
    scene.solver = quick
    await scene.run()
    assert sorted(scene.bound()) == ["x0", "x1"]
