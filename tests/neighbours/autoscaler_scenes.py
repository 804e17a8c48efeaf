"""Scenes in which pods wait for devices of nodes that do not exist yet, and the nodes that have to come for them.

The nodes that have to come are counted by hand: no code of the service tells them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from extender.cluster.objects.pods import GROUP, GROUP_SIZE
from tests.extender.autoscaler.scenes import GROUP as NODE_GROUP
from tests.extender.plugins.gangs.test_gangs_pod_groups import pod_group
from tests.kit.clusters import (
    DRIVER,
    Object,
    claim,
    claim_template,
    device_class,
    network_slice,
    node,
    pod,
    request,
)
from tests.kit.objects.mig import partitioned
from tests.kit.objects.parts import claim_spec, exactly, selectors
from tests.kit.objects.quotas import limited, quota

MEMORY: Final = f'device.capacity["{DRIVER}"].memory'
MODEL: Final = f'device.attributes["{DRIVER}"].model'
ROOT: Final = "resource.kubernetes.io/pcieRoot"


@dataclass(frozen=True, slots=True)
class Machines:
    """A node group.

    Attributes:
        slices: entries of a node template: what a node brings.
        cpu: of a node.
        limit: how many nodes may come.
        labels: the labels of a node, beside the label of its group.
        taints: of a node.
    """

    slices: Sequence[Object] = ()
    cpu: int = 64
    limit: int = 10
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Object] = ()

    def node(self, group: str, name: str) -> Object:
        """A node of the group."""
        allocatable = {"cpu": str(self.cpu), "memory": "256Gi", "pods": "110"}
        raw = node(name, labels={NODE_GROUP: group, **self.labels}, allocatable=allocatable)
        return raw | {"spec": {"taints": list(self.taints)}}

    def template(self, group: str) -> Object:
        """What the setting ``autoscaler.nodeTemplates`` says of the group."""
        return {"name": group, "labels": {NODE_GROUP: group}, "slices": list(self.slices)}


@dataclass(frozen=True, slots=True)
class Scene:
    """Pods that wait.

    Attributes:
        groups: by name.
        pods: with objects of the cluster, such as their claims.
        nodes: how many nodes of each group have to come; groups that get none are left out.
        waiting: how many pods no node helps.
        planned: the nodes that ``estimate`` says, if they are others; docs/reference/neighbours.md says why.
    """

    groups: Mapping[str, Machines]
    pods: Sequence[Object]
    nodes: Mapping[str, int]
    waiting: int = 0
    planned: Mapping[str, int] | None = None


def gpus(number: int, **device: Any) -> Machines:
    """Nodes with some equal GPUs each."""
    return Machines([_published({"name": f"gpu-{index}", **device} for index in range(number))])


def _published(devices: Any, driver: str = DRIVER) -> Object:
    return {"driver": driver, "devices": list(devices)}


def of_model(model: str, number: int = 1) -> Machines:
    return gpus(number, attributes={"model": {"string": model}})


def on_roots(number: int) -> Machines:
    """Nodes with a GPU and a NIC on each PCIe root."""
    roots = [{ROOT: {"string": f"pci0000:{index}0"}} for index in range(number)]
    cards = ([{"name": f"{kind}-{at}", "attributes": each} for at, each in enumerate(roots)] for kind in ("gpu", "nic"))
    return Machines([_published(each, driver) for each, driver in zip(cards, (DRIVER, "nic.example.com"), strict=True)])


def mig(number: int) -> Machines:
    """Nodes with some GPUs that can be divided."""
    specs = (each["spec"] for each in partitioned("template", number))
    return Machines(
        [{key: spec[key] for key in ("driver", "devices", "sharedCounters") if key in spec} for spec in specs]
    )


def waiting(
    number: int, *requests: Object, name: str = "p", cpu: int = 1, spec: Mapping[str, Any] | None = None, **devices: Any
) -> list[Object]:
    """Pods with a claim each, for one GPU if there are no requests.

    Args:
        spec: fields of the pods.
        devices: fields of the claims beside the requests.
    """
    found = []
    for each in (f"{name}{index}" for index in range(number)):
        raw = pod(each, f"{each}-c", resources={"cpu": str(cpu)})
        raw["spec"] |= spec or {}
        asked = claim(f"{each}-c")
        asked["spec"] = claim_spec(requests or [request()], **devices)
        found += [raw, asked]
    return found


def gang(size: int, there: int | None = None, kind: str = "annotations") -> list[Object]:
    """A gang of this size. Only ``there`` of its pods exist; None: all of them."""
    found = waiting(size if there is None else there)
    for each in found:
        if each["kind"] == "Pod" and kind == "annotations":
            each["metadata"]["annotations"] = {GROUP: "train", GROUP_SIZE: str(size)}
        elif each["kind"] == "Pod":
            each["spec"]["schedulingGroup"] = {"podGroupName": "train"}
    return found if kind == "annotations" else [*found, pod_group("train", size)]


def extended(number: int, amount: int) -> list[Object]:
    """Pods that ask for an extended resource, which a device class serves."""
    served = device_class("extended", selectors=[f'device.driver == "{DRIVER}"'], extended="example.com/gpu")
    asked = {"cpu": "1", "example.com/gpu": str(amount)}
    return [served, *(pod(f"p{index}", resources=asked) for index in range(number))]


def sharing(number: int) -> list[Object]:
    """Pods that share a claim."""
    return [claim("shared"), *(pod(f"p{index}", "shared", resources={"cpu": "1"}) for index in range(number))]


def from_templates(number: int) -> list[Object]:
    """Pods whose claims are made from a template."""
    found = [claim_template()]
    for index in range(number):
        raw = pod(f"p{index}", resources={"cpu": "1"})
        raw["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
        found.append(raw)
    return found


def without_claims(number: int, cpu: int) -> list[Object]:
    return [pod(f"p{index}", resources={"cpu": str(cpu)}) for index in range(number)]


def attached(number: int) -> Object:
    """Devices that every node reaches."""
    raw = network_slice("fabric", number)
    raw["spec"]["driver"] = "fabric.example.com"
    return raw


def first_of(*alternatives: tuple[str, str]) -> Object:
    """A request with alternatives: their names and selectors."""
    listed = [
        {"name": name, "deviceClassName": "gpu", "selectors": selectors(expression)}
        for name, expression in alternatives
    ]
    return {"name": "gpu", "firstAvailable": listed}


ALL: Final = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}
NIC: Final = exactly("nic", "nic")
FABRIC: Final = exactly("fabric", "fabric")
DISPLAY: Final = {"key": "display", "value": "attached", "effect": "NoSchedule"}
TOLERATED: Final = [{"key": "display", "operator": "Exists"}]
SPOT: Final = {"key": "spot", "effect": "NoSchedule"}
SHARED_MEMORY: Final = gpus(1, allowMultipleAllocations=True, capacity={"memory": {"value": "80Gi"}})
CLASSES: Final = [
    device_class(name, selectors=[f'device.driver == "{name}.example.com"']) for name in ("gpu", "nic", "fabric")
]


def part(memory: str) -> Object:
    """A request for a part of the memory of a device."""
    return exactly("gpu", "gpu", capacity={"requests": {"memory": memory}})


def profile(name: str) -> Object:
    """A request for a partition of a profile."""
    return exactly("gpu", "gpu", 1, f'device.attributes["{DRIVER}"].profile == "{name}"')


SCENES: Final[Mapping[str, Scene]] = {
    "count: two devices for each pod": Scene({"big": gpus(4)}, waiting(3, request(count=2)), {"big": 2}),
    "count: more than a node has": Scene({"big": gpus(4)}, waiting(2, request(count=5)), {}, waiting=2),
    "claims from templates": Scene({"big": gpus(4)}, from_templates(5), {"big": 2}),
    "CEL: the group that has the model": Scene(
        {"old": of_model("t4", 8), "new": of_model("h100", 2)},
        waiting(3, request(selectors=[f'{MODEL} == "h100"'])),
        {"new": 2},
    ),
    "CEL: a model that no group has": Scene(
        {"old": of_model("t4", 8)}, waiting(2, request(selectors=[f'{MODEL} == "h100"'])), {}, waiting=2
    ),
    "all devices of a node": Scene({"big": gpus(4)}, waiting(2, ALL), {"big": 2}),
    "firstAvailable: the second choice, where no group has the first": Scene(
        {"old": of_model("t4", 2)},
        waiting(3, first_of(("best", f'{MODEL} == "h100"'), ("good", f'{MODEL} == "t4"'))),
        {"old": 2},
    ),
    "firstAvailable: groups for both choices": Scene(
        {"new": replace(of_model("h100"), limit=1), "old": of_model("t4")},
        waiting(3, first_of(("best", f'{MODEL} == "h100"'), ("good", f'{MODEL} == "t4"'))),
        {"old": 3},
        planned={"new": 1, "old": 2},
    ),
    "a shared claim": Scene({"small": gpus(1)}, sharing(5), {"small": 1}),
    "partitions of one profile": Scene({"mig": mig(1)}, waiting(9, profile("1g.5gb")), {"mig": 2}),
    "partitions of two profiles": Scene(
        {"mig": mig(1)},
        [*waiting(2, profile("4g.20gb"), name="four"), *waiting(2, profile("3g.20gb"), name="three")],
        {"mig": 2},
    ),
    "parts of a capacity": Scene({"shared": SHARED_MEMORY}, waiting(5, part("30Gi")), {"shared": 3}),
    "more than the capacity": Scene({"shared": SHARED_MEMORY}, waiting(1, part("90Gi")), {}, waiting=1),
    "extended resources": Scene({"big": gpus(4)}, extended(5, 2), {"big": 3}),
    "extended resources: the group with the larger nodes": Scene(
        {"small": gpus(1), "big": gpus(4)}, extended(4, 1), {"big": 1}
    ),
    "a gang": Scene({"big": gpus(4)}, gang(6), {"big": 2}),
    "a gang, as a PodGroup": Scene({"big": gpus(4)}, gang(6, kind="PodGroup"), {"big": 2}),
    "three pods of a gang of four": Scene({"big": gpus(4)}, gang(4, 3), {}, waiting=3),
    "a gang that is too large": Scene({"small": gpus(1)}, gang(24), {}, waiting=24),
    "a gang for two groups": Scene(
        {"big": replace(gpus(4), limit=1), "small": gpus(1)}, gang(6), {"big": 1, "small": 2}
    ),
    "a quota with room for one": Scene(
        {"small": gpus(1)}, [*waiting(5), quota(limited(devices=1))], {"small": 1}, waiting=4
    ),
    "a quota that is used up": Scene({"small": gpus(1)}, [*waiting(5), quota(limited(devices=0))], {}, waiting=5),
    "network-attached devices": Scene(
        {"bare": Machines(cpu=2)}, [*waiting(5, FABRIC), attached(3)], {"bare": 2}, waiting=2
    ),
    "network-attached devices and those of nodes": Scene(
        {"bare": Machines(), "small": gpus(1)}, [*waiting(3, request(), FABRIC), attached(2)], {"small": 2}, waiting=1
    ),
    "a GPU and a NIC on one PCIe root": Scene(
        {
            "apart": Machines([*gpus(4).slices, _published([{"name": "nic-0"}], "nic.example.com")]),
            "roots": on_roots(2),
        },
        waiting(3, request(), NIC, constraints=[{"requests": ["gpu", "nic"], "matchAttribute": ROOT}]),
        {"roots": 2},
    ),
    "different PCIe roots": Scene(
        {"roots": on_roots(2)},
        waiting(2, request(count=2), constraints=[{"requests": ["gpu"], "distinctAttribute": ROOT}]),
        {"roots": 2},
    ),
    "a device with a taint": Scene({"display": gpus(1, taints=[DISPLAY])}, waiting(2), {}, waiting=2),
    "a device with a taint that is tolerated": Scene(
        {"display": gpus(1, taints=[DISPLAY])}, waiting(2, exactly("gpu", "gpu", tolerations=TOLERATED)), {"display": 2}
    ),
    "a node with a taint": Scene(
        {"spot": Machines(gpus(4).slices, taints=[SPOT]), "small": gpus(1)}, waiting(2), {"small": 2}
    ),
    "a node selector": Scene(
        {
            "west": Machines(gpus(4).slices, labels={"zone": "west"}),
            "east": Machines(gpus(1).slices, labels={"zone": "east"}),
        },
        waiting(2, spec={"nodeSelector": {"zone": "east"}}),
        {"east": 2},
    ),
    "CPU is the scarce thing": Scene({"big": Machines(gpus(4).slices, cpu=4)}, waiting(3, cpu=3), {"big": 3}),
    "pods of two kinds, a group for each": Scene(
        {"old": of_model("t4", 2), "new": of_model("h100", 2)},
        [
            *waiting(3, request(selectors=[f'{MODEL} == "h100"']), name="new"),
            *waiting(2, request(selectors=[f'{MODEL} == "t4"']), name="old"),
        ],
        {"old": 1, "new": 2},
    ),
    "a group that may grow by one": Scene(
        {"big": replace(gpus(4), limit=1), "small": gpus(1)}, waiting(6), {"big": 1, "small": 2}
    ),
    "pods without devices": Scene({"big": gpus(4), "bare": Machines(cpu=4)}, without_claims(3, 2), {"bare": 2}),
}
