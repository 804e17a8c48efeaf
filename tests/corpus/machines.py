"""Nodes, device classes and pools of devices, drawn at random from what a world has."""

from collections.abc import Iterator
from typing import Any, Final

from tests.corpus.chance import Draw
from tests.kit.clusters import CREATED, DRIVER, Object, claim, device_class, node, pod, taint_rule
from tests.kit.objects.parts import api_object, slice_spec

OWN: Final = f'device.attributes["{DRIVER}"]'
MEMORY: Final = f'device.capacity["{DRIVER}"].memory'
EXTENDED: Final = "example.com/gpu"
PLUGIN: Final = "plugin.example.com/nic"
GROUP: Final = "example.com/machine"
ZONE: Final = "zone"
ATTACHED: Final = "example.com/attached"
BROKEN: Final = "example.com/broken"
CONTROLLER: Final = "licenses.example.com"
CONTEXTS: Final = "contexts.example.com"
_ROOT: Final = "root"
_RANGE: Final[Object] = {"default": "1G", "validRange": {"min": "1G", "max": "6G", "step": "1G"}}
_VALUES: Final[Object] = {"default": "1G", "validValues": ["1G", "2G", "4G"]}


def raw(kind: str, name: str, *, namespace: str = "", **fields: Any) -> Object:
    """An object that an API server has, with a uid of its own."""
    metadata = {"uid": f"uid-{kind.lower()}-{name}", "creationTimestamp": CREATED, **fields.pop("metadata", {})}
    return api_object(kind, name, namespace=namespace, metadata=metadata, **fields)


def classes(draw: Draw, has: frozenset[str]) -> list[Object]:
    """The device classes that pods ask for, and what makes them."""
    found = [
        device_class(
            selectors=[f'device.driver == "{DRIVER}"'], extended=EXTENDED if "extended resources" in has else None
        ),
        device_class("large", selectors=[f'{MEMORY}.compareTo(quantity("60Gi")) >= 0']),
        device_class("h100", selectors=[f'{OWN}.model == "h100"']),
    ]
    if draw(0.3):
        found[0]["spec"]["config"] = [{"opaque": {"driver": DRIVER, "parameters": {"mode": "fast"}}}]
    if "negotiated" in has:
        found.append(_negotiated("license", CONTROLLER))
    if "contexts" in has:
        found.append(_negotiated("composed", CONTEXTS))
    if "resource classes" in has:
        found += _resource_classes(draw)
    return found


def _negotiated(name: str, controller: str) -> Object:
    found = device_class(name)
    found["metadata"]["annotations"] = {"dra-extender.dev/controller": controller}
    return found


def _resource_classes(draw: Draw) -> Iterator[Object]:
    operator, value = draw.of([("Gt", "30G"), ("In", "80Gi"), ("Gt", "lots")])
    requirement = {"key": "memory", "operator": operator, "values": [value]}
    spec: Object = {"resourceName": EXTENDED, "resourceSelector": [{"matchExpressions": [requirement]}]}
    yield raw("ResourceClass", "gold", spec=spec)
    members = {"gpu": 1, "large": 1}
    yield raw("ResourceClass", "pair", spec={"members": members, "matchAttribute": f"{DRIVER}/{_ROOT}"})


def machine(draw: Draw, name: str, has: frozenset[str]) -> list[Object]:
    """A node, and what its drivers publish."""
    labels = {ZONE: draw.of("ab"), GROUP: draw.of(["falcon", "eagle"])}
    allocatable = {"cpu": draw.of(["4", "8", "16"]), "memory": "64Gi", "pods": "110"}
    if draw(0.3):
        allocatable |= {PLUGIN: draw.of("012"), EXTENDED: draw.of("01")}
    found = node(name, labels=labels, allocatable=allocatable)
    spec: Object = {}
    if draw(0.1):
        spec["taints"] = [{"key": "team", "value": "ml", "effect": "NoSchedule"}]
    if draw(0.04):
        spec["unschedulable"] = True
        spec["taints"] = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
    found["spec"] = spec
    if draw(0.7):
        found["status"]["declaredFeatures"] = ["DRAOptionalNodeOperations"]
    return [found, *pool(draw, name, has, nodeName=name)]


