"""The simulation itself: draws, plans, equal histories, laws that a judge sees broken, and histories made small."""

from dataclasses import replace
from itertools import count
from multiprocessing import get_context
from typing import Any

import pytest

from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, PODS
from tests.kit import virtualtime
from tests.kit.clusters import Object, claim, device_class, local_slice, node, pod
from tests.kit.servers.memory import memory_api
from tests.simulation.chance import Chance
from tests.simulation.coverage import covered, report
from tests.simulation.history import play, play_seed
from tests.simulation.invariants import Judge
from tests.simulation.narrow import SCENES, scene_of
from tests.simulation.plan import CRASH_AT_WRITE, CYCLE, FAULTS, MADE_AGAIN_WHILE_BOUND, PAIRS, SECONDS, Plan
from tests.simulation.seeds import NARROW, plan_of
from tests.simulation.shrink import shrunk


def test_a_draw_depends_on_its_purpose_and_not_on_other_draws() -> None:
    one, other = Chance("seed"), Chance("seed")
    other("something else")
    assert [one("bind"), one("bind")] == [other("bind"), other("bind")]
    assert Chance("seed")("bind") != Chance("another seed")("bind")


@pytest.mark.parametrize("first", [0, 7 * CYCLE])
def test_the_seeds_of_a_cycle_go_through_all_pairs_with_all_faults(first: int) -> None:
    found = covered(plan_of(seed) for seed in range(first, first + CYCLE))
    assert all(found[*pair, fault] for pair in PAIRS for fault in FAULTS)


def test_what_a_run_has_not_covered_is_named() -> None:
    text = report(covered([plan_of(0)]))
    assert text.startswith("1683 pairs of capabilities with a fault; never there: ")
    assert not text.startswith("1683 pairs of capabilities with a fault; never there: 0")


def few(seed: int) -> Plan:
    """A plan with few happenings, in the first seconds."""
    plan = plan_of(seed)
    return replace(plan, steps=tuple(each for each in plan.steps if each.at < SECONDS / 6), spans=())


@pytest.mark.parametrize("seed", [1])
def test_equal_plans_have_equal_histories_in_which_all_holds(seed: int) -> None:
    one, other = play(few(seed)), play(few(seed))
    assert one.violation is None
    assert (one.seconds, one.bound, one.counted, one.logged) == (
        other.seconds,
        other.bound,
        other.counted,
        other.logged,
    )
    assert one.bound


def test_a_narrow_history_of_each_scene_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    scenes = [scene for alike in SCENES for scene in alike]
    seeds = [next(seed for seed in count(NARROW) if scene_of(seed) is scene) for scene in scenes]
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # as in `make simulate-faults`: the order of sets makes other histories
    with get_context("spawn").Pool(1) as pool:
        outcomes = pool.map(play_seed, seeds)
    assert {each.plan.seed: str(each.violation) for each in outcomes if each.violation} == {}


def test_narrow_histories_reach_moments_that_wide_ones_rarely_have() -> None:
    faults = {fault for number in range(len(SCENES)) for fault in plan_of(NARROW + number).faults}
    assert {CRASH_AT_WRITE, MADE_AGAIN_WHILE_BOUND, "a driver adds devices"} <= faults


def test_no_process_ends_at_a_write_once_the_faults_are_over() -> None:
    """Its end would count as nothing happening, and its start would have pods tried again."""
    plan = replace(plan_of(NARROW + 1001774), calm=120.0)
    assert str(play(plan).violation or "") == ""


# --- what a judge sees --------------------------------------------------------------------------------------------


def world() -> list[Object]:
    return [node("n"), local_slice("n", 2), device_class()]


async def allocated(api: Any, name: str, device: str, user: str) -> None:
    found = claim(name, allocated=[f"n/{device}"], at="n", users=[user])["status"]
    await api.patch_status(CLAIMS, _key(name), {"status": found})


def _key(name: str) -> ObjectKey:
    return ObjectKey("ns", name)


@virtualtime.in_virtual_time
async def test_a_pod_that_is_bound_without_its_devices_is_a_violation() -> None:
    api = memory_api(*world(), claim("c"), pod("p", "c"))
    judge = Judge(api)
    await api.bind_pod(_key("p"), "n", uid="uid-p")
    assert str(judge.violation) == "a bound pod has its devices: pod ns/p on n: ns/c is not allocated"


@virtualtime.in_virtual_time
async def test_two_bound_pods_with_one_device_are_a_violation() -> None:
    api = memory_api(*world(), claim("c"), claim("d"), pod("p", "c"), pod("q", "d"))
    judge = Judge(api)
    for name, user in (("c", "p"), ("d", "q")):
        await allocated(api, name, "gpu-0", user)
        await api.bind_pod(_key(user), "n", uid=f"uid-{user}")
    assert judge.violation is not None
    assert judge.violation.law == "no device twice"


@virtualtime.in_virtual_time
async def test_two_bound_pods_with_a_device_each_are_none() -> None:
    api = memory_api(*world(), claim("c"), claim("d"), pod("p", "c"), pod("q", "d"))
    judge = Judge(api)
    for name, user, device in (("c", "p", "gpu-0"), ("d", "q", "gpu-1")):
        await allocated(api, name, device, user)
        await api.bind_pod(_key(user), "n", uid=f"uid-{user}")
    assert judge.violation is None
    assert judge.bound == 2


@virtualtime.in_virtual_time
async def test_a_victim_without_a_pod_of_higher_priority_that_waits_is_a_violation() -> None:
    api = memory_api(*world(), pod("running", on="n", priority=5), pod("waiting", priority=5))
    judge = Judge(api)
    judge.evicts(_key("running"))
    assert judge.violation is not None
    assert judge.violation.law == "a victim is less important"


@virtualtime.in_virtual_time
async def test_a_claim_that_loses_its_pod_is_held_by_nobody() -> None:
    api = memory_api(*world(), claim("c"), pod("p", "c"))
    judge = Judge(api)
    await allocated(api, "c", "gpu-0", "p")
    assert judge.idle_claims() == []
    await api.patch_status(CLAIMS, _key("c"), {"status": {"reservedFor": None}})
    assert judge.idle_claims() == [_key("c")]


# --- histories made small -----------------------------------------------------------------------------------------


def test_a_history_is_made_small_around_what_breaks_a_law() -> None:
    plan = plan_of(7)
    wanted, there = plan.steps[2], plan.objects[5]
    found = shrunk(plan, lambda each: wanted in each.steps and there in each.objects, most=500)
    assert (found.steps, found.objects, found.spans, found.replicas) == ((wanted,), (there,), (), 1)


def test_a_plan_reads_as_a_story() -> None:
    text = str(plan_of(1))
    assert text.startswith("seed 1: ")
    assert "come: " in text
    assert PODS.kind in text
