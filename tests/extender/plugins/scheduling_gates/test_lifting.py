"""Whose gate is lifted, and when: fair turns of namespaces within bounds, and nobody whom no try helps."""

import asyncio
from itertools import pairwise

import pytest

from extender.cluster.objects.pods import GATE, GROUP, GROUP_SIZE
from extender.framework.bind_errors import BindError
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, DEVICE_QUOTAS, PODS, SLICES
from extender.plugins.scheduling_gates.gate_queue import SHOWN_SECONDS
from extender.plugins.scheduling_gates.shares import (
    BEHIND_SECONDS,
    EXTRA_SECONDS,
    FAILED_SHARE,
    FEW,
    FEW_HOPELESS,
    FEW_TRIALS,
    RETRY_SECONDS,
    TRY_SECONDS,
    Account,
    Bounds,
    Shares,
)
from extender.plugins.scheduling_gates.task import MOST_WRITES
from tests.extender.cluster.writes.scenes import FORBIDDEN
from tests.extender.plugins.scheduling_gates.scenes import (
    NOWHERE,
    Scene,
    crowd,
    gated,
    of,
    site,
    waiting,
)
from tests.kit.clusters import Object, claim, local_slice, node, pod, request
from tests.kit.objects.quotas import limited, quota
from tests.kit.servers.memory import Fault
from tests.kit.virtualtime import in_virtual_time


async def test_the_gate_of_a_pod_is_lifted_when_it_has_its_turn() -> None:
    scene = Scene(*site(), *waiting("p"))
    assert await scene.turns() == ["p"]
    assert (await scene.cluster.api.get(PODS, ObjectKey("ns", "p")))["spec"].get("schedulingGates") is None


async def test_a_pod_with_gates_of_others_keeps_ours_until_it_is_the_last_one() -> None:
    scene = Scene(*site(), *waiting("p", others=["example.com/quota"]))
    assert await scene.turns() == []
    ours = {"spec": {"schedulingGates": [{"name": GATE}]}}
    await scene.cluster.api.patch(PODS, ObjectKey("ns", "p"), ours)
    assert await scene.turns() == ["p"]


HELD: dict[str, tuple[list[dict[str, object]], str]] = {
    "its claim does not exist": ([gated(pod("p", "missing"))], "does not exist"),
    "its group is not complete": (
        [
            gated(
                {
                    **(raw := pod("p", "p-c")),
                    "metadata": {**raw["metadata"], "annotations": {GROUP: "g", GROUP_SIZE: "2"}},
                }
            ),
            claim("p-c"),
        ],
        "1 of 2 are there",
    ),
    "its namespace is over quota": ([*waiting("p"), quota(limited(devices=0))], "quota"),
}


@pytest.mark.parametrize("why", HELD)
async def test_a_pod_that_no_free_device_helps_stays_gated_and_is_told_why(why: str) -> None:
    objects, reason = HELD[why]
    scene = Scene(*site(), *objects)
    assert await scene.turns() == []
    assert reason in scene.first.told["p"]


async def test_a_pod_is_lifted_once_its_claim_is_there() -> None:
    scene = Scene(*site(), gated(pod("p", "late")))
    assert await scene.turns() == []
    await scene.cluster.api.create(CLAIMS, claim("late"))
    assert await scene.turns() == ["p"]
    assert scene.first.told["p"] == ""


def member(name: str, size: int) -> list[dict[str, object]]:
    raw, own = waiting(name)
    raw["metadata"]["annotations"] = {GROUP: "g", GROUP_SIZE: str(size)}
    return [raw, own]


async def test_the_pods_of_a_gang_are_lifted_together_once_all_are_there() -> None:
    scene = Scene(*site(), *(each for name in "abc" for each in member(name, 4)), bounds=Bounds(2, 1))
    assert await scene.turns() == []
    raw, own = member("d", 4)
    await scene.cluster.api.create(CLAIMS, own)
    await scene.cluster.api.create(PODS, raw)
    assert await scene.turns() == ["a", "b", "c", "d"]


