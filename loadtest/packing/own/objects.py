"""A scenario as API objects: slices as drivers write them, and a claim template for each kind of pod."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from loadtest.packing.own.scenario import Ask, Class, CounterKey, Device, Machine, PodKind, Scenario, Value
from tests.kit.objects.parts import Object, api_object, claim_spec, exactly, selectors, slice_spec

NAMESPACE: Final = "default"
_CLAIM: Final = "devices"


def cluster_objects(scenario: Scenario, nodes: Mapping[str, Machine]) -> Iterator[Object]:
    """The device classes, the claim templates, and the nodes with their slices."""
    for each in scenario.classes:
        yield api_object("DeviceClass", each.name, spec={"selectors": selectors(_members(each))})
    for kind in scenario.kinds:
        constraints = {"constraints": [{"matchAttribute": kind.match}]} if kind.match else {}
        spec = claim_spec([_request(ask) for ask in kind.asks], **constraints)
        yield api_object("ResourceClaimTemplate", kind.name, namespace=NAMESPACE, spec={"spec": spec})
    for name, machine in nodes.items():
        yield api_object("Node", name)
        yield from _slices(name, machine)


def pod_object(name: str, kind: PodKind) -> Object:
    """A pod with one claim."""
    container = {"name": "main", "image": "registry.example.com/image:1", "resources": {"claims": [{"name": _CLAIM}]}}
    claims = [{"name": _CLAIM, "resourceClaimTemplateName": kind.name}]
    return api_object("Pod", name, namespace=NAMESPACE, spec={"containers": [container], "resourceClaims": claims})


def _members(of: Class) -> str:
    driver = f"device.driver == '{of.driver}'"
    return f"{driver} && device.attributes['{of.driver}'].type == '{of.kind}'" if of.kind else driver


def _request(ask: Ask) -> Object:
    least = [
        f"device.capacity['{ask.of.driver}'].{name}.compareTo(quantity('{amount}')) >= 0"
        for name, amount in ask.least.items()
    ]
    share = {"capacity": {"requests": _texts(ask.share)}} if ask.share else {}
    return exactly(ask.name, ask.of.name, ask.count, *([" && ".join(least)] if least else []), **share)


def _slices(node: str, machine: Machine) -> Iterator[Object]:
    """For each driver one slice; or one for all counter sets, and one for the devices of each counter set."""
    for driver in dict.fromkeys(device.driver for device in machine.devices):
        groups: dict[str, list[Device]] = {}
        for device in machine.devices:
            if device.driver == driver:
                groups.setdefault(next((name for name, _ in device.counters), ""), []).append(device)
        specs: list[dict[str, object]] = []
        if machine.counters:
            specs.append({"sharedCounters": list(_counter_sets(machine.counters))})
        specs += [{"devices": [_device(each) for each in group]} for group in groups.values()]
        for number, part in enumerate(specs):
            spec = slice_spec(node, [], driver=driver, slices=len(specs), nodeName=node)
            del spec["devices"]
            yield api_object("ResourceSlice", f"{node}-{driver}-{number}", spec=spec | part)


def _counter_sets(counters: Mapping[CounterKey, int]) -> Iterator[Object]:
    for counter_set in dict.fromkeys(name for name, _ in counters):
        yield {"name": counter_set, "counters": _of_set(counter_set, counters)}


def _of_set(counter_set: str, counters: Mapping[CounterKey, int]) -> Object:
    return _values({name: amount for (of, name), amount in counters.items() if of == counter_set})


def _device(device: Device) -> Object:
    found: Object = {
        "name": device.name,
        "attributes": {name: _typed(value) for name, value in device.attributes.items()},
    }
    if device.capacity:
        found["capacity"] = _values(device.capacity)
    if device.counters:
        sets: Iterable[str] = dict.fromkeys(name for name, _ in device.counters)
        found["consumesCounters"] = [{"counterSet": name, "counters": _of_set(name, device.counters)} for name in sets]
    return found | ({"allowMultipleAllocations": True} if device.shared else {})


def _typed(value: Value) -> Object:
    types = {bool: "bool", int: "int", str: "string"}
    return {types[type(value)]: value}


def _values(amounts: Mapping[str, int]) -> Object:
    return {name: {"value": text} for name, text in _texts(amounts).items()}


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}
