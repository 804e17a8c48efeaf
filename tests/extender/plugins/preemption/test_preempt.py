"""Preempt: each victim makes room, and pods whose devices are needed join the victims."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import count

import pytest

from extender.framework.victims import Victims
from extender.plugins.preemption.plugin import choose_victims
from tests.extender.plugins.gangs.scenes import member
from tests.extender.plugins.preemption.scenes import runs
from tests.kit.clusters import (
    DRIVER,
    GPU,
    Object,
    budget,
    claim,
    local_slice,
    network_slice,
    node,
    parsed,
    pod,
    request,
    snapshot_of,
    solver,
)
from tests.kit.objects.quotas import limited, quota

MINE = pod("p", "c", priority=100)


def chosen(asked: Object, victims: Mapping[str, Victims], *objects: Object) -> Mapping[str, Victims]:
    return choose_victims(parsed(asked), victims, snapshot_of(*objects), solver())


def world(devices: int = 1, *, wants: int = 1, nodes: tuple[str, ...] = ("a",)) -> tuple[Object, ...]:
    slices = [each for name in nodes for each in (node(name), local_slice(name, devices))]
    return (GPU, *slices, claim("c", request(count=wants)))


GIVEN = {"a": Victims(("uid-cpu",), 2), "b": Victims(("uid-cpu-b",))}


def test_a_pod_without_devices_gets_the_victims_that_were_sent() -> None:
    assert chosen(pod("p", priority=9), GIVEN) is GIVEN


def test_a_pod_with_resources_of_a_device_plugin_gets_the_victims_that_were_sent() -> None:
    nodes = (node(name, allocatable={"example.com/foo": "1"}) for name in ("a", "b"))
    assert chosen(pod("p", resources={"example.com/foo": "1"}), GIVEN, *nodes) == GIVEN


def test_no_victim_helps_a_pod_with_a_resource_that_nobody_offers() -> None:
    assert chosen(pod("p", resources={"example.com/foo": "1"}), GIVEN, node("a"), node("b")) == {}


def test_victims_that_suffice_stay_as_they_are() -> None:
    assert chosen(MINE, GIVEN, *world(nodes=("a", "b"))) == GIVEN


def test_a_victim_that_frees_the_device_suffices() -> None:
    assert chosen(MINE, {"a": Victims(("uid-v",))}, *world(), *runs("v", "a/gpu-0", on="a")) == {
        "a": Victims(("uid-v",))
    }


def test_nodes_that_are_not_known_or_came_without_victims_are_left_out() -> None:
    assert chosen(MINE, {"new": Victims(("x",)), "a": Victims(())}, *world()) == {}


def test_a_node_where_the_claims_never_fit_is_dropped() -> None:
    important = runs("boss", "b/gpu-0", on="b", priority=100)
    assert set(chosen(MINE, GIVEN, *world(nodes=("a", "b")), *important)) == {"a"}


def test_whose_devices_are_needed_joins_the_victims() -> None:
    got = chosen(MINE, GIVEN, *world(), *runs("v", "a/gpu-0", on="a"))
    assert got == {"a": Victims(("uid-cpu", "uid-v"), 2)}


def test_a_pod_on_another_node_is_never_added() -> None:
    objects = (GPU, node("a"), node("b"), network_slice("net"), claim("c"))
    assert chosen(MINE, {"a": Victims(("uid-cpu",))}, *objects, *runs("v", "net/gpu-0", on="b")) == {}


@pytest.mark.parametrize(("priority", "added"), [(99, True), (100, False), (101, False)])
def test_only_pods_of_lower_priority_are_added(priority: int, added: bool) -> None:
    got = chosen(MINE, {"a": Victims(("uid-cpu",))}, *world(), *runs("v", "a/gpu-0", on="a", priority=priority))
    assert ("a" in got) == added


def test_devices_of_a_terminating_pod_count_as_free_and_it_is_not_added() -> None:
    dying = runs("v", "a/gpu-0", on="a", deleting=True)
    assert chosen(MINE, {"a": Victims(("uid-cpu",))}, *world(), *dying) == {"a": Victims(("uid-cpu",))}


FEWEST = {
    "the one that has enough, though it matters more": (
        [("one", ["a/gpu-0"], 1), ("two", ["a/gpu-1"], 1), ("both", ["a/gpu-2", "a/gpu-3"], 50)],
        ["uid-both"],
    ),
    "the least important": (
        [("more", ["a/gpu-0", "a/gpu-1"], 2), ("less", ["a/gpu-2", "a/gpu-3"], 1)],
        ["uid-less"],
    ),
    "two where two are needed, the least important ones": (
        [("x", ["a/gpu-0"], 3), ("y", ["a/gpu-1"], 1), ("z", ["a/gpu-2", ], 2), ("w", ["a/gpu-3"], 9)],
        ["uid-y", "uid-z"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("running", "added"), FEWEST.values(), ids=FEWEST)
def test_as_few_as_possible_are_added(running: list[tuple[str, list[str], int]], added: list[str]) -> None:
    pods = [each for name, devices, priority in running for each in runs(name, *devices, on="a", priority=priority)]
    got = chosen(MINE, {"a": Victims(("uid-cpu",))}, *world(4, wants=2), *pods)
    assert list(got["a"].uids) == ["uid-cpu", *added]


def test_of_equal_pods_the_youngest_is_added() -> None:
    old = runs("old", "a/gpu-0", on="a", created="2026-01-01T00:00:00Z")
    young = runs("young", "a/gpu-1", on="a", created="2026-01-02T00:00:00Z")
    assert chosen(MINE, {"a": Victims(("u",))}, *world(2), *old, *young)["a"].uids == ("u", "uid-young")


def test_a_claim_that_several_pods_share_is_freed_by_all_of_them_only() -> None:
    shared = claim("s", allocated=["a/gpu-0"], at="a", users=["v", "w"])
    sharing = [pod("v", "s", on="a", priority=1), pod("w", "s", on="a", priority=2)]
    assert set(chosen(MINE, {"a": Victims(("u",))}, *world(), shared, *sharing)["a"].uids) == {"u", "uid-v", "uid-w"}
    important = [sharing[0], pod("w", "s", on="a", priority=100)]
    assert chosen(MINE, {"a": Victims(("u",))}, *world(), shared, *important) == {}


def test_six_that_matter_less_do_not_go_where_three_suffice() -> None:
    """16 pods; found by strangers, when 128 sets of pods were tried."""
    small = [each for i in range(13) for each in runs(f"v{i:02}", f"a/gpu-{i}", on="a", priority=1)]
    large = [
        each
        for i in range(3)
        for each in runs(f"w{i}", f"a/gpu-{13 + 2 * i}", f"a/gpu-{14 + 2 * i}", on="a", priority=2 + i)
    ]
    got = chosen(MINE, {"a": Victims(("u",))}, *world(19, wants=6), *small, *large)
    assert got["a"].uids == ("u", "uid-w0", "uid-w1", "uid-w2")


def test_of_many_pods_that_are_alike_the_fewest_go() -> None:
    running = [each for i in range(40) for each in runs(f"v{i:02}", f"a/gpu-{i}", on="a", priority=40 - i)]
    got = chosen(MINE, {"a": Victims(("u",))}, *world(40, wants=20), *running)
    assert set(got["a"].uids) == {"u", *(f"uid-v{i}" for i in range(20, 40))}


# --- budgets ------------------------------------------------------------------------------------------------

PROTECTED = {"app": "db"}


@pytest.mark.parametrize(("allowed", "violations"), [(2, 0), (1, 1), (0, 2), (-1, 2)])
def test_violations_of_the_added_victims_budgets_are_added(allowed: int, violations: int) -> None:
    running = [each for n in ("v", "w") for each in runs(n, f"a/gpu-{'vw'.index(n)}", on="a", labels=PROTECTED)]
    got = chosen(MINE, {"a": Victims(("u",), 5)}, *world(2, wants=2), *running, budget("b", PROTECTED, allowed))
    assert got["a"].pdb_violations == 5 + violations


def test_victims_that_were_sent_have_used_up_their_budget_first() -> None:
    given, added = runs("given", "a/gpu-0", on="a", labels=PROTECTED), runs("v", "a/gpu-1", on="a", labels=PROTECTED)
    objects = (*world(2, wants=2), *given, *added, budget("b", PROTECTED, 1))
    assert chosen(MINE, {"a": Victims(("uid-given",), 0)}, *objects) == {"a": Victims(("uid-given", "uid-v"), 1)}


def test_a_pod_within_its_budget_dies_before_one_that_is_less_important_but_protected() -> None:
    protected = runs("cheap", "a/gpu-0", on="a", priority=1, labels=PROTECTED)
    free = runs("dear", "a/gpu-1", on="a", priority=9)
    objects = (*world(2), *protected, *free, budget("b", PROTECTED, 0))
    assert chosen(MINE, {"a": Victims(("u",))}, *objects) == {"a": Victims(("u", "uid-dear"), 0)}


# --- nothing to preempt for ---------------------------------------------------------------------------------


def test_nobody_dies_for_a_claim_that_cannot_be_served_anywhere() -> None:
    assert chosen(MINE, GIVEN, GPU, node("a"), local_slice("a")) == {}
    broken = claim("c", request(selectors=["device.attributes['gpu.example.com'].boom"]))
    assert chosen(MINE, GIVEN, GPU, node("a"), local_slice("a"), broken) == {}


def test_a_claim_allocated_elsewhere_drops_the_node() -> None:
    objects = (GPU, node("a"), node("b"), local_slice("a"), local_slice("b"))
    taken = claim("c", allocated=["b/gpu-0"], at="b", users=["somebody"])
    assert set(chosen(MINE, GIVEN, *objects, taken, pod("somebody", "c", on="b", priority=100))) == {"b"}


NOMINATED = pod("p", "c", priority=100, nominated="a")


@pytest.mark.parametrize("victims", [[pod("v", "v-c", on="a", priority=1, deleting=True)], []], ids=["dying", "gone"])
def test_while_the_nominated_nodes_victims_hold_devices_nobody_else_dies(victims: list[Object]) -> None:
    held = claim("v-c", allocated=["a/gpu-0"], at="a", users=["v"])
    assert chosen(NOMINATED, GIVEN, *world(nodes=("a", "b")), held, *victims) == {}


def test_a_nomination_that_does_not_help_is_no_reason_to_wait() -> None:
    assert chosen(NOMINATED, {"b": Victims(("x",))}, *world(nodes=("a", "b")), *runs("v", "a/gpu-0", on="a")) == {
        "b": Victims(("x",))
    }


def test_when_time_is_up_no_pod_can_be_spared_but_there_may_be_a_smaller_set() -> None:
    one = runs("both", "a/gpu-0", "a/gpu-1", on="a", priority=50)
    two = [each for n in (2, 3) for each in runs(f"v{n}", f"a/gpu-{n}", on="a", priority=1)]
    snapshot = snapshot_of(*world(4, wants=2), *one, *two)

    def found(until: int) -> set[str]:
        ticks = count()
        ticking = replace(solver(), clock=lambda: next(ticks) / 1000, until=until / 1000)
        victims = choose_victims(parsed(MINE), {"a": Victims(("u",))}, snapshot, ticking)
        return {uid for given in victims.values() for uid in given.uids[1:]}

    sets = [found(until) for until in range(-1, 400)]
    assert [each for place, each in enumerate(sets) if place == 0 or each != sets[place - 1]] == [
        set(),
        {"uid-v2", "uid-v3"},
        {"uid-both"},
    ]


def test_when_time_is_up_the_nodes_found_so_far_are_the_answer() -> None:
    snapshot = snapshot_of(*world(nodes=("a", "b")))

    def found(until: int) -> tuple[str, ...]:
        ticks = count()
        ticking = replace(solver(), clock=lambda: float(next(ticks)), until=until)
        return tuple(choose_victims(parsed(MINE), GIVEN, snapshot, ticking))

    assert list(dict.fromkeys(found(until) for until in range(-1, 100))) == [(), ("a",), ("a", "b")]


LARGE: Object = {"selectors": [{"cel": {"expression": f"device.attributes['{DRIVER}'].large"}}]}


def sized(*large: bool) -> tuple[Object, ...]:
    """Node a, with a device for each size, and the claim of the pod."""
    found = local_slice("a", len(large))
    for device, is_large in zip(found["spec"]["devices"], large, strict=True):
        device["attributes"] = {"large": {"bool": is_large}}
    return GPU, node("a"), found, claim("c")


CPU = {"a": Victims(("uid-cpu",))}


@pytest.mark.parametrize(
    ("objects", "victims"),
    {
        "no device is allowed": ((*world(), quota(limited(devices=0))), {}),
        "one is allowed": ((*world(), quota(limited(devices=1))), CPU),
        "one is allowed, and in use": (
            (*world(2), *runs("own", "a/gpu-1", on="a", priority=200), quota(limited(devices=1))),
            {},
        ),
        "a victim gives back what is allowed": (
            (*world(), *runs("v", "a/gpu-0", on="a"), quota(limited(devices=1))),
            {"a": Victims(("uid-cpu", "uid-v"))},
        ),
        "the free device is of a kind that is not allowed": ((*sized(True), quota(limited(devices=0, **LARGE))), {}),
        "the free device is of another kind": ((*sized(False), quota(limited(devices=0, **LARGE))), CPU),
        "only the device of one of two victims is allowed": (
            (
                *sized(True, False),
                *runs("v", "a/gpu-0", on="a"),
                *runs("w", "a/gpu-1", on="a"),
                quota(limited(devices=0, **LARGE)),
            ),
            {"a": Victims(("uid-cpu", "uid-w"))},
        ),
    }.values(),
)
def test_nobody_is_evicted_for_a_pod_that_would_be_over_quota_then(
    objects: tuple[Object, ...], victims: Mapping[str, Victims]
) -> None:
    assert chosen(MINE, CPU, *objects) == victims


def test_nobody_is_evicted_for_a_pod_whose_gang_is_not_complete() -> None:
    asked, own = member("p", "train", 8, priority=100)
    assert chosen(asked, CPU, *world(8), asked, own) == {}
    alone, own = member("q", "train", 1, priority=100)
    assert chosen(alone, CPU, *world(8), alone, own) == {}, "nothing is kept for the gang yet"


def test_pods_are_evicted_on_the_node_that_is_kept_for_a_pod_of_a_gang() -> None:
    asked, own = member("p", "train", 1, priority=100)
    message = f"node a: devices are kept for the pod: {DRIVER}/a/gpu-0"
    kept = {"type": "dra-extender/DevicesKept", "status": "True", "message": message}
    asked["status"]["conditions"] = [kept]
    assert chosen(asked, GIVEN, *world(nodes=("a", "b")), asked, own) == {"a": GIVEN["a"]}


def test_nobody_is_evicted_for_a_pod_whose_policy_is_not_known() -> None:
    asked = pod("p", "c", priority=100)
    asked["metadata"]["annotations"] = {"dra-extender.dev/policy": "typo"}
    assert chosen(asked, CPU, *world()) == {}
