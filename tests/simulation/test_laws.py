"""Laws about what is kept, who is evicted, gangs, and one process alone: a judge sees each of them broken."""

import pickle
from typing import Any

import pytest

from allocator import DeviceId
from extender.cluster.objects.pods import KEPT, Keeping
from extender.cluster.writes.pods import DEVICES_CHANGED
from extender.config.settings import Settings
from extender.kube.api import ObjectKey, key_of
from extender.kube.resources import CLAIMS, DEVICE_QUOTAS, PODS, RESOURCES
from tests.corpus.machines import raw
from tests.kit import virtualtime
from tests.kit.clusters import DRIVER, Object, claim, device_class, local_slice, node, pod
from tests.kit.servers.memory import memory_api
from tests.simulation.fitting import fits
from tests.simulation.invariants import Judge, ViolationError
from tests.simulation.kept import Moment
from tests.simulation.mutants import MUTANTS, NEEDED


def _key(name: str) -> ObjectKey:
    return ObjectKey("ns", name)


def world(*more: Object) -> Any:
    """A node with three devices, and what else there is."""
    return memory_api(node("n"), local_slice("n", 3), device_class(), *more)


def quota(devices: int) -> Object:
    return raw(
        "DeviceQuota",
        "q",
        namespace="ns",
        spec={"limits": [{"name": "gpu", "deviceClassName": "gpu", "devices": devices}]},
    )


async def keep(api: Any, name: str, device: str, *victims: str) -> None:
    """Keep a device for a pod."""
    kept = Keeping("n", (DeviceId(DRIVER, "n", device),), victims)
    conditions = [{"type": KEPT, "status": "True", "reason": "Preempting", "message": kept.message}]
    await api.patch_status(PODS, _key(name), {"status": {"conditions": conditions}})


async def allocate(api: Any, name: str, device: str, user: str, **more: Any) -> None:
    found = claim(name, allocated=[f"n/{device}"], at="n", users=[user])["status"]
    found["allocation"]["devices"]["results"][0].update(more)
    await api.patch_status(CLAIMS, _key(name), {"status": found})


async def bind(api: Any, name: str, device: str) -> None:
    """Bind a pod with a device for its claim, which has the pod's name and ``-c``."""
    await allocate(api, f"{name}-c", device, name)
    await api.bind_pod(_key(name), "n", uid=f"uid-{name}")


def wanting(name: str, **more: Any) -> list[Object]:
    return [pod(name, f"{name}-c", **more), claim(f"{name}-c")]


def law(judge: Judge) -> str:
    return judge.violation.law if judge.violation else ""


def test_a_process_that_plays_histories_can_send_what_was_broken() -> None:
    sent = pickle.loads(pickle.dumps(ViolationError("no device twice", "gpu-0")))  # noqa: S301 - our own
    assert (sent.law, str(sent)) == ("no device twice", "no device twice: gpu-0")


@virtualtime.in_virtual_time
async def test_one_process_does_not_allocate_a_device_twice() -> None:
    api = world(*wanting("p"), *wanting("q"))
    judge = Judge(api, is_sole=True)
    await allocate(api, "p-c", "gpu-0", "p")
    assert not law(judge)
    await allocate(api, "q-c", "gpu-0", "q")
    assert law(judge) == "one process never collides with itself"


@virtualtime.in_virtual_time
@pytest.mark.parametrize(
    ("priority", "device", "found"), [(0, "gpu-0", True), (0, "gpu-1", False), (9, "gpu-0", False)]
)
async def test_what_is_kept_goes_to_no_pod_that_is_not_more_important(priority: int, device: str, found: bool) -> None:
    api = world(*wanting("p", priority=5), *wanting("q", priority=priority))
    judge = Judge(api)
    await keep(api, "p", "gpu-0")
    judge.look()
    await bind(api, "q", device)
    assert (law(judge) == "what is kept is given to no other pod") is found


@virtualtime.in_virtual_time
async def test_what_is_kept_for_a_shared_claim_goes_to_each_pod_that_uses_the_claim() -> None:
    other = pod("q", "p-c")
    api = world(*wanting("p"), other)
    judge = Judge(api)
    await keep(api, "p", "gpu-0")
    judge.look()
    await allocate(api, "p-c", "gpu-0", "q")
    await api.bind_pod(ObjectKey("ns", "q"), "a", uid="uid-q")
    assert not law(judge)


@virtualtime.in_virtual_time
@pytest.mark.parametrize(("most", "found"), [(1, True), (2, False)])
async def test_what_is_kept_counts_in_a_quota(most: int, found: bool) -> None:
    api = world(*wanting("p"), *wanting("q"), quota(most))
    time = [0.0]
    judge = Judge(api, now=lambda: time[0])
    await bind(api, "p", "gpu-0")
    await keep(api, "q", "gpu-1")
    for time[0] in (1.0, 12.0):
        judge.look()
    assert (law(judge) == "no DeviceQuota is exceeded by what is kept") is found


@virtualtime.in_virtual_time
@pytest.mark.parametrize(("devices", "found"), [(1, True), (2, False)], ids=["its status is", "people lower it"])
async def test_a_quota_may_be_exceeded_once_people_lower_it_and_not_once_its_status_is_written(
    devices: int, found: bool
) -> None:
    api = world(*wanting("p"), *wanting("q"), quota(devices))
    time = [0.0]
    judge = Judge(api, now=lambda: time[0])
    await bind(api, "p", "gpu-0")
    await keep(api, "q", "gpu-1")
    judge.look()
    limit = {"name": "gpu", "deviceClassName": "gpu", "devices": 1}
    patch = {"status": {"claims": 1}} if devices == 1 else {"spec": {"limits": [limit]}}
    await (api.patch_status if devices == 1 else api.patch)(DEVICE_QUOTAS, _key("q"), patch)
    for time[0] in (6.0, 20.0):
        judge.look()
    assert (law(judge) == "no DeviceQuota is exceeded by what is kept") is found


