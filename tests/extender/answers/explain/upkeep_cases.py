"""What only an administrator or a driver can mend: device classes, feature gates, nodes and pools."""

from collections.abc import Mapping
from typing import Any

from tests.extender.answers.explain.scenes import (
    MODEL,
    NODE_OPERATIONS,
    PARTITIONS,
    SAME_ROOT,
    Case,
    featured,
    gpu,
    gpus,
    held,
    partition,
    pool,
    two_gpus,
    wants,
    with_fields,
)
from tests.kit.clusters import DRIVER, GPU, claim, device_class, node, pod, request

OF_DRIVER = f'device.driver == "{DRIVER}"'
PER_DEVICE = {"nodeName": None, "perDeviceNodeSelection": True}
TWO_PARTS: dict[str, Any] = {"resourceSliceCount": 2}

UPKEEP: Mapping[str, Case] = {
    # classes
    "a class that no device suits": Case(
        (device_class(selectors=[f'{OF_DRIVER} && {MODEL} == "h100"']), *wants()[1:], *two_gpus("a"))
    ),
    "a class that other devices suit": Case(
        (
            device_class(selectors=[f'{OF_DRIVER} && {MODEL} == "h100"']),
            *wants()[1:],
            node("a"),
            pool("a", *gpus(1), gpu("gpu-1", "h100")),
            *held("x", "a/gpu-1"),
        )
    ),
    "a class of another driver": Case(
        (device_class(selectors=['device.driver == "nic.example.com"']), *wants()[1:], *two_gpus("a"))
    ),
    "a class with an attribute that is spelt otherwise": Case(
        (device_class(selectors=[f'device.attributes["{DRIVER}"].modle == "a100"']), *wants()[1:], *two_gpus("a"))
    ),
    # feature gates and nodes
    "partitions that are nowhere to be seen": Case(
        (*wants(), node("a"), pool("a", gpu("gpu-0", nodeName="a"), spec=PER_DEVICE)),
        solver=featured(partitionable_devices=False),
    ),
    "alternatives are off": Case(
        (
            GPU,
            claim("mine", {"name": "gpu", "firstAvailable": [{"name": "a", **request()["exactly"]}]}),
            pod("p", "mine"),
            *two_gpus("a"),
        ),
        solver=featured(prioritized_list=False),
    ),
    "capacity is off": Case(
        (*wants(with_fields(request(), capacity={"requests": {"memory": "1Gi"}})), *two_gpus("a")),
        solver=featured(consumable_capacity=False),
    ),
    "compatibility groups are off": Case(
        (
            *wants(),
            node("a"),
            *PARTITIONS,
            pool("a", partition("whole", 40, compatibilityGroups=["one"]), **TWO_PARTS),
        )
    ),
    "lists in constraints are off": Case(
        (
            *wants(request(count=2), constraints=(SAME_ROOT,)),
            node("a"),
            pool("a", *(gpu(f"gpu-{n}", attributes={"root": {"strings": ["left", str(n)]}}) for n in range(2))),
        )
    ),
    "a feature that neither node nor settings have": Case(
        (*wants(), node("a"), pool("a", *gpus(1), spec=NODE_OPERATIONS))
    ),
    "a feature gate and a pod in the way": Case(
        (*wants(), node("a"), *PARTITIONS, pool("a", partition("whole", 40), **TWO_PARTS), *held("x", "a/whole")),
        solver=featured(partitionable_devices=False),
    ),
    # pools
    "a pool with a slice too many": Case(
        (*wants(), node("a"), pool("a", gpu("gpu-0")), pool("a", gpu("gpu-1"), part="old"))
    ),
    "a pool whose slices disagree": Case(
        (*wants(), node("a"), pool("a", gpu("gpu-0")), pool("a", gpu("gpu-1"), part="b", **TWO_PARTS))
    ),
    "a device in two slices": Case(
        (
            *wants(request(count=2)),
            node("a"),
            pool("a", gpu("gpu-0"), **TWO_PARTS),
            pool("a", gpu("gpu-0"), part="b", **TWO_PARTS),
        )
    ),
    "a counter set that is spelt otherwise": Case(
        (*wants(), node("a"), *PARTITIONS, pool("a", partition("whole", 40, counterSet="silicone"), **TWO_PARTS))
    ),
    "a counter set that nobody publishes": Case(
        (*wants(), node("a"), pool("a", partition("whole", 40), partition("half", 20)))
    ),
    "a counter that is spelt otherwise": Case(
        (
            *wants(),
            node("a"),
            *PARTITIONS,
            pool("a", partition("whole", 40, counters={"memroy": {"value": "40Gi"}}), **TWO_PARTS),
        )
    ),
    "a counter that nobody publishes": Case(
        (
            *wants(),
            node("a"),
            *PARTITIONS,
            pool("a", partition("whole", 40, counters={"cores": {"value": "8"}}), **TWO_PARTS),
        )
    ),
    "a counter set that is there twice": Case(
        (
            *wants(),
            node("a"),
            pool("a", counters={"memory": {"value": "40Gi"}}, resourceSliceCount=3),
            pool("a", counters={"memory": {"value": "40Gi"}}, part="more-counters", resourceSliceCount=3),
            pool("a", partition("whole", 40), resourceSliceCount=3),
        )
    ),
    "a pool with more than one mistake": Case(
        (*wants(), node("a"), *PARTITIONS, pool("a", partition("whole", 40), partition("whole", 40, counterSet="x")))
    ),
}  # fmt: skip