@in_virtual_time
async def test_a_gang_of_more_pods_than_one_look_judges_is_lifted_whole() -> None:
    names = [f"p{number}" for number in range(200)]
    scene = Scene(*site("abcd", 64), *(each for name in names for each in member(name, 200)), bounds=Bounds(256, 64))
    assert await scene.turns(10) == sorted(names)


async def test_to_compare_a_large_gang_with_quotas_takes_no_long_time_of_the_loop() -> None:
    """What was not compared in time is lifted: filter finds it out."""
    names = [f"p{number}" for number in range(200)]
    gang = [each for name in names for each in member(name, 200)]
    scene = Scene(*site("abcd", 64), quota(limited(devices=1000)), *gang, bounds=Bounds(256, 64))
    scene.looks = 0.001
    times = [scene.now]

    async def other_work() -> None:
        while True:
            times.append(scene.now)
            await asyncio.sleep(0)

    beside = asyncio.create_task(other_work())
    while scene.at_gate():
        assert scene.now < 130.0
        await scene.first.task.tick()
        await asyncio.gather(*scene.first.task.unfinished)
        times.append(scene.now)
        assert max(later - before for before, later in pairwise(times)) < 0.1
        scene.now += 1.0
        times = [scene.now]
    beside.cancel()
    assert scene.lifted() == sorted(names)


async def test_the_first_pod_within_quota_is_lifted_and_the_others_wait_at_the_gate() -> None:
    scene = Scene(*site(), quota(limited(devices=1)), *crowd("p", 5))
    assert await scene.turns(5) == ["p0"]
    assert "quota" in scene.first.told["p4"]


async def test_a_pod_is_lifted_when_its_quota_has_room_again() -> None:
    scene = Scene(*site(), quota(limited(devices=0)), *waiting("p"))
    assert await scene.turns() == []
    raised = quota(limited(devices=1))
    await scene.cluster.api.patch(DEVICE_QUOTAS, ObjectKey("ns", raised["metadata"]["name"]), {"spec": raised["spec"]})
    assert await scene.turns() == ["p"]


async def test_lifted_pods_that_their_scheduler_rejects_take_no_quota_from_those_at_the_gate() -> None:
    scene = Scene(*site(), quota(limited(devices=1)), *waiting("first", NOWHERE), *waiting("second"))
    assert await scene.turns() == ["first"]
    await scene.reject("first")
    assert await scene.turns() == ["second"]


async def behind(*requests: Object, devices: int = 2) -> Scene:
    """Five pods that find no node, and a quota with room for one of them; the first one was rejected."""
    scene = Scene(*site(devices=devices), quota(limited(devices=1)), *crowd("p", 5, *requests))
    assert await scene.turns() == ["p0"]
    scene.first.learn("p0")
    await scene.reject("p0")
    return scene


async def test_a_pod_that_finds_no_node_waits_for_a_rejected_one_before_it_that_its_quota_has_room_for() -> None:
    """An autoscaler that sees both brings a node for each."""
    scene = await behind(NOWHERE)
    assert await scene.turns(20) == []
    await scene.delete("p0")
    assert await scene.turns(5) == ["p1"]


async def test_such_a_pod_does_not_wait_for_ever() -> None:
    scene = await behind(NOWHERE)
    assert await scene.turns(10, BEHIND_SECONDS / 12) == []
    assert await scene.turns(5, BEHIND_SECONDS / 12) == ["p1"]
    await scene.reject("p1")
    assert await scene.turns(10, BEHIND_SECONDS / 12) == []


async def test_a_pod_that_finds_a_node_waits_for_no_rejected_one() -> None:
    scene = await behind(NOWHERE)
    for each in waiting("fits"):
        await scene.cluster.api.create(CLAIMS if each["kind"] == "ResourceClaim" else PODS, each)
    scene.first.learn("fits")
    assert await scene.turns(5) == ["fits"]


async def test_a_pod_for_which_a_node_has_come_lets_none_of_its_kind_pass_while_its_quota_has_room_for_one() -> None:
    """Its scheduler tries the rejected pod again, and binds it to the new node."""
    scene = await behind(devices=0)
    await scene.join("c")
    scene.first.learn("p0")
    assert await scene.turns(30) == []
    await scene.allocate("p0", on="c")
    await scene.bind("p0", on="c")
    assert await scene.turns(30) == []


