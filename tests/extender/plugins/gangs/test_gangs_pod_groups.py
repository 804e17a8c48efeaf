"""PodGroups of Kubernetes are gangs: from the rejected pods to the bound ones, in a cluster in memory."""

from typing import Any

import pytest

from extender.kube.api import ObjectKey
from extender.kube.resources import POD_GROUPS
from extender.plugins.gangs.task import SEEN_SECONDS
from tests.extender.plugins.gangs.scenes import Scene, member, members, nodes
from tests.extender.plugins.preemption.scenes import Scene as Preempting
from tests.extender.plugins.preemption.scenes import runs, waits
from tests.kit.clusters import GPU, Object, local_slice, node
from tests.kit.objects.parts import api_object


def pod_group(name: str, size: int | None, *, topology: str = "") -> Object:
    """A PodGroup; a size of None: its pods need not run together."""
    policy: Object = {"basic": {}} if size is None else {"gang": {"minCount": size}}
    spec: Object = {"schedulingPolicy": policy}
    if topology:
        spec["schedulingConstraints"] = {"topology": [{"key": topology}]}
    return api_object("PodGroup", name, apiVersion="scheduling.k8s.io/v1beta1", namespace="ns", spec=spec)


def grouped(group: str, number: int, **more: Any) -> list[Object]:
    """Pods of a PodGroup."""
    found = members(group, number, **more)
    for each in found:
        if each["kind"] == "Pod":
            each["metadata"]["annotations"] = {}
            each["spec"]["schedulingGroup"] = {"podGroupName": group}
    return found


async def test_a_pod_group_is_a_gang() -> None:
    scene = Scene(*nodes("ab"), pod_group("x", 2), pod_group("y", 2), *grouped("x", 2), *grouped("y", 2))
    await scene.run()
    assert sorted(map(len, (scene.bound("x"), scene.bound("y")))) == [0, 2]


@pytest.mark.parametrize(("of_group", "first"), [({"x": 0, "y": 5}, "y"), ({"x": 5, "y": 0}, "x"), ({}, "x")])
async def test_the_priority_of_a_pod_group_counts_and_not_that_of_its_pods(
    of_group: dict[str, int], first: str
) -> None:
    """As kube-scheduler 1.37 orders groups. Without one, as in 1.36, that of the pods counts."""
    groups = [pod_group(name, 2) for name in "xy"]
    for each in groups:
        if each["metadata"]["name"] in of_group:
            each["spec"]["priority"] = of_group[each["metadata"]["name"]]
    scene = Scene(*nodes("ab"), *groups, *grouped("x", 2, priority=1), *grouped("y", 2))
    await scene.run()
    assert [len(scene.bound(name)) for name in "xy"] == ([2, 0] if first == "x" else [0, 2])


async def test_pods_wait_for_their_pod_group() -> None:
    scene = Scene(*nodes("a"), *grouped("x", 1))
    assert scene.reason("x0") == "PodGroup x does not exist"
    await scene.cluster.api.create(POD_GROUPS, pod_group("x", 1))
    await scene.run()
    assert len(scene.bound("x")) == 1


async def test_a_pod_group_without_the_gang_policy_has_pods_that_are_on_their_own() -> None:
    scene = Scene(*nodes("a"), pod_group("x", None), *grouped("x", 2))
    await scene.schedule()
    assert len(scene.bound("x")) == 1


async def test_what_is_kept_is_given_back_if_the_pod_group_is_deleted() -> None:
    scene = Scene(*nodes("ab"), pod_group("x", 2), *grouped("x", 2))
    await scene.schedule()
    await scene.turns(1)
    assert scene.known("x0").kept.node
    await scene.cluster.api.delete(POD_GROUPS, ObjectKey("ns", "x"))
    await scene.turns(1)
    assert scene.known("x0").kept.node
    await scene.turns(1, seconds=SEEN_SECONDS + 1)
    assert not any(scene.known(f"x{number}").kept.node for number in range(2))


