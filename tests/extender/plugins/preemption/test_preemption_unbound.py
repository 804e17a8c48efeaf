"""Pods that wait for their devices to be ready are preempted first: they run nothing, and lose only their devices."""

from tests.extender.plugins.preemption.scenes import Scene, runs, waits
from tests.kit.clusters import NOW, Object, claim, pod

READY = "example.com/ready"


def unready(name: str, device: str, on: str, *, priority: int = 10) -> list[Object]:
    """A pod that waits until its device is ready."""
    own = claim(f"{name}-c", allocated=[device], at=on, users=[name])
    own["status"]["allocation"]["allocationTimestamp"] = NOW.isoformat().replace("+00:00", "Z")
    own["status"]["allocation"]["devices"]["results"][0] |= {
        "bindingConditions": [READY],
        "bindingFailureConditions": ["example.com/broken"],
    }
    return [pod(name, f"{name}-c", priority=priority), own]


async def test_a_pod_that_waits_for_its_device_loses_it_and_lives() -> None:
    scene = Scene.of(*waits("p"), *unready("w", "a/gpu-0", "a"))
    scene.filter("p")
    await scene.turns()
    await scene.binder.finish(1.0)
    assert await scene.pods() == ["p", "w"]
    assert scene.filter("p").passed == ("a",)
    assert not scene.filter("w").passed
    assert [name for name, _ in scene.told] == ["w"]
    assert scene.counted("preemption_victims_total") == 0


async def test_it_goes_before_a_pod_that_runs_even_if_that_one_matters_less() -> None:
    held = [*unready("w", "a/gpu-0", "a", priority=50), *runs("v", "b/gpu-0", on="b", priority=1)]
    scene = Scene.of(*waits("p"), *held, nodes="ab")
    scene.filter("p")
    await scene.turns()
    assert [name for name, _ in scene.told] == ["w"]
    assert await scene.pods() == ["p", "v", "w"]


async def test_it_keeps_its_device_from_a_pod_that_is_not_more_important() -> None:
    scene = Scene.of(*waits("p", priority=10), *unready("w", "a/gpu-0", "a"))
    scene.filter("p")
    await scene.turns()
    assert scene.told == []
