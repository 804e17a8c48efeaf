"""What an explanation says of evictions for a pod that is over its DeviceQuota."""

import pytest

from extender.answers.explain.explainer import Explainer
from extender.kube.api import ObjectKey
from tests.extender.plugins.preemption.scenes import runs
from tests.kit.clusters import Object, device_class, local_slice, node, pod, snapshot_of, solver
from tests.kit.objects.quotas import quota

LIMITS: list[Object] = [{"deviceClassName": "gpu"}, {"selectors": [{"cel": {"expression": "true"}}]}]


def explained(limit: Object, *objects: Object) -> str:
    """The explanation of a pod that asks for a device by an extended resource, where a quota allows none."""
    asking = pod("p", priority=100, resources={"example.com/gpu": "1"})
    none = quota({"name": "all", "devices": 0, **limit}, name="few")
    cluster = (device_class(extended="example.com/gpu"), node("a"), local_slice("a"), none, asking, *objects)
    snapshot = snapshot_of(*cluster)
    return str(Explainer.alone(snapshot, solver()).explain(snapshot.pods[ObjectKey("ns", "p")]))


@pytest.mark.parametrize("limit", LIMITS)
def test_no_pod_terminates_and_none_is_said_to(limit: Object) -> None:
    said = explained(limit)
    assert "device quota few: limit all allows 0 devices" in said
    assert "terminating" not in said


@pytest.mark.parametrize("limit", LIMITS)
def test_the_quota_is_why_no_pod_is_evicted(limit: Object) -> None:
    said = explained(limit, *runs("v", "a/gpu-0", on="a"))
    assert "pod ns/v: the pod may not have its devices: device quota few: limit all allows 0 devices" in said
