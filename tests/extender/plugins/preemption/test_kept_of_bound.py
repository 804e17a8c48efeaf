"""What is kept for pods ends once they are bound."""

from extender.cluster.writes.pods import Nominator
from extender.kube.api import ObjectKey
from extender.kube.resources import PODS
from extender.plugins.preemption.nominations import MOST_WRITES, KeptOfBound
from tests.kit.clusters import DRIVER, NOW, Cluster, Object, pod


def kept(name: str, *, on: str = "") -> Object:
    """A pod with a claim for which a device is kept."""
    raw = pod(name, f"{name}-c", on=on)
    message = f"node a: devices are kept for the pod: {DRIVER}/a/gpu-0"
    raw["status"]["conditions"] = [{"type": "dra-extender/DevicesKept", "status": "True", "message": message}]
    return raw


def statuses(cluster: Cluster) -> dict[str, bool]:
    """Whether something is kept for each pod."""
    return {each.name: bool(each.kept.node) for each in cluster.state.snapshot.pods.values()}


async def test_what_is_kept_for_a_pod_ends_when_it_is_bound() -> None:
    cluster = Cluster.of(kept("p"), kept("q", on="a"))
    task = KeptOfBound(cluster.state, Nominator(cluster.api, lambda: NOW))
    await task.tick()
    assert statuses(cluster) == {"p": True, "q": False}
    await cluster.api.bind_pod(ObjectKey("ns", "p"), "a", uid="uid-p")
    await task.tick()
    assert statuses(cluster) == {"p": False, "q": False}
    raw = await cluster.api.get(PODS, ObjectKey("ns", "p"))
    assert raw["status"]["conditions"][-1]["message"] == "the pod is bound"


async def test_few_are_written_in_a_turn_and_none_is_forgotten() -> None:
    cluster = Cluster.of(*(kept(f"p{number}", on="a") for number in range(2 * MOST_WRITES)))
    task = KeptOfBound(cluster.state, Nominator(cluster.api, lambda: NOW))
    await task.tick()
    assert sum(statuses(cluster).values()) == MOST_WRITES
    await task.tick()
    assert not any(statuses(cluster).values())
