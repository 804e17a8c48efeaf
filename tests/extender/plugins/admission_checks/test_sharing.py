"""One namespace with very much does not keep others from their answers."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.plugins.admission_checks.judging import WAITING_SECONDS
from tests.extender.plugins.admission_checks.scenes import Scene, by, pods, site, state, template, workload
from tests.kit.clusters import Object, claim, claim_template, local_slice, node, pod, request

MANY = 100


def _distinct(number: int) -> Iterator[Object]:
    """Jobs that no node takes; each asks for something else."""
    for each in range(number):
        name = f"odd-{each}"
        yield claim_template(name, request(selectors=[f'device.driver == "d{each}"']))
        yield workload(name, pods(count=3, of=template(name)), priority=1)


async def test_a_job_with_very_many_pods_is_answered_and_so_is_the_next_one() -> None:
    scene = Scene(*site(), workload("large", pods(count=100_000), priority=1), workload("small", namespace="other"))
    scene.cluster.load({**claim_template(), "metadata": {**claim_template()["metadata"], "namespace": "other"}})
    await scene.turns(3)
    assert "4 of 100000 pods would get them" in (await scene.told("large"))[1]
    assert (await scene.told("small", "other"))[0] == "Ready"


async def test_a_job_with_very_many_pods_that_share_a_claim_is_answered() -> None:
    scene = Scene(*site(0), claim("own"), workload("j", pods(count=2**31 - 1, of=template(claim="own"))))
    await scene.turns()
    assert "0 of 2147483647 pods would get them" in (await scene.told("j"))[1]


async def test_another_namespace_has_its_turn_before_a_long_row_of_jobs() -> None:
    there = {**claim_template(), "metadata": {**claim_template()["metadata"], "namespace": "other"}}
    scene = Scene(*site(), *_distinct(MANY), there, workload("late", namespace="other", priority=-1))
    scene.looks = 0.02
    await scene.turns(2)
    answered = [bool((await scene.told(f"odd-{each}"))[1]) for each in range(MANY)]
    assert (await scene.told("late", "other"))[0] == "Ready"
    assert not all(answered)
    scene.looks = 0.001
    await scene.turns(60, 5)
    assert all([(await scene.told(f"odd-{each}"))[1] for each in range(MANY)])


async def test_equal_jobs_are_judged_once() -> None:
    equal = [workload(f"job-{each}", pods(count=5)) for each in range(MANY)]
    one, many = Scene(*site(), equal[0]), Scene(*site(), *equal)
    await one.turns(3)
    await many.turns(3)
    assert (await many.told(f"job-{MANY - 1}"))[0] == "Pending"
    assert many.number < one.number + 10 * MANY


SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=5)


@settings(max_examples=40)
@given(devices=st.integers(0, 4), used=st.integers(0, 2), sizes=SIZES)
async def test_what_is_promised_is_there_and_what_is_refused_does_not_fit_beside_it(
    devices: int, used: int, sizes: list[int]
) -> None:
    used = min(used, devices)
    held = [
        each
        for number in range(used)
        for each in (
            claim(f"c{number}", allocated=[f"a/gpu-{number}"], at="a", users=[f"p{number}"]),
            pod(f"p{number}", f"c{number}", on="a"),
        )
    ]
    jobs = [workload(f"j{number}", pods(count=size)) for number, size in enumerate(sizes)]
    scene = Scene(*site(devices), *held, *jobs)
    await scene.turns(6)
    states = [(await scene.told(f"j{number}"))[0] for number in range(len(sizes))]
    left = 2 * devices - used - sum(size for size, state in zip(sizes, states, strict=True) if state == "Ready")
    assert left >= 0
    assert all(size > left for size, state in zip(sizes, states, strict=True) if state == "Pending")


async def test_a_job_that_takes_long_has_a_pause_of_its_own() -> None:
    there = {**claim_template(), "metadata": {**claim_template()["metadata"], "namespace": "other"}}
    scene = Scene(*site(), there, workload("slow", pods(count=100_000)))
    scene.looks = 0.05
    await scene.turns(2)
    began, looks = scene.seconds, scene.number
    assert "4 of 100000 pods" in (await scene.told("slow"))[1]
    scene.cluster.load(workload("quick", namespace="other"))
    scene.looks = 0.0
    await scene.turns(2)
    assert (await scene.told("quick", "other"))[0] == "Ready"
    assert (scene.seconds, scene.number < looks + 100) == (began + 2, True)


async def test_very_many_pods_that_wait_delay_no_job() -> None:
    crowd = [
        each
        for number in range(MANY)
        for each in (
            claim(f"c{number}", request(selectors=[f'device.driver == "d{number}"'])),
            pod(f"p{number}", f"c{number}"),
        )
    ]
    quiet, crowded = Scene(*site(), workload("a")), Scene(*site(), *crowd, workload("a"))
    for scene in (quiet, crowded):
        scene.looks = 0.02
        await scene.turns(2)
        assert (await scene.told("a"))[0] == "Ready"
    assert crowded.seconds - quiet.seconds < 2 * WAITING_SECONDS


def _at(place: str, count: int) -> Object:
    """Pods for the nodes of a place."""
    plain = template("gpu")
    return pods(count=count, of={**plain, "spec": {**plain["spec"], "nodeSelector": {"place": place}}})


@pytest.mark.parametrize("arrived", [0, MANY])
async def test_a_large_job_that_devices_are_kept_for_takes_no_promise_from_others(arrived: int) -> None:
    there = {**claim_template(), "metadata": {**claim_template()["metadata"], "namespace": "other"}}
    places = [node("a", labels={"place": "large"}), local_slice("a", 500), node("b", labels={"place": "small"})]
    came = [
        each
        for number in range(arrived)
        for each in (
            claim(f"c{number}", request(selectors=[f'device.driver == "d{number}"'])),
            pod(f"p{number}", f"c{number}", labels=by("large")),
        )
    ]
    promised = [state(state="Ready")]
    large = workload("large", _at("large", 400), checks=promised, conditions=("QuotaReserved", "Admitted"))
    small = workload("small", _at("small", 2), namespace="other", checks=promised)
    scene = Scene(*site(), there, *places, *came, large, small, workload("late", _at("small", 1), namespace="other"))
    scene.looks = 0.1
    await scene.turns(2)
    assert "0 of 1 pod would get them" in (await scene.told("late", "other"))[1]