async def test_a_pod_of_a_kind_of_which_nothing_is_known_any_more_does_not_pass_a_rejected_one_either() -> None:
    scene = await behind(devices=0)
    await scene.join("c")
    assert await scene.turns(30) == []


def with_volume(raw: Object) -> Object:
    """A pod that waits for a volume, perhaps."""
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    return {**raw, "spec": {**raw["spec"], "volumes": [volume]}}


OTHERS: dict[str, tuple[Object, Object]] = {
    "the first needs more CPU": (pod("first", "first-c", resources={"cpu": "8"}), pod("second", "second-c")),
    "the first waits for a volume": (with_volume(pod("first", "first-c")), pod("second", "second-c")),
}
"""A rejected pod, and one that its scheduler may bind where it does not bind the first one."""


@pytest.mark.parametrize("why", OTHERS)
async def test_a_pod_waits_for_no_rejected_one_that_its_scheduler_may_refuse_for_reasons_of_its_own(why: str) -> None:
    pods = OTHERS[why]
    scene = Scene(*site(), quota(limited(devices=1)), *map(gated, pods), claim("first-c"), claim("second-c"))
    assert await scene.turns() == ["first"]
    scene.first.learn("first")
    await scene.reject("first")
    assert await scene.turns(4) == ["second"]


@pytest.mark.parametrize(("priority", "lifted"), [(0, []), (1, ["first"])])
@pytest.mark.parametrize("is_rejected", [False, True], ids=["lifted", "rejected"])
async def test_a_pod_waits_for_those_of_its_priority_that_were_lifted_before_it_however_old_it_is(
    priority: int, lifted: list[str], is_rejected: bool
) -> None:
    """Its scheduler tries them first. Of pods that were made in one second, any may be lifted first."""
    older = waiting("first", others=["example.com/quota"], priority=priority)
    scene = Scene(*site(devices=0), quota(limited(devices=1)), *older, *waiting("second"))
    assert await scene.turns() == ["second"]
    if is_rejected:
        await scene.reject("second")
    ours = {"spec": {"schedulingGates": [{"name": GATE}]}}
    await scene.cluster.api.patch(PODS, ObjectKey("ns", "first"), ours)
    assert await scene.turns(30) == lifted


async def test_a_pod_counts_against_its_quota_from_its_binding_on_also_if_its_claim_is_shown_later() -> None:
    """Another replica has bound it, and the watch of pods is ahead of the one of claims."""
    scene = Scene(*site(), quota(limited(devices=1)), *crowd("p", 5))
    assert await scene.turns() == ["p0"]
    await scene.bind("p0")
    assert await scene.turns() == []
    await scene.allocate("p0")
    assert await scene.turns(20) == []


async def test_a_bound_pod_without_a_claim_does_not_count_for_ever() -> None:
    scene = Scene(*site(), quota(limited(devices=1)), *crowd("p", 3))
    assert await scene.turns() == ["p0"]
    await scene.bind("p0")
    assert await scene.turns(2, SHOWN_SECONDS) == ["p1"]


async def test_a_bound_pod_that_goes_counts_no_more() -> None:
    scene = Scene(*site(), quota(limited(devices=1)), *crowd("p", 3))
    assert await scene.turns() == ["p0"]
    await scene.bind("p0")
    assert await scene.turns() == []
    await scene.delete("p0")
    assert await scene.turns() == ["p1"]


async def test_of_refused_pods_and_a_good_one_the_good_one_alone_is_visible() -> None:
    """An autoscaler simulates nodes for all pods that it sees."""
    refused = of("poor", *crowd("refused", 5))
    scene = Scene(*site(), quota(limited(devices=0), namespace="poor"), *refused, *waiting("good"))
    assert await scene.turns(5) == ["good"]


# --- shares ------------------------------------------------------------------------------------------------------


