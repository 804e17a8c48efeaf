"""The examples and the story of KEP-14, as its text writes the classes, in a simulation."""

from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from extender import Cluster
from tests.kit.clusters import Object, node, pod
from tests.kit.objects.parts import api_object, slice_spec

EXAMPLES = """
kind: ResourceClass
metadata:
  name: nvidia.high.mem
spec:
  resourceName: "nvidia.com/gpu"
  resourceSelector:
    - matchExpressions:
        - key: "memory"
          operator: "Gt"
          values:
            - "15G"
---
kind: ResourceClass
metadata:
  name: fast.nic
spec:
  resourceName: "sfc.com/smartNIC"
  labelSelector:
    - matchExpressions:
        - key: "speed"
          operator: "Gt"
          values:
            - "40GBPS"
"""

STORY = """
kind: ResourceClass
metadata:
  name: nvidia-k80
spec:
  resourceName: "nvidia.com/gpu"
  resourceSelector:
    - matchExpressions:
        - {key: "gpuType", operator: "In", values: ["k80"]}
---
kind: ResourceClass
metadata:
  name: nvidia-p100
spec:
  resourceName: "nvidia.com/gpu"
  resourceSelector:
    - matchExpressions:
        - {key: "gpuType", operator: "In", values: ["p100"]}
---
kind: ResourceClass
metadata:
  name: nvidia-p100-ecc
spec:
  resourceName: "nvidia.com/gpu"
  resourceSelector:
   - matchExpressions:
        - {key: "gpuType", operator: "In", values: ["p100"]}
        - {key: "supportECC", operator: "In", values: ["true"]}
"""

RESERVED = """
kind: ResourceClass
metadata:
  name: nvidia-p100
spec:
  resourceName: "nvidia.com/gpu"
  resourceSelectorRequirements:
   - matchExpressions:
        - {key: "gpuType", operator: "In", values: ["p100"]}
        - {key: "supportECC", operator: "NotIn", values: ["true"]}
"""


def device(driver: str, on: str, capacity: Object | None = None, **attributes: Any) -> Object:
    """A node's only device of a driver."""
    kinds = {str: "string", bool: "bool"}
    named = {name: {kinds[type(value)]: value} for name, value in attributes.items()}
    amounts = {name: {"value": value} for name, value in (capacity or {}).items()}
    spec = slice_spec(on, [{"name": "0", "attributes": named, "capacity": amounts}], driver=driver, nodeName=on)
    return api_object("ResourceSlice", f"{on}-{driver}", spec=spec)


GPU, NIC = "gpu.nvidia.com", "smartnic.sfc.com"
CARDS = (
    *(node(name) for name in ("a", "b", "c")),
    device(GPU, "a", gpuType="k80"),
    device(GPU, "b", gpuType="p100", supportECC=True),
    device(GPU, "c", gpuType="p100"),
)


def asks(name: str, resource: str, created: int = 0, **annotations: str) -> Object:
    found = pod(name, resources={f"dra-extender.dev/{resource}": "1"})
    found["metadata"] |= {"creationTimestamp": f"2026-03-01T08:00:{created:02}Z", "annotations": annotations}
    return found


def nodes_of(classes: str, *objects: Object) -> dict[str, str]:
    """Pod to its node, empty if it is pending."""
    cluster = Cluster.from_objects([*yaml.safe_load_all(classes), *objects])
    return {each.pod.removeprefix("ns/"): each.node for each in cluster.schedule()}


def test_examples_select_by_memory_and_by_speed() -> None:
    site = (
        *(node(name) for name in ("a", "b")),
        device(GPU, "a", {"memory": "12G"}),
        device(GPU, "b", {"memory": "16G"}),
        device(NIC, "a", {"speed": "100G"}),
        device(NIC, "b", {"speed": "40G"}),
    )
    pods = asks("memory", "nvidia.high.mem"), asks("more", "nvidia.high.mem", 1), asks("nic", "fast.nic", 2)
    assert nodes_of(EXAMPLES, *site, *pods) == {"memory": "b", "more": "", "nic": "a"}


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (("k80", "p100-ecc", "p100"), ["a", "b", "c"]),
        (("p100", "p100-ecc"), ["c", "b"]),
        (("p100", "p100", "p100-ecc"), ["c", "b", ""]),
        (("k80", "k80"), ["a", ""]),
    ],
)
def test_pods_get_the_cards_of_their_classes_and_the_precious_one_last(
    wanted: Sequence[str], expected: list[str]
) -> None:
    reserve = {"dra-extender.dev/policy": "reserve"}
    pods = [asks(f"p{number}", f"nvidia-{each}", number, **reserve) for number, each in enumerate(wanted)]
    assert list(nodes_of(STORY, *CARDS, *pods).values()) == expected


def test_class_of_the_update_leaves_cards_with_ecc_to_those_who_ask_for_them() -> None:
    updated = "---".join([*STORY.split("---")[::2], RESERVED])
    pods = [asks(f"p{number}", "nvidia-p100", number) for number in range(2)]
    assert list(nodes_of(updated, *CARDS, *pods, asks("ecc", "nvidia-p100-ecc", 2)).values()) == ["c", "", "b"]


def test_silver_and_gold_are_limited_by_quota() -> None:
    hard = {"requests.dra-extender.dev/nvidia-k80": "0", "requests.dra-extender.dev/nvidia-p100": "1"}
    quota = api_object("ResourceQuota", "gold", namespace="ns", spec={"hard": hard})
    pods = [asks("first", "nvidia-p100"), asks("second", "nvidia-p100", 1), asks("silver", "nvidia-k80", 2)]
    for each in pods:
        del each["metadata"]["uid"]  # an API server has not accepted the pods yet
    refused: list[str] = []
    objects = [*yaml.safe_load_all(STORY), *CARDS, quota, *pods]
    cluster = Cluster.from_objects(objects, refused=refused.append)
    assert [(each.pod, bool(each.node)) for each in cluster.schedule()] == [("ns/first", True)]
    assert len(refused) == 2
    assert all("is not made: quota gold of namespace ns: " in each for each in refused)
