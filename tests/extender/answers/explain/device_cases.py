"""Causes that lie in devices, each in a cluster of its own; in the order of explanations.txt."""

from collections.abc import Mapping
from dataclasses import replace

from allocator.model.features import ALL_FEATURES
from tests.extender.answers.explain.scenes import (
    BROKEN,
    DEAD,
    MEMORY,
    MODEL,
    NODE_OPERATIONS,
    PARTITIONS,
    SHARED,
    SHARED_MEMORY,
    VERSION,
    Case,
    being_allocated,
    consuming,
    featured,
    gpu,
    gpus,
    held,
    kept_for,
    partition,
    pool,
    reserved_for_experiment,
    sharing,
    two_gpus,
    versioned,
    wants,
    with_fields,
)
from tests.kit.clusters import DRIVER, claim, device_class, node, pod, request, solver, taint_rule

OF_DEVICES: Mapping[str, Case] = {
    "in use": Case((*wants(), *two_gpus("a"), node("b"), *held("x", "a/gpu-0"), *held("y", "a/gpu-1"))),
    "in use by a claim without a pod": Case(
        (*wants(), node("a"), pool("a", *gpus(1)), claim("kept", allocated=["a/gpu-0"], at="a"))
    ),
    "in use by a claim without the finalizer": Case(
        (
            *wants(),
            node("a"),
            pool("a", *gpus(1)),
            claim("kept", allocated=["a/gpu-0"], at="a", users=["x"]),
            pod("x", "kept", on="a"),
        )
    ),
    "in use by something that is no pod": Case(
        (*wants(), node("a"), pool("a", *gpus(1)), reserved_for_experiment("a/gpu-0"))
    ),
    "in use by a claim that is being allocated": Case(
        (*wants(), node("a"), pool("a", *gpus(1)), *held("other", "a/gpu-0")), change=being_allocated
    ),
    "kept for a nominated pod": Case(
        (*wants(), node("a"), pool("a", *gpus(1)), claim("theirs"), pod("first", "theirs", nominated="a", priority=9))
    ),
    "kept for a pod for which others were evicted": Case(
        (*wants(), node("a"), pool("a", *gpus(1)), claim("theirs"), kept_for("first", "theirs", "a", "gpu-0"))
    ),
    "another model": Case(
        (
            *wants(request(selectors=[f'{MODEL} == "h100"'])),
            *two_gpus("a"),
            node("b"),
            pool("b", *gpus(2), gpu("gpu-2", "v100")),
        )
    ),
    "one condition of several": Case(
        (
            *wants(request(selectors=[f'{MODEL} == "a100" && {MEMORY}.compareTo(quantity("80Gi")) >= 0'])),
            node("a"),
            pool("a", *gpus(1), gpu("gpu-1", "v100", "80Gi")),
        )
    ),
    "a value in another case": Case(
        (
            *wants(request(selectors=[f'{MODEL} in ["Flex-h100", "flex-A100"]'])),
            node("a"),
            pool("a", *gpus(1, model="Flex-A100")),
        )
    ),
    "a version that is too new": Case(
        (
            *wants(request(selectors=[f'{VERSION}.isGreaterThan(semver("3.0.0"))'])),
            node("a"),
            pool("a", gpu("gpu-0", **versioned("1.9.0")), gpu("gpu-1", **versioned("2.5.0"))),
        )
    ),
    "profiles that there are": Case(
        (
            *wants(request(selectors=[f'{MODEL} == "3g.20gb"'])),
            node("a"),
            pool("a", *(gpu(f"gpu-{n}", f"{n}g.{5 * n}gb") for n in (1, 2, 7))),
        )
    ),
    "more devices of a kind than there are": Case(
        (
            *wants(request(count=2, selectors=[f'{MODEL} == "h100"'])),
            node("a"),
            pool("a", gpu("gpu-0", "a100"), gpu("gpu-1", "v100")),
        )
    ),
    "two requests that are spelt otherwise": Case(
        (
            *wants(*(request(name, selectors=[f'{MODEL} == "A-100"']) for name in ("one", "two"))),
            *two_gpus("a"),
        )
    ),
    "a class's selector": Case(
        (
            device_class(selectors=[f'device.driver == "{DRIVER}"', 'device.driver == "other.example.com"']),
            *wants()[1:],
            node("a"),
            pool("a", *gpus(1)),
        )
    ),
    "an attribute that is spelt otherwise": Case(
        (*wants(request(selectors=[f'device.attributes["{DRIVER}"].modle == "a100"'])), node("a"), pool("a", *gpus(1)))
    ),
    "an attribute of another domain": Case(
        (*wants(request(selectors=['device.attributes["example.com"].model == "a100"'])), *two_gpus("a"))
    ),
    "an attribute that nobody knows": Case(
        (*wants(request(selectors=[f'device.attributes["{DRIVER}"].colour == "red"'])), node("a"), pool("a", *gpus(1)))
    ),
    "an attribute that some devices lack": Case(
        (
            *wants(request(selectors=[f'{MODEL} == "a100" && device.attributes["{DRIVER}"].slot > 0'])),
            *two_gpus("a"),
            node("b"),
            pool("b", gpu("gpu-0", attributes={"slot": {"int": 1}})),
        )
    ),
    "one of two attributes is what devices lack": Case(
        (
            *wants(request(selectors=[f'device.attributes["{DRIVER}"].slot > device.attributes["{DRIVER}"].lane'])),
            node("a"),
            pool(
                "a",
                gpu("gpu-0", attributes={"slot": {"int": 1}}),
                gpu("gpu-1", attributes={"lane": {"int": 1}}),
                gpu("gpu-2", attributes={"slot": {"int": 2}, "lane": {"int": 1}}),
            ),
        )
    ),
    "an attribute that some devices lack, and the others are in use": Case(
        (
            *wants(request(selectors=[f'device.attributes["{DRIVER}"].slot > 0'])),
            *two_gpus("a"),
            node("b"),
            pool("b", gpu("gpu-0", attributes={"slot": {"int": 1}})),
            *held("x", "b/gpu-0", at="b"),
        )
    ),
    "an expression that fails": Case(
        (*wants(request(selectors=[f"{MODEL} > 3"])), node("a"), pool("a", *gpus(1)))
    ),
    "an expression that does not compile": Case(
        (*wants(request(selectors=[f"{MODEL} == "])), node("a"), pool("a", *gpus(1)))
    ),
    "tainted by its driver": Case((*wants(), node("a"), pool("a", gpu("gpu-0", **BROKEN)))),
    "tainted, and the key of the toleration is misspelt": Case(
        (
            *wants(with_fields(request(), tolerations=[{"key": "example.com/broke", "operator": "Exists"}])),
            node("a"),
            pool("a", gpu("gpu-0", **BROKEN)),
        )
    ),
    "tainted by a rule": Case((*wants(), node("a"), pool("a", *gpus(1)), taint_rule("maintenance", pool="a"))),
    "tainted for running pods, too": Case(
        (*wants(), node("a"), pool("a", gpu("gpu-0", **DEAD), gpu("gpu-1", **BROKEN)))
    ),
    "in use and tainted": Case((*wants(), node("a"), pool("a", gpu("gpu-0", **BROKEN)), *held("x", "a/gpu-0"))),
    "not enough capacity": Case(
        (*wants(with_fields(request(), capacity={"requests": {"memory": "80Gi"}})), node("a"), pool("a", *gpus(2)))
    ),
    "no such capacity": Case(
        (*wants(with_fields(request(), capacity={"requests": {"memroy": "20Gi"}})), node("a"), pool("a", *gpus(1)))
    ),
    "too little left of a shared device": Case(
        (
            *wants(with_fields(request(), capacity={"requests": {"bandwidth": "6G"}})),
            node("a"),
            pool("a", {"name": "gpu-0", **SHARED}),
            *consuming("x", "7G"),
        )
    ),
    "too little left of shared devices": Case(
        (
            *wants(with_fields(request(), capacity={"requests": {"bandwidth": "6G", "memory": "1Gi"}})),
            node("a"),
            pool("a", *({"name": f"gpu-{n}", **SHARED_MEMORY} for n in range(2)), {**SHARED, "name": "gpu-2"}),
            *(each for n in range(1, 8) for each in consuming(f"x{n}", f"{n * 250}M", memory="1Gi")),
            *(each for n in range(2) for each in consuming(f"y{n}", "4G", "a/gpu-1", memory="2Gi")),
            *consuming("z", "10G", "a/gpu-2"),
        )
    ),
    "a share that is kept for a nominated pod": Case(
        (
            *wants(with_fields(request(), capacity={"requests": {"bandwidth": "6G"}})),
            node("a"),
            pool("a", {"name": "gpu-0", **SHARED}),
            *consuming("x", "1G"),
            claim("theirs", with_fields(request(), capacity={"requests": {"bandwidth": "7G"}})),
            pod("first", "theirs", nominated="a", priority=9),
        )
    ),
    "less of two capacities": Case(
        (
            *wants(with_fields(request(), capacity={"requests": {"bandwidth": "11G", "memory": "80Gi"}})),
            node("a"),
            pool("a", {"name": "gpu-0", **SHARED_MEMORY}),
        )
    ),
    "a share, where the request names no amount": Case(
        (*wants(), node("a"), pool("a", {"name": "gpu-0", **SHARED}), *consuming("x", "7G"))
    ),
    "an amount that devices round up": Case(
        (
            *wants(with_fields(request(), capacity={"requests": {"memory": "45Gi"}})),
            node("a"),
            pool(
                "a",
                {
                    "name": "gpu-0",
                    "allowMultipleAllocations": True,
                    "capacity": {
                        "memory": {
                            "value": "80Gi",
                            "requestPolicy": {
                                "default": "10Gi",
                                "validRange": {"min": "10Gi", "max": "80Gi", "step": "10Gi"},
                            },
                        }
                    },
                },
            ),
            *sharing("x", memory="40Gi"),
        )
    ),
    "busy devices of the model": Case(
        (
            *wants(request(selectors=[f'{MODEL} == "h100"'])),
            node("a"),
            pool("a", gpu("gpu-0", "h100"), gpu("gpu-1", "h100"), gpu("gpu-2", "a100")),
            *held("x", "a/gpu-0"),
            *held("y", "a/gpu-1"),
        )
    ),
    "requests that different nodes serve": Case(
        (
            *wants(request("h", selectors=[f'{MODEL} == "h100"']), request("v", selectors=[f'{MODEL} == "v100"'])),
            node("a"),
            pool("a", gpu("gpu-0", "h100")),
            node("b"),
            pool("b", gpu("gpu-0", "v100")),
        )
    ),
    "an amount that the policy forbids": Case(
        (
            *wants(with_fields(request(), capacity={"requests": {"bandwidth": "8G"}})),
            node("a"),
            pool(
                "a",
                {
                    "name": "gpu-0",
                    "allowMultipleAllocations": True,
                    "capacity": {
                        "bandwidth": {
                            "value": "10G",
                            "requestPolicy": {"default": "1G", "validValues": ["1G", "2G", "4G"]},
                        }
                    },
                },
            ),
        )
    ),
    "shared counters used up": Case(
        (
            *wants(),
            node("a"),
            *PARTITIONS,
            pool("a", partition("whole", 40), partition("half", 20), resourceSliceCount=2),
            *held("x", "a/half"),
        )
    ),
    "not compatible": Case(
        (
            *wants(request(selectors=[f'"big" in device.attributes["{DRIVER}"]'])),
            node("a"),
            *PARTITIONS,
            pool(
                "a",
                {**partition("whole", 10, compatibilityGroups=["one"]), "attributes": {"big": {"bool": True}}},
                partition("half", 10, compatibilityGroups=["two"]),
                resourceSliceCount=2,
            ),
            *held("x", "a/half"),
        ),
        solver=replace(solver(), features=ALL_FEATURES),
    ),
    "shared counters are off": Case(
        (
            *wants(),
            node("a"),
            *PARTITIONS,
            pool("a", partition("whole", 40), resourceSliceCount=2),
        ),
        solver=featured(partitionable_devices=False),
    ),
    "binding conditions are off": Case(
        (
            *wants(),
            node("a"),
            pool("a", gpu("gpu-0", bindingConditions=["attached"], bindingFailureConditions=["failed"])),
        ),
        solver=featured(binding_conditions=False),
    ),
    "a feature that the node does not declare": Case(
        (*wants(), node("a"), pool("a", *gpus(1), spec=NODE_OPERATIONS)),
        solver=featured(optional_node_operations=True),
    ),
    "not reachable": Case(
        (
            *wants(),
            node("a"),
            {
                **(there := pool("a")),
                "spec": {
                    "driver": DRIVER,
                    "perDeviceNodeSelection": True,
                    "pool": there["spec"]["pool"],
                    "devices": [gpu("gpu-0", nodeName="b"), gpu("gpu-1", nodeName="a")],
                },
            },
            *held("x", "a/gpu-1"),
        )
    ),
}  # fmt: skip
