"""Jobs among each other: what is promised to one is not promised to another, for a limited time."""

from collections.abc import Callable
from typing import Any, TypeVar

from extender.kube.api import ApiError, ObjectKey
from extender.kube.resources import ADMISSION_CHECKS, CLAIMS, DEVICE_QUOTAS, NODES, PODS
from tests.extender.plugins.admission_checks.scenes import (
    BACK_SECONDS,
    KEEP_SECONDS,
    RESERVED,
    Scene,
    by,
    check,
    on_node,
    pods,
    site,
    state,
    template,
    workload,
)
from tests.kit.clusters import Object, claim, pinned, pod
from tests.kit.objects.quotas import limited, quota
from tests.kit.servers.memory import Fault

T = TypeVar("T")


def ready(name: str, *pod_sets: Object, **more: Any) -> Object:
    """A job that was told that there are devices."""
    return workload(name, *pod_sets, checks=[state(state="Ready")], **more)


def arrived(name: str, number: int, job: str, *, on: str = "") -> list[Object]:
    """A pod of a job that the check has let in, with its claim."""
    claimed = claim(f"{name}-c", allocated=[f"{on}/gpu-{number}"] if on else (), at=on, users=[name] if on else ())
    return [claimed, pod(name, f"{name}-c", on=on, labels=by(job))]


async def states(scene: Scene, *names: str) -> list[str]:
    return [(await scene.told(name))[0] for name in names]


async def test_of_two_jobs_that_do_not_fit_together_one_is_ready() -> None:
    scene = Scene(*site(), workload("a", pods(count=3)), workload("b", pods(count=3)))
    await scene.turns()
    assert await states(scene, "a", "b") == ["Ready", "Pending"]
    assert "1 of 3 pods would get them" in (await scene.told("b"))[1]
    await scene.turns(5)
    assert await states(scene, "a", "b") == ["Ready", "Pending"]


async def test_devices_are_left_to_a_job_until_its_pods_come_or_time_is_up() -> None:
    scene = Scene(
        *site(), ready("a", pods(count=3), conditions=("QuotaReserved", "Admitted")), workload("b", pods(count=2))
    )
    await scene.turns()
    assert await states(scene, "b") == ["Pending"]
    await scene.turns(1, KEEP_SECONDS)
    await scene.turns()
    assert await states(scene, "b") == ["Ready"]


async def test_pods_that_have_come_count_once() -> None:
    came = [*arrived("p0", 0, "a", on="a"), *arrived("p1", 1, "a")]
    scene = Scene(*site(), *came, ready("a", pods(count=3)), workload("b"), workload("c"))
    await scene.turns()
    assert await states(scene, "b", "c") == ["Ready", "Pending"]


async def test_a_job_whose_pods_all_have_devices_keeps_no_others() -> None:
    came = [*arrived("p0", 0, "a", on="a"), *arrived("p1", 1, "a", on="a")]
    scene = Scene(*site(), *came, ready("a", pods(count=2)), workload("b", pods(count=2)))
    await scene.turns()
    assert await states(scene, "b") == ["Ready"]


async def test_pods_with_a_node_by_their_author_have_come_once_they_have_their_devices() -> None:
    job = ready("a", pods(of=on_node(template("gpu"), "a")))
    scene = Scene(*site(1, "a"), claim("c"), pinned("p", "c", on="a", labels=by("a")), job, workload("b"))
    await scene.turns()
    assert "0 of 1 pod would get them" in (await scene.told("b"))[1]


async def test_pods_that_wait_come_before_jobs() -> None:
    scene = Scene(*site(), claim("c"), pod("p", "c"), workload("a", pods(count=4)))
    await scene.turns()
    assert "3 of 4 pods would get them" in (await scene.told("a"))[1]