async def test_no_more_pods_are_lifted_than_the_bound_allows() -> None:
    scene = Scene(*site(devices=64), *crowd("p", 40))
    scene.first.learn("p0")
    assert len(await scene.turns(5)) == 16
    await scene.bind("p0", "p1")
    assert await scene.turns() == ["p16", "p17"]


async def test_namespaces_have_equal_shares_of_the_bound() -> None:
    many = [each for number in range(4) for each in of(f"ns-{number}", *crowd(f"p{number}-", 20))]
    scene = Scene(*site("abcdefgh", devices=8), *many)
    scene.first.learn("p0-0", namespace="ns-0")
    await scene.turns(3)
    assert [len(scene.lifted(f"ns-{number}")) for number in range(4)] == [4, 4, 4, 4]


async def test_a_pod_of_each_namespace_is_lifted_in_one_look_however_long_it_takes_to_see_who_is_next() -> None:
    many = [each for number in range(12) for each in of(f"ns-{number}", *waiting(f"p{number}"))]
    kinds = [each for number in range(60) for each in of("many", *waiting(f"q{number}", request(count=number + 1)))]
    scene = Scene(*site(devices=8), *many, *kinds, bounds=Bounds(256, 64))
    await scene.turns(1)  # the lease is taken
    scene.looks = 0.0002
    await scene.turns(1)
    assert not [name for name in scene.at_gate() if name.startswith("p")]


async def test_a_namespace_that_comes_late_gets_a_few_at_once() -> None:
    scene = Scene(*site(devices=64), *crowd("p", 40))
    scene.first.learn("p0")
    await scene.turns(3)
    for each in of("late", *crowd("q", 10)):
        await scene.cluster.api.create(CLAIMS if each["kind"] == "ResourceClaim" else PODS, each)
    await scene.turns(1)
    assert len(scene.lifted("late")) == FEW


async def test_within_a_namespace_priority_comes_before_age() -> None:
    scene = Scene(
        *site(devices=8),
        *crowd("old", 4),
        *waiting("urgent", priority=5, created="2026-01-02T00:00:00Z"),
        bounds=Bounds(1, 1),
    )
    await scene.turns(1)  # the lease is taken
    scene.first.learn("old0")
    await scene.turns(1)
    assert "urgent" in scene.lifted()


async def test_pods_that_find_a_node_come_before_pods_that_find_none() -> None:
    scene = Scene(*site(), *crowd("hopeless", 20, NOWHERE), *waiting("good", created="2026-02-01T00:00:00Z"))
    scene.first.learn("hopeless0", "good")
    await scene.turns(2)
    assert "good" in scene.lifted()
    assert len(scene.lifted()) == 1 + 4


async def test_hopeless_pods_of_one_namespace_leave_the_others_their_share() -> None:
    others = [each for number in range(3) for each in of(f"ns-{number}", *waiting(f"q{number}"))]
    scene = Scene(*site(), *crowd("p", 100, NOWHERE), *others)
    scene.first.learn("p0")
    lifted = await scene.turns(3)
    assert {"q0", "q1", "q2"} <= set(lifted)
    assert len([name for name in lifted if name.startswith("p")]) <= 4


async def test_a_kind_of_which_a_pod_was_rejected_counts_as_hopeless_for_a_while() -> None:
    scene = Scene(*site(), *crowd("p", 30, NOWHERE))
    assert len(await scene.turns()) == FEW
    await scene.reject("p0", "p1", "p2", "p3")
    assert await scene.turns() == []


async def test_after_a_rejection_the_next_pod_is_lifted_as_soon_as_a_node_is_known_for_it() -> None:
    scene = Scene(*site(devices=8), *crowd("p", 12), bounds=Bounds(16, 1))
    await scene.turns()
    await scene.reject("p0")
    assert await scene.turns(1, 0.1) == [], "as hopeless pods, no more than one"
    scene.first.learn("p4")
    assert len(await scene.turns(1, 1.0)) == 8, "as others"