async def test_pods_take_what_is_kept_for_them_if_their_pod_group_is_no_gang_any_more() -> None:
    scene = Scene(*nodes("ab"), pod_group("x", 2), *grouped("x", 2))
    await scene.schedule()
    await scene.turns(1)
    kept = {name: scene.known(name).kept.node for name in ("x0", "x1")}
    await scene.cluster.api.delete(POD_GROUPS, ObjectKey("ns", "x"))
    await scene.cluster.api.create(POD_GROUPS, pod_group("x", None))
    await scene.turns(1, seconds=SEEN_SECONDS + 1)
    assert {name: scene.known(name).kept.node for name in kept} == kept
    await scene.schedule()
    assert scene.bound("x") == kept


PREEMPTING = {"a gang": (pod_group("x", 1), False), "no gang": (pod_group("x", None), True)}


@pytest.mark.parametrize(("group", "expected"), PREEMPTING.values(), ids=PREEMPTING)
async def test_a_pod_evicts_others_for_devices_if_its_pod_group_is(group: Object, *, expected: bool) -> None:
    waiting = waits("p")
    waiting[0]["spec"]["schedulingGroup"] = {"podGroupName": "x"}
    scene = Preempting.of(*runs("victim", "a/gpu-0", on="a"), *waiting, group)
    scene.filter("p")
    await scene.turns()
    assert bool(scene.known("p").kept.victims) == expected
    if expected:
        await scene.terminate()
        await scene.turns(1)
        assert scene.filter("p").passed == ("a",)


async def test_pods_beyond_the_smallest_number_follow_alone() -> None:
    scene = Scene(*nodes("abc"), pod_group("x", 2), *grouped("x", 4))
    await scene.schedule()
    await scene.turns()
    assert [bool(scene.known(f"x{number}").kept.node) for number in range(4)].count(True) == 2
    await scene.run()
    assert len(scene.bound("x")) == 3


async def test_pods_without_devices_count_in_a_pod_group() -> None:
    launcher = grouped("x", 3)[4]
    launcher["spec"]["resourceClaims"] = []
    scene = Scene(*nodes("ab"), pod_group("x", 3), *grouped("x", 2), launcher)
    await scene.run()
    assert len(scene.bound("x")) == 2
    await scene.end("x2")
    assert not scene.cluster.state.snapshot.gangs.companions


async def test_a_pod_group_shares_the_label_that_its_topology_names() -> None:
    raw = [node(name, labels={"rack": rack}) for name, rack in {"a": "1", "b": "2", "c": "2"}.items()]
    group = pod_group("x", 2, topology="rack")
    scene = Scene(GPU, *raw, *(local_slice(name) for name in "abc"), group, *grouped("x", 2))
    await scene.run()
    assert sorted(scene.bound("x").values()) == ["b", "c"]


async def test_a_pod_group_and_a_group_of_annotations_of_one_name_are_two_gangs() -> None:
    other = [*member("p", "x", 1)]
    scene = Scene(*nodes("abc"), pod_group("x", 2), *grouped("x", 2), *other)
    await scene.run()
    assert len(scene.bound("x")) == 3


async def test_pods_are_woken_if_they_need_not_wait_for_each_other_any_more() -> None:
    scene = Scene(*nodes("a"), pod_group("x", 2), *grouped("x", 1))
    assert "waiting for the pods" in scene.reason("x0")
    before = scene.known("x0").resource_version
    await scene.turns(1)
    assert scene.known("x0").resource_version == before
    await scene.cluster.api.delete(POD_GROUPS, ObjectKey("ns", "x"))
    await scene.cluster.api.create(POD_GROUPS, pod_group("x", None))
    await scene.turns(1)
    assert scene.known("x0").resource_version != before, "its scheduler sees a new condition"
    assert scene.filter("x0").passed
