"""One namespace with very much does not keep others from their answers."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.plugins.admission_checks.judging import WAITING_SECONDS
from tests.extender.plugins.admission_checks.scenes import (
    KEEP_SECONDS,
    Scene,
    by,
    pods,
    site,
    state,
    template,
    workload,
)
from tests.kit.clusters import Object, claim, claim_template, device_class, local_slice, node, pod, request

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


BOARD = device_class("board", selectors=['device.driver == "board.example.com"'])


def boards(name: str, devices: int) -> Object:
    """Devices of another driver than those of the class "gpu"."""
    found = local_slice(name, devices)
    return {**found, "spec": {**found["spec"], "driver": "board.example.com"}}


def other(obj: Object) -> Object:
    """The object in another namespace."""
    return {**obj, "metadata": {**obj["metadata"], "namespace": "other"}}


def without_time(arrived: int, *objects: Object) -> Scene:
    """Devices are kept for two jobs: one of boards, and one that is so large that there is no time to place its pods.

    Of the large one, some pods have come already. Its devices are shared without limit.
    """
    shared = local_slice("a", 1, allowMultipleAllocations=True)
    there = [BOARD, node("a"), shared, node("b"), boards("b", 2), other(claim_template("board", _BOARD))]
    came = [
        each
        for number in range(arrived)
        for each in (
            claim(f"c{number}", request(selectors=[f'device.driver == "d{number}"'])),
            pod(f"p{number}", f"c{number}", labels=by("large")),
        )
    ]
    promised = [state(state="Ready")]
    large = workload("large", pods(count=400), checks=promised, conditions=("QuotaReserved", "Admitted"))
    small = workload("small", pods(count=2, of=template("board")), namespace="other", checks=promised)
    scene = Scene(*site(), *there, *came, large, small, *objects)
    scene.looks = 0.02
    return scene


_BOARD = request(device_class="board")


@pytest.mark.parametrize("arrived", [0, MANY])
async def test_a_large_job_that_devices_are_kept_for_takes_no_promise_from_others(arrived: int) -> None:
    scene = without_time(arrived, workload("late", pods(of=template("board")), namespace="other"))
    await scene.turns(2)
    assert "0 of 1 pod would get them" in (await scene.told("late", "other"))[1]


@pytest.mark.parametrize("arrived", [0, MANY])
@pytest.mark.parametrize(
    ("objects", "of", "namespace"),
    [
        ([other(claim_template())], template("gpu"), "other"),
        ([claim_template("board", _BOARD)], template("board"), "ns"),
    ],
    ids=["of the same kind", "in the same namespace"],
)
async def test_what_is_kept_is_promised_to_nobody_if_there_was_no_time_to_find_out_what_it_is(
    arrived: int, objects: list[Object], of: Object, namespace: str
) -> None:
    scene = without_time(arrived, *objects, workload("late", pods(of=of), namespace=namespace))
    await scene.turns(2)
    found, message = await scene.told("late", namespace)
    assert (found, "there was no time to find out which" in message) == ("Pending", True)


async def test_a_job_without_devices_is_ready_although_there_was_no_time() -> None:
    scene = without_time(0, workload("late", pods(of=template()), namespace="ns"))
    await scene.turns(2)
    assert await scene.told("late") == ("Ready", "no pod needs devices")


async def test_a_job_is_judged_once_the_pods_that_it_waits_for_have_had_their_time() -> None:
    scene = without_time(0, other(claim_template()), workload("late", namespace="other"))
    await scene.turns(2)
    assert (await scene.told("late", "other"))[0] == "Pending"
    await scene.turns(3, KEEP_SECONDS)
    assert (await scene.told("late", "other"))[0] == "Ready"