async def test_a_large_node_that_changes_all_the_time_does_not_hide_the_nodes_that_take_a_pod() -> None:
    large = local_slice("b", 1100)
    scene = Scene(*site("a", devices=8), node("b"), large, *crowd("p", 12))
    scene.first.learn("p0")
    large["spec"]["devices"][0]["attributes"] = {"version": {"int": 1}}
    await scene.cluster.api.patch(SLICES, ObjectKey("", "slice-b"), {"spec": large["spec"]})
    assert len(await scene.turns()) == 8, "as many as one known node may take"


async def test_failed_tries_of_a_namespace_cost_its_share_of_the_schedulers_time_and_no_more() -> None:
    """A rejected pod is tried again each eight seconds: of 200 hopeless pods, few are lifted."""
    scene = Scene(*site(), *crowd("p", 200, NOWHERE), bounds=Bounds(256, 64))
    scene.first.learn("p0")
    lifted, tries = list[str](), 0
    for second in range(80):
        new = await scene.turns(1)
        await scene.reject(*new)
        tries += len(new) + scene.first.fail(*lifted[second % 8 :: 8])
        lifted += new
    assert 0.8 * 80 * FAILED_SHARE < tries * TRY_SECONDS < 2.5 * 80 * FAILED_SHARE
    for each in of("other", *crowd("q", 3)):
        await scene.cluster.api.create(CLAIMS if each["kind"] == "ResourceClaim" else PODS, each)
    await scene.turns(1, 0.1)
    assert len(scene.lifted("other")) == 3, "nobody else pays for them"


async def test_of_pods_that_nobody_knows_a_node_for_so_many_are_out_as_their_tries_may_cost() -> None:
    """Before the first of them is rejected, nothing has been paid for; afterwards, all of them are tried for ever."""
    kinds = [each for number in range(60) for each in waiting(f"p{number:02}", request(count=number + 3))]
    scene = Scene(*site(), *kinds, bounds=Bounds(256, FEW))
    most = FAILED_SHARE * RETRY_SECONDS / TRY_SECONDS + FEW  # a few are out as hopeless ones in any case
    lifted = await scene.turns(3, 0.2)
    assert FEW < len(lifted) <= most
    await scene.reject(*lifted)
    assert await scene.turns(3, 0.2) == []
    await scene.delete(*lifted)
    assert FEW <= len(await scene.turns(2, EXTRA_SECONDS)) <= most + 2, "those that are gone cost nothing"


async def test_a_pod_that_fits_is_lifted_at_once_whatever_tries_of_its_namespace_have_cost() -> None:
    scene = Scene(*site(devices=8), *crowd("p", 40, NOWHERE))
    scene.first.learn("p0")
    lifted = await scene.turns()
    await scene.reject(*lifted)
    await scene.turns(1, 0.1)
    for _ in range(9):
        scene.first.fail(*lifted)
    for each in reversed(waiting("good", created="2026-02-01T00:00:00Z")):
        await scene.cluster.api.create(CLAIMS if each["kind"] == "ResourceClaim" else PODS, each)
    assert await scene.turns(2, 0.1) == [], "it is not known where it fits"
    scene.first.learn("good")
    assert "good" in await scene.turns(1, 10.0)


async def test_if_many_namespaces_have_pods_of_which_nothing_is_known_two_of_each_are_out() -> None:
    """All of these may be rejected, and a scheduler tries all rejected pods in a row."""

    def crowd_of(name: str) -> list[Object]:
        return of(
            name, *(each for number in range(9) for each in waiting(f"{name}{number}", request(count=number + 3)))
        )

    names = "abcdef"
    scene = Scene(*site(), *(each for name in names for each in crowd_of(name)), bounds=Bounds(256, FEW))
    await scene.turns(3, 0.2)
    out = {name: scene.lifted(name) for name in names}
    assert {len(pods) for pods in out.values()} == {FEW_TRIALS + FEW_HOPELESS}
    for name, pods in out.items():
        await scene.reject(*pods, namespace=name)
    await scene.turns(3, 0.2)
    assert {name: scene.lifted(name) for name in names} == out


