"""The annotation that chooses a policy for one pod."""

import pytest

from allocator.policies import POLICIES
from extender import Cluster, Settings
from extender.config.settings import SchedulingSettings
from tests.extender.framework.decisions.scenes import Scene, asked, pool_of
from tests.extender.plugins.requeue.scenes import WORLD as NODES_WITHOUT_DEVICES
from tests.extender.plugins.requeue.scenes import Scene as RequeueScene
from tests.extender.plugins.requeue.scenes import waiting
from tests.kit.clusters import DRIVER, GPU, Object, claim, local_slice, node, pod, request

ANNOTATION = "dra-extender.dev/policy"
WORLD = (GPU, node("a"), node("b"), local_slice("a", 2), local_slice("b", 2))


def with_policy(name: str, policy: str | None) -> Object:
    """A pod with a claim of its own."""
    found = pod(name, f"claim-of-{name}")
    if policy is not None:
        found["metadata"]["annotations"] = {ANNOTATION: policy}
    return found


def cluster(*policies: str | None, default: str = "best-fit") -> Cluster:
    """Two nodes with two devices each, and a pod for each policy."""
    pods = [with_policy(f"p{number}", policy) for number, policy in enumerate(policies)]
    claims = [claim(f"claim-of-p{number}") for number in range(len(pods))]
    settings = Settings(scheduling=SchedulingSettings(policy=default))
    return Cluster.from_objects([*WORLD, *claims, *pods], settings=settings)


@pytest.mark.parametrize(
    ("default", "policies", "nodes"),
    [
        pytest.param("pack", (None, None), "aa", id="the setting decides pods without the annotation"),
        pytest.param("spread", (None, None), "ab", id="another setting"),
        pytest.param("pack", (None, "spread", None), "aba", id="the annotation decides its own pod only"),
        pytest.param("spread", (None, "pack", None), "aab", id="another annotation"),
    ],
)
def test_annotation_chooses_the_policy_of_its_pod(default: str, policies: tuple[str | None, ...], nodes: str) -> None:
    assert "".join(each.node for each in cluster(*policies, default=default).schedule()) == nodes


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("bestfit", "; did you mean best-fit?"),
        ("", f"; there are {', '.join(sorted(POLICIES))}"),
    ],
)
def test_pod_with_an_unknown_policy_is_rejected_with_the_annotation_and_the_name(policy: str, told: str) -> None:
    scheduled = cluster(policy, None)
    refused, placed = scheduled.schedule()
    reason = f'annotation {ANNOTATION} of the pod: unknown policy "{policy}"{told}'
    assert (refused.node, refused.reason) == ("", f"2 {reason}")
    assert placed.node == "a"
    assert reason in str(scheduled.explain("ns/p0"))


def test_explanation_is_by_the_policy_of_the_pod() -> None:
    packed = cluster(None, "pack")
    packed.schedule(before="ns/p1")
    (best, *_) = packed.explain("ns/p1").places
    assert (best.node, best.why) == ("a", "leaves 0% of its pools free")


async def test_pod_with_an_unknown_policy_keeps_no_pod_of_its_shape_asleep() -> None:
    bad, good = waiting("bad"), waiting("good")
    bad[0]["metadata"]["annotations"] = {ANNOTATION: "bestfit"}
    scene = RequeueScene.of(*NODES_WITHOUT_DEVICES, *bad, *good)
    scene.reject("bad", "good")
    await scene.put(local_slice("a"))
    assert await scene.woken() == ["good"]


def test_verdict_of_one_policy_is_not_taken_for_that_of_another() -> None:
    """Both orders, with one decider: what is remembered is known by policy."""
    devices = [{"capacity": {"memory": {"value": size}}} for size in ("80Gi", "8Gi")]
    scene = Scene(GPU, node("a"), pool_of("a", *devices))
    sizes = []
    for policy in ("first-fit", "best-fit", "first-fit", "best-fit"):
        claims, world = (asked(request()),), scene.state.snapshot
        scene.decider.follow(world)
        lookup = scene.decider.lookup(claims, ("a",), world, policy=POLICIES[policy])
        (verdict,) = scene.decider.evaluate(lookup).verdicts
        assert verdict.merit is not None
        sizes.append(verdict.merit.capacity[f"{DRIVER}/memory"] >> 30)
    assert sizes == [80 * 10**9, 8 * 10**9] * 2


@pytest.mark.parametrize(("policy", "device"), [("first-fit", "gpu-0"), ("best-fit", "gpu-1"), (None, "gpu-1")])
def test_bind_takes_devices_by_the_policy_of_the_pod(policy: str | None, device: str) -> None:
    devices = [{"capacity": {"memory": {"value": size}}} for size in ("80Gi", "8Gi")]
    objects = (GPU, node("a"), pool_of("a", *devices), claim("claim-of-p"), with_policy("p", policy))
    settings = Settings(scheduling=SchedulingSettings(policy="best-fit"))
    (placed,) = Cluster.from_objects(objects, settings=settings).schedule()
    assert [each.result.device.device for each in placed.devices] == [device]