def pool(draw: Draw, name: str, has: frozenset[str], **place: Any) -> list[Object]:
    """The slices of a pool; now and then one is missing, or wrong."""
    devices = [device(draw, f"gpu-{number}", has) for number in range(draw.number(1, 4))]
    if "per-device places" in has and draw(0.5):
        place = {"perDeviceNodeSelection": True}
        for each in devices:
            each.update(draw.of([{"nodeName": name}, {"allNodes": True}, _in_zone(draw.of("ab"))]))
    counted = any("consumesCounters" in each for each in devices)
    mistake = draw.number(0, 60)
    number = 1 + counted + (mistake == 0)
    spec = slice_spec(name, devices, slices=number, **place)
    if "node operations" in has and draw(0.4):
        spec["skipNodeOperations"] = ["NodePrepareResources", "NodeUnprepareResources"]
    found = [raw("ResourceSlice", f"slice-{name}", spec=spec)]
    if counted and mistake != 1:
        amount = draw.of(["80", "80", "120"])
        sets = [{"name": each, "counters": {"memory": {"value": amount}}} for each in ("left", "right")]
        counters = {**slice_spec(name, [], slices=number, **place), "sharedCounters": sets}
        del counters["devices"]
        found.append(raw("ResourceSlice", f"slice-{name}-counters", spec=counters))
    if mistake == 2:
        again = slice_spec(name, devices[:1], slices=number, **place)
        found.append(raw("ResourceSlice", f"slice-{name}-again", spec=again))
    return found


def _in_zone(zone: str) -> Object:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    return {"nodeSelector": {"nodeSelectorTerms": [term]}}


def network_pools(draw: Draw, has: frozenset[str]) -> list[Object]:
    """Pools that several nodes reach."""
    found = pool(draw, "net", has - {"per-device places"}, allNodes=True) if draw(0.6) else []
    return found + (pool(draw, "zone-a", has - {"per-device places"}, **_in_zone("a")) if draw(0.5) else [])


def device(draw: Draw, name: str, has: frozenset[str]) -> Object:
    """A device of some model, with what the features of a world add to it."""
    memory = draw.of(["40Gi", "80Gi"])
    attributes: Object = {
        "model": {"string": draw.of(["a100", "a100", "h100"])},
        "index": {"int": draw.number(0, 3)},
        "healthy": {"bool": draw(0.8)},
        "version": {"version": draw.of(["1.0.0", "1.4.2", "2.0.0"])},
        _ROOT: {"string": draw.of(["left", "right"])},
        "uuid": {"string": f"uuid-{draw.number(0, 10**9)}"},
    }
    if "lists" in has and draw(0.5):
        attributes[_ROOT] = {"strings": draw.some(["left", "right", "middle"], 1, 2)}
    if draw(0.1):
        del attributes["index"]
    found: Object = {"name": name, "attributes": attributes, "capacity": {"memory": {"value": memory}}}
    for feature, (add, share) in _ADDED.items():
        if feature in has and draw(share):
            add(draw, found)
    return found


def _taint(draw: Draw, found: Object) -> None:
    effect = draw.of(["NoSchedule", "NoSchedule", "NoExecute", "None", "None"])
    found["taints"] = [{"key": draw.of(["sick", "hot"]), "value": draw.of(["", "fan"]), "effect": effect}]


def _share(draw: Draw, found: Object) -> None:
    policy = draw.of([None, _VALUES, _RANGE])
    found["allowMultipleAllocations"] = True
    found["capacity"]["bandwidth"] = {"value": "10G"} | ({"requestPolicy": policy} if policy else {})
    found["capacity"]["memory"]["requestPolicy"] = {"default": "1Gi", "validRange": {"min": "1Gi"}}