@pytest.mark.parametrize(("rejected", "minutes"), [(0, 1), (FEW, 1), (FEW + 1, 2), (FEW + 3, 8), (FEW + 50, 64)])
def test_while_its_tries_cost_too_much_a_namespace_gets_further_pods_ever_more_rarely(
    rejected: int, minutes: int
) -> None:
    shares = Shares(Bounds(256, 64), total=0, number=1)
    assert shares.extra_seconds(Account(rejected=rejected, failed=1.0)) == 60 * minutes
    assert shares.extra_seconds(Account(rejected=rejected)) == EXTRA_SECONDS


async def test_failed_binds_count_as_failed_tries() -> None:
    scene = Scene(*site(), *crowd("p", 200), bounds=Bounds(256, 64))
    lifted = await scene.turns()
    for _ in range(20):
        scene.first.task.on_bind_failed(f"uid-{lifted[0]}", "a", BindError("not today"))
    for each in of("ns", *crowd("q", 3, request(count=2))):
        await scene.cluster.api.create(CLAIMS if each["kind"] == "ResourceClaim" else PODS, each)
    assert len(await scene.turns(1, 0.1)) == FEW_HOPELESS


async def test_one_more_pod_is_lifted_from_time_to_time_whatever_the_share_is() -> None:
    scene = Scene(*site(), *crowd("p", 30, NOWHERE))
    await scene.turns()
    await scene.reject("p0", "p1", "p2", "p3")
    assert await scene.turns(1, seconds=EXTRA_SECONDS) == ["p4"]
    assert await scene.turns(1) == []


async def test_between_namespaces_priority_comes_first() -> None:
    urgent = of("urgent", *waiting("u", priority=5))
    scene = Scene(*site(), *crowd("p", 3), *urgent, bounds=Bounds(1, 1))
    order: list[str] = []
    scene.first.transport.on_write = lambda what: order.append(str(what))  # type: ignore[attr-defined]
    lifted = await scene.turns(2)
    assert "u" in lifted


# --- safety ------------------------------------------------------------------------------------------------------


async def test_one_replica_lifts_and_another_one_takes_over_when_it_is_gone() -> None:
    scene = Scene(*site(), *waiting("p"))
    second = scene.replica()
    await scene.first.turns(1)
    assert await second.turns(2) == []
    assert await second.turns(5) == ["p"]


async def test_a_pod_that_has_changed_since_it_was_seen_is_lifted_at_the_next_turn() -> None:
    scene = Scene(*site(), *waiting("p"))
    await scene.turns(1)
    seen = scene.state.snapshot.pods[ObjectKey("ns", "p")]
    await scene.cluster.api.patch(PODS, seen.key, {"metadata": {"labels": {"changed": "yes"}}})
    assert await scene.turns(2) == ["p"]


async def test_a_write_that_is_refused_delays_no_other_namespace() -> None:
    scene = Scene(*site(), *of("bad", *waiting("b")))
    scene.first.transport.script("patch pods", *[Fault(refused=FORBIDDEN)] * 9)
    assert await scene.turns(3, 0.2) == []
    scene.first.transport.faults.clear()
    for each in reversed(waiting("p")):
        await scene.cluster.api.create(PODS if each["kind"] == "Pod" else CLAIMS, each)
    assert await scene.turns(1, 0.2) == ["p"]
    assert await scene.turns(10, 1.0) == ["b"]


@in_virtual_time
async def test_slow_writes_of_one_namespace_delay_no_other_one() -> None:
    """As with a webhook that is slow there alone."""
    many = [each for number in range(40) for each in of("bad", *waiting(f"b{number}", request(count=number + 1)))]
    scene = Scene(*site(), *many, bounds=Bounds(64, 64))
    scene.first.transport.admission = {"bad": 60.0}
    for _ in range(3):
        scene.now += 0.2
        await scene.first.task.tick()
    for each in reversed(waiting("p")):
        await scene.cluster.api.create(PODS if each["kind"] == "Pod" else CLAIMS, each)
    scene.now += 0.2
    await scene.first.task.tick()
    assert scene.lifted() == ["p"]
    assert len(scene.first.task.unfinished) <= MOST_WRITES
    for write in scene.first.task.unfinished:
        write.cancel()