async def test_what_is_kept_for_a_job_counts_for_its_device_quota() -> None:
    scene = Scene(*site(), quota(limited(devices=2)), ready("a", pods(count=2)), workload("b"))
    await scene.turns()
    assert "device quota gold: limit gpu allows 2 devices" in (await scene.told("b"))[1]
    await scene.cluster.api.delete(DEVICE_QUOTAS, ObjectKey("ns", "gold"))
    await scene.turns()
    assert await states(scene, "b") == ["Ready"]


async def test_a_job_that_other_checks_hold_up_is_asked_about_again() -> None:
    other = state("other")
    scene = Scene(*site(1, "a"), workload("a", checks=[state(state="Ready"), other]), workload("b"))
    await scene.turns()
    assert await states(scene, "a", "b") == ["Ready", "Pending"]
    await scene.turns(1, KEEP_SECONDS)
    await scene.turns()
    assert await states(scene, "a", "b") == ["Pending", "Ready"]
    assert await scene.entry("a", "other") == other


async def test_a_job_that_waits_for_long_gives_its_quota_back() -> None:
    scene = Scene(*site(), workload("a", pods(count=5)))
    await scene.turns()
    assert await states(scene, "a") == ["Pending"]
    await scene.turns(2, BACK_SECONDS)
    entry = await scene.entry("a")
    assert entry["state"] == "Retry"
    assert "4 of 5 pods would get them" in entry["message"]


async def test_quota_is_kept_without_end_if_the_settings_say_so() -> None:
    scene = Scene(*site(), workload("a", pods(count=5)), back=0)
    await scene.turns(10, 1000)
    assert await states(scene, "a") == ["Pending"]


async def test_nothing_is_written_without_a_change() -> None:
    scene = Scene(*site(), workload("a", pods(count=5)), workload("b", pods(count=5)))
    await scene.turns()
    before = [await scene.raw(name) for name in "ab"]
    await scene.cluster.api.patch(NODES, ObjectKey("", "a"), {"metadata": {"labels": {"new": "one"}}})
    await scene.turns(20)
    assert [await scene.raw(name) for name in "ab"] == before


async def test_a_change_is_looked_at_at_once_and_its_message_after_a_while() -> None:
    held = [claim("c", allocated=["a/gpu-0"], at="a", users=["p"]), pod("p", "c", on="a")]
    scene = Scene(*site(), *held, workload("a", pods(count=5)), workload("b", pods(count=4)))
    await scene.turns()
    assert ["3 of" in (await scene.told(name))[1] for name in "ab"] == [True, True]
    await scene.cluster.api.delete(PODS, ObjectKey("ns", "p"))
    await scene.cluster.api.delete(CLAIMS, ObjectKey("ns", "c"))
    await scene.turns()
    assert await states(scene, "a", "b") == ["Pending", "Ready"]
    assert "3 of" in (await scene.told("a"))[1]
    await scene.turns(1, 31)
    assert "0 of" in (await scene.told("a"))[1]


async def test_a_check_becomes_active_and_other_conditions_stay() -> None:
    other = {"type": "Other", "status": "True", "lastTransitionTime": RESERVED}
    scene = Scene(*site(), {**check(), "status": {"conditions": [other]}})
    await scene.turns()
    found = await scene.cluster.api.get(ADMISSION_CHECKS, ObjectKey("", "devices"))
    assert found["status"]["conditions"] == [
        other,
        {
            "type": "Active",
            "status": "True",
            "reason": "Active",
            "message": "dra-extender decides about it",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-03-01T12:00:02Z",
        },
    ]


async def test_another_replica_goes_on_with_what_was_promised() -> None:
    scene = Scene(*site(), workload("a", pods(count=3)), workload("b", pods(count=3)))
    await scene.turns()
    scene.task = scene.replica("second")
    await scene.turns(2, 10)
    assert await states(scene, "a", "b") == ["Ready", "Pending"]
    await scene.turns(3, KEEP_SECONDS / 2)
    assert await states(scene, "a", "b") == ["Pending", "Ready"]