@virtualtime.in_virtual_time
@pytest.mark.parametrize(("most", "found"), [(0, True), (1, False)])
async def test_nobody_is_evicted_for_a_pod_that_its_quota_keeps_from_running(most: int, found: bool) -> None:
    api = world(*wanting("low"), *wanting("high", priority=5), quota(most))
    judge = Judge(api)
    await bind(api, "low", "gpu-0")
    judge.violation = None
    await keep(api, "high", "gpu-0", "uid-low")
    judge.look()
    judge.evicts(_key("low"))
    assert (law(judge) == "no victim in vain") is found


def test_a_pod_does_not_fit_where_a_device_is_held_for_a_pod_that_was_woken_for_it() -> None:
    told = [{"type": DEVICES_CHANGED, "status": "True", "message": "there may be devices now"}]
    there = [
        node("n"),
        local_slice("n", 1),
        device_class(),
        *wanting("woken", priority=5),
        *wanting("waits", priority=5),
    ]
    objects: dict[str, dict[ObjectKey, Any]] = {kind: {} for kind in RESOURCES}
    for each in there:
        objects[each["kind"]][key_of(each)] = each
    waits = objects[PODS.kind][_key("waits")]
    assert fits(Moment(0.0, objects), waits, ["n"], Settings(), lambda: 0.0)
    objects[PODS.kind][_key("woken")]["status"]["conditions"] = told
    assert not fits(Moment(0.0, objects), waits, ["n"], Settings(), lambda: 0.0)


@virtualtime.in_virtual_time
async def test_nobody_is_evicted_for_a_pod_that_fits_without() -> None:
    api = world(*wanting("low"), *wanting("high", priority=5))
    judge = Judge(api, fits=lambda _moment, each: each["metadata"]["name"] == "high")
    await bind(api, "low", "gpu-0")
    await keep(api, "high", "gpu-0", "uid-low")
    judge.look()
    judge.evicts(_key("low"))
    assert law(judge) == "no victim without need"


@virtualtime.in_virtual_time
async def test_nobody_is_evicted_beyond_the_caps() -> None:
    api = world(*wanting("a"), *wanting("b"), *wanting("high", priority=5))
    judge = Judge(api, caps=(1, 9))
    for name, device in (("a", "gpu-0"), ("b", "gpu-1")):
        await bind(api, name, device)
    await keep(api, "high", "gpu-0", "uid-a", "uid-b")
    judge.evicts(_key("a"))
    assert not law(judge)
    judge.evicts(_key("b"))
    assert law(judge) == "no victim beyond the caps"


@virtualtime.in_virtual_time
async def test_a_pod_of_a_gang_waits_until_there_are_devices_for_all() -> None:
    said = {"dra-extender.dev/group": "g", "dra-extender.dev/group-size": "2"}
    members = [*wanting("p"), *wanting("q")]
    for each in (members[0], members[2]):
        each["metadata"]["annotations"] = said
    api = world(*members)
    judge = Judge(api)
    await bind(api, "p", "gpu-0")
    assert law(judge) == "no pod of a gang is bound before there are devices for all"


@virtualtime.in_virtual_time
async def test_a_claim_of_a_pod_that_waits_is_held() -> None:
    api = world(*wanting("p"))
    judge = Judge(api)
    await allocate(api, "p-c", "gpu-0", "p")
    assert list(judge.held_for_waiting()) == ["ns/p-c"]
    await api.bind_pod(_key("p"), "n", uid="uid-p")
    assert judge.held_for_waiting() == {}


@virtualtime.in_virtual_time
async def test_a_device_that_is_still_being_attached_for_a_pod_that_waits_is_not_held_in_vain() -> None:
    api = world(*wanting("p"))
    judge = Judge(api)
    await allocate(api, "p-c", "gpu-0", "p", bindingConditions=["example.com/attached"])
    assert judge.held_for_waiting() == {}
    attached = {"driver": DRIVER, "pool": "n", "device": "gpu-0", "conditions": []}
    await api.patch_status(CLAIMS, _key("p-c"), {"status": {"devices": [attached]}})
    assert list(judge.held_for_waiting()) == ["ns/p-c"]


def test_twenty_mistakes_are_planted() -> None:
    assert len(MUTANTS) >= 20
    assert NEEDED.keys() <= MUTANTS.keys()


@virtualtime.in_virtual_time
@pytest.mark.parametrize(("kept", "found"), [(("p", "q"), False), (("p",), True)])
async def test_a_gang_whose_pod_is_made_again_after_all_were_served_may_be_bound(
    kept: tuple[str, ...], found: bool
) -> None:
    api = world(*wanting("p"), *wanting("q"))
    for name in ("p", "q"):
        said = {"dra-extender.dev/group": "gang", "dra-extender.dev/group-size": "2"}
        await api.patch(PODS, _key(name), {"metadata": {"annotations": said}})
    judge = Judge(api)
    for place, name in enumerate(kept):
        await keep(api, name, f"gpu-{place}")
    again = await api.get(PODS, _key("q"))
    await api.delete(PODS, _key("q"))
    metadata = {name: again["metadata"][name] for name in ("namespace", "name", "annotations")}
    await api.create(PODS, {**again, "metadata": metadata, "status": {"phase": "Pending"}})
    await bind(api, "p", "gpu-0")
    assert law(judge) == ("no pod of a gang is bound before there are devices for all" if found else "")