def _divide(draw: Draw, found: Object) -> None:
    amount = draw.of(["40", "80"])
    found["consumesCounters"] = [{"counterSet": draw.of(["left", "right"]), "counters": {"memory": {"value": amount}}}]


def _group(draw: Draw, found: Object) -> None:
    for each in found.get("consumesCounters", ()):
        each["compatibilityGroups"] = draw.some(["one", "two"], 1)


def _attach(draw: Draw, found: Object) -> None:
    found |= {"bindingConditions": [ATTACHED], "bindingFailureConditions": [BROKEN]}
    if draw(0.5):
        found["bindsToNode"] = True


def _take(draw: Draw, found: Object) -> None:
    taken = [
        {"cpu": {"mapping": {"deviceMultiplier": draw.of(["2", "4"])}}},
        {"memory": {"overhead": {"perPod": "1Gi", "perContainer": "512Mi"}}},
        {"cpu": {"mapping": {"capacityKey": "memory", "capacityMultiplier": "20m"}}},
    ]
    found["nodeAllocatableResources"] = draw.of(taken[:2] if "allowMultipleAllocations" not in found else taken[:1])


_ADDED: Final = {
    "taints": (_taint, 0.35),
    "capacity": (_share, 0.6),
    "partitions": (_divide, 0.7),
    "compatibility": (_group, 0.9),
    "binding conditions": (_attach, 0.5),
    "node resources": (_take, 0.7),
}
"""By feature of a world: what it does to a device, and to how many of all devices."""


def rules(draw: Draw, names: list[str]) -> list[Object]:
    """Taints that an administrator sets."""
    found = [taint_rule("maintenance", driver=DRIVER, pool=draw.of(names))]
    return (
        found if draw(0.5) else [*found, taint_rule("one-device", driver=DRIVER, pool=draw.of(names), device="gpu-0")]
    )


def running(draw: Draw, published: list[Object], has: frozenset[str], share: float) -> list[Object]:
    """Pods that run on nodes with some of the devices there."""
    found: list[Object] = []
    for each in published:
        at = each["spec"].get("nodeName")
        for device in each["spec"].get("devices", ()) if at else ():
            if draw(share) and not ({"consumesCounters", "allNodes", "nodeSelector"} & device.keys()):
                found += _holder(draw, at, device, has)
    return found


def _holder(draw: Draw, at: str, device: Object, has: frozenset[str]) -> list[Object]:
    """A pod with a device of a node, and its claim; or a claim that something else has."""
    name = f"{at}-{device['name']}"
    own = claim(f"{name}-c", allocated=[f"{at}/{device['name']}"], at=at, users=[name])
    own["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    user = pod(name, f"{name}-c", on=at, priority=draw.of([0, 0, 5, 10, 200]), labels={"app": draw.of(["web", "job"])})
    user["status"]["startTime"] = f"2026-01-0{draw.number(1, 9)}T00:00:00Z"
    if device.get("allowMultipleAllocations"):
        (result,) = own["status"]["allocation"]["devices"]["results"]
        consumed = {key: "4G" if key == "bandwidth" else "15Gi" for key in device["capacity"]}
        result |= {"shareID": f"00000000-0000-4000-8000-{draw.number(0, 10**12 - 1):012}", "consumedCapacity": consumed}
    kind = draw.number(0, 9)
    if kind == 0:
        foreign = {"apiGroup": "lab.example.com", "resource": "experiments", "name": "x", "uid": "uid-x"}
        own["status"]["reservedFor"] = [foreign]
        return [own]
    if kind == 1:
        del own["status"]["reservedFor"]
        return [own]
    if kind in (2, 3):
        owner = {"apiVersion": "apps/v1", "kind": draw.of(["ReplicaSet", "DaemonSet"]), "name": "web", "uid": "uid-web"}
        user["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    if "preemption" in has and kind == 4:
        user["metadata"]["finalizers"] = ["example.com/slow"]
    return [user, own]