async def test_a_replica_that_has_lost_its_lease_while_it_judged_promises_nothing() -> None:
    reason = "0 of 1 pod would get them; pod set main: 1 no free device for request gpu"
    none = f"waiting for devices since {RESERVED}: {reason}"
    scene = Scene(*site(1, "a"), workload("a", checks=[state(message=none)]))
    other = scene.replica("other")

    async def slowly(work: Callable[[], T]) -> T:
        found = work()
        scene.cluster.load(workload("b", priority=1))
        for _ in range(6):
            scene.seconds += 5
            await other.tick()
        return found

    scene.task = scene.replica("slow", slowly)
    await scene.turns(2)
    assert await states(scene, "a", "b") == ["Pending", "Ready"]


async def test_a_write_that_fails_is_made_again() -> None:
    scene = Scene(*site(), workload("a"))
    scene.transport.script("patch_status workloads", Fault(lost=True))
    await scene.turns(3, 1)
    assert await states(scene, "a") == ["Pending"]
    await scene.turns(3, 10)
    assert await states(scene, "a") == ["Ready"]


async def test_a_job_that_cannot_be_answered_delays_no_other_one() -> None:
    scene = Scene(*site(), workload("a"))
    refused = ApiError(422, "Invalid", "podSetUpdates: field is immutable")
    scene.transport.script("patch_status workloads", Fault(refused=refused))
    await scene.turns(2)
    scene.cluster.load(workload("b"))
    await scene.turns(2)
    assert await states(scene, "a", "b") == ["Pending", "Ready"]
    await scene.turns(3, 10)
    assert await states(scene, "a") == ["Ready"]


async def test_pods_of_other_namespaces_are_not_those_of_a_job() -> None:
    names = [f"p{number}" for number in range(2)]
    others = [pod(name, "gone", labels=by("a")) for name in names]
    there = [{**each, "metadata": {**each["metadata"], "namespace": "other"}} for each in others]
    scene = Scene(*site(1, "ab"), *there, ready("a", pods(count=2)), workload("b"))
    await scene.turns()
    assert await states(scene, "b") == ["Pending"]


async def test_a_job_that_cannot_be_read_keeps_others_from_nothing() -> None:
    odd = {**template("gpu"), "spec": {"nodeSelector": ["x"]}}
    scene = Scene(*site(), ready("a", pods(of=odd)), workload("b"))
    await scene.turns()
    assert await states(scene, "b") == ["Ready"]


async def test_what_may_have_been_promised_is_waited_for() -> None:
    scene = Scene(*site(1, "a"), workload("a"))
    scene.transport.script("patch_status workloads", Fault(lost=True))
    await scene.turns(2)
    scene.cluster.load(workload("b", priority=1))
    await scene.turns(2)
    assert await states(scene, "a", "b") == ["Pending", "Pending"]
    await scene.turns(3, 10)
    assert await states(scene, "a", "b") == ["Pending", "Ready"]


async def test_an_entry_that_has_changed_meanwhile_is_not_written_over() -> None:
    scene = Scene(*site(), workload("a"))

    async def evicted() -> None:
        await scene.change("a", conditions=[{"type": "QuotaReserved", "status": "False"}])

    scene.transport.script("get workloads", Fault(before=evicted))
    await scene.turns()
    assert await states(scene, "a") == ["Pending"]


async def test_after_an_eviction_the_reason_is_told_again_at_once() -> None:
    scene = Scene(*site(), workload("a", pods(count=5)))
    await scene.turns()
    reset = state(message="Reset to Pending after eviction. Previously: Retry")
    anew = {"type": "QuotaReserved", "status": "True", "lastTransitionTime": "2026-03-01T12:00:05Z"}
    await scene.change("a", admissionChecks=[reset], conditions=[anew])
    await scene.turns()
    assert (await scene.told("a"))[1].startswith("waiting for devices since 2026-03-01T12:00:05Z: 4 of 5 pods")
