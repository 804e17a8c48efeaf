"""The API server's rules for ResourceSlices. `device` has the rules for the optional fields of devices."""

from typing import Final

from allocator.model import field_rules as rules
from allocator.model.json.interner import Interner
from allocator.model.quantity import Quantity
from allocator.model.slices.device import check_counters, check_fields
from allocator.model.slices.reading import ATTRIBUTE_TYPES
from allocator.tools.fields import Fields
from allocator.tools.names import (
    dns_label,
    dns_subdomain,
    driver_name,
    full_name,
    pool_name,
    qualified_name,
    utf8_length,
)
from allocator.tools.printable import shown

_MAX_DEVICES: Final = 128
_MAX_ADVANCED_DEVICES: Final = 64
_MAX_COUNTER_SETS: Final = 8
_MAX_PROPERTIES: Final = 32
_MAX_VALUES: Final = 48
_MAX_ATTRIBUTE_LENGTH: Final = 64
_MAX_VALID_VALUES: Final = 10
_LISTS: Final = frozenset(kind for kind in ATTRIBUTE_TYPES if kind.endswith("s"))
_TYPES: Final = frozenset(ATTRIBUTE_TYPES)
_TEXTS: Final = frozenset({"string", "version"})
_LISTS_OF_TEXTS: Final = frozenset({"strings", "versions"})
_OPERATIONS: Final = ("NodePrepareResources", "NodeUnprepareResources", "*")


def check_slice(spec: Fields, *, nested: bool) -> None:
    """The spec of a ResourceSlice; in v1beta1 devices are ``nested``."""
    rules.text(spec, "driver", driver_name)
    _pool(spec.child("pool"))
    _node_choice(spec, ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"), nested=nested)
    if spec.has("nodeSelector") and len(spec.child("nodeSelector").children("nodeSelectorTerms")) > 1:
        spec.child("nodeSelector").problem("nodeSelectorTerms", "must have one entry")
    if spec.has("sharedCounters") and spec.has("devices"):
        spec.problem("sharedCounters", "can't be in one slice with devices")
    _devices(spec, nested=nested)
    for each in rules.children(spec, "sharedCounters", _MAX_COUNTER_SETS, key="name"):
        rules.text(each, "name", dns_label)
        check_counters(each)
    if spec.has("partitionTypeAttribute"):
        _partition_type(spec, nested=nested)
    _operations(spec)


def _pool(pool: Fields) -> None:
    rules.text(pool, "name", pool_name)
    if pool.integer("resourceSliceCount") <= 0:
        pool.problem("resourceSliceCount", "must be greater than zero")
    if pool.integer("generation") < 0:
        pool.problem("generation", "must not be negative")


def _node_choice(fields: Fields, choices: tuple[str, ...], *, nested: bool) -> None:
    """Exactly one of the fields that say which nodes reach a device."""
    flags = {"perDeviceNodeSelection"} if nested else {"allNodes", "perDeviceNodeSelection"}
    for name in flags.intersection(choices):
        rules.only_true(fields, name)
    if fields.data.get("nodeName") == "" and not nested:
        fields.problem("nodeName", "must not be empty")
    rules.text(fields, "nodeName", dns_subdomain, required=False)
    selector = fields.child_or_none("nodeSelector")
    if selector is not None:
        rules.node_selector(selector)
    chosen = [name for name in choices if fields.data.get(name) not in (None, "", False)]
    if len(chosen) != 1:
        found = f", not {' and '.join(chosen)}" if chosen else ""
        fields.problem("", f"exactly one of {', '.join(choices)} is required{found}")


def _devices(spec: Fields, *, nested: bool) -> None:
    devices = [device.child("basic") if nested else device for device in spec.children("devices")]
    advanced = any(d.children("taints") or d.children("consumesCounters") or _has_lists(d) for d in devices)
    most = _MAX_ADVANCED_DEVICES if advanced else _MAX_DEVICES
    for device in rules.children(spec, "devices", most, key="name"):
        rules.text(device, "name", dns_label)
        fields = device.child("basic") if nested else device
        _device(fields, per_device=spec.flag("perDeviceNodeSelection"), nested=nested)


def _partition_type(spec: Fields, *, nested: bool) -> None:
    """The attribute that groups partitions: each device that consumes counters must have it."""
    rules.text(spec, "partitionTypeAttribute", full_name)
    name = spec.text("partitionTypeAttribute")
    names = (name, name.removeprefix(f"{spec.text('driver')}/"))
    devices = [device.child("basic") if nested else device for device in spec.children("devices")]
    partitions = [device for device in devices if device.children("consumesCounters")]
    if not partitions:
        spec.problem("partitionTypeAttribute", "is only allowed in a slice with devices that consume counters")
    for device in partitions:
        found = [value for key, value in device.entries("attributes") if key in names]
        if not any(value.has("string") for value in found):
            device.problem(f"attributes[{name}]", "must be a string, because partitionTypeAttribute names it")


def _has_lists(device: Fields) -> bool:
    attributes = device.mapping("attributes").values()
    listed = [each for each in attributes if isinstance(each, dict) and not _LISTS.isdisjoint(each)]
    return any(each[kind] is not None for each in listed for kind in each.keys() & _LISTS)


def _device(device: Fields, *, per_device: bool, nested: bool) -> None:
    placed = ("nodeName", "nodeSelector", "allNodes")
    if per_device:
        _node_choice(device, placed, nested=nested)
    else:
        for name in placed:
            if device.has(name):
                device.problem(name, "is only allowed with perDeviceNodeSelection in the slice")
    _properties(device)
    check_fields(device)


def _properties(device: Fields) -> None:
    """Attributes and capacities."""
    published, capacities = device.mapping("attributes"), device.entries("capacity")
    are_plain = all(map(_is_plain, published.values()))
    attributes = {} if are_plain else dict(device.entries("attributes"))
    names = published if are_plain else attributes
    count = len(names) + len(capacities)
    if count > _MAX_PROPERTIES:
        device.problem("", f"has {count} attributes and capacities, more than {_MAX_PROPERTIES}")
    values = len(published) if are_plain else sum(map(_values, attributes.values()))
    if values > _MAX_VALUES:
        device.problem("", f"has {values} values of attributes, more than {_MAX_VALUES}")
    for name in names:
        if wrong := qualified_name(name):
            rules.told(device, f"attributes[{name}]", name, wrong)
    for attribute in attributes.values():
        _attribute(attribute)
    for name, capacity in capacities:
        if wrong := qualified_name(name):
            rules.told(device, f"capacity[{name}]", name, wrong)
        if capacity.has("requestPolicy") and not device.flag("allowMultipleAllocations"):
            capacity.problem("requestPolicy", "is only allowed with allowMultipleAllocations")
        elif capacity.has("requestPolicy"):
            _policy(capacity.child("requestPolicy"), Interner().read_or_none(capacity, "value"))


def _is_plain(attribute: object) -> bool:
    """Whether an attribute is certainly valid: one short value that is no list. A cluster has 100,000 of them."""
    if type(attribute) is not dict or len(attribute) != 1:
        return False
    ((kind, value),) = attribute.items()
    if kind in _TEXTS:
        return type(value) is str and len(value) <= _MAX_ATTRIBUTE_LENGTH and value.isascii()
    return kind in _TYPES and kind not in _LISTS and value is not None


def _values(attribute: Fields) -> int:
    if _LISTS.isdisjoint(attribute.data):
        return 1
    return max(1, sum(len(attribute.items(kind)) for kind in attribute.data if kind in _LISTS))


def _attribute(attribute: Fields) -> None:
    kinds = [kind for kind, value in attribute.data.items() if value is not None and kind in _TYPES]
    if len(kinds) != 1:
        attribute.problem("", "must have exactly one value of a known type")
    for kind in kinds:
        if kind in _TEXTS:
            rules.text(attribute, kind, _attribute_text, required=False)
        elif kind in _LISTS:
            _attribute_list(attribute, kind)


def _attribute_list(attribute: Fields, kind: str) -> None:
    if kind in _LISTS_OF_TEXTS:
        rules.texts(attribute, kind, _attribute_text)
    if not attribute.items(kind):
        attribute.problem(kind, "must not be empty")


def _attribute_text(value: str) -> str:
    too_long = utf8_length(value) > _MAX_ATTRIBUTE_LENGTH
    return f"is longer than {_MAX_ATTRIBUTE_LENGTH} bytes" if too_long else ""


def _policy(policy: Fields, capacity: Quantity | None) -> None:
    """The request policy of a capacity (None: not readable): values or a range, and a default that is one of them."""
    before = len(policy.problems)
    interner = Interner()
    default = interner.read_or_none(policy, "default")
    values = interner.read_list(policy, "validValues")
    listed, ranged = bool(policy.data.get("validValues")), policy.has("validRange")
    if listed and ranged:
        policy.problem("", "only one of validValues and validRange is allowed")
    elif (listed or ranged) and not policy.has("default"):
        policy.problem("default", "is required with validValues or validRange")
    if capacity is None or default is None or len(policy.problems) > before:
        return  # only readable amounts can be compared
    if values:
        _valid_values(policy, values, default, capacity)
    elif ranged:
        _valid_range(policy.child("validRange"), default, capacity)


def _valid_values(policy: Fields, values: tuple[Quantity, ...], default: Quantity, capacity: Quantity) -> None:
    if not rules.sized(policy, "validValues", len(values), _MAX_VALID_VALUES):
        return
    for i, value in enumerate(values):
        if i and value <= values[i - 1]:
            policy.problem(f"validValues[{i}]", f"{value} is not greater than {values[i - 1]} before it")
        if value > capacity:
            policy.problem(f"validValues[{i}]", f"{value} is greater than the capacity, {capacity}")
    if default not in values:
        policy.problem("default", f"{default} is not one of validValues")


def _valid_range(fields: Fields, default: Quantity, capacity: Quantity) -> None:
    before = len(fields.problems)
    interner = Interner()
    least = interner.read(fields, "min")
    most = interner.read_or_none(fields, "max")
    step = interner.read_or_none(fields, "step")
    if len(fields.problems) > before:
        return
    checks = [
        ("min", least.nano < 0, f"{least} is negative"),
        ("min", least > capacity, f"{least} is greater than the capacity, {capacity}"),
        ("min", default < least, f"{least} is greater than the default, {default}"),
    ]
    if most is not None:
        checks += [
            ("max", least > most, f"{most} is less than min, {least}"),
            ("max", most > capacity, f"{most} is greater than the capacity, {capacity}"),
            ("max", default > most, f"{most} is less than the default, {default}"),
        ]
    if step is not None:
        checks.append(
            ("step", least + step > capacity, f"one {step} above min is greater than the capacity, {capacity}")
        )
        checks += [
            ("step", step.nano > 0 and (value - least).nano % step.nano != 0, f"{value} is not min and n times {step}")
            for value in (default, *([] if most is None else [most]))
        ]
        checks.append(("step", step.nano <= 0, f"{step} is not greater than zero"))
    for name, wrong, message in checks:
        if wrong:
            fields.problem(name, message)


def _operations(spec: Fields) -> None:
    operations = spec.texts("skipNodeOperations")
    for i, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            spec.problem(f"skipNodeOperations[{i}]", f"{shown(operation)} is not one of {', '.join(_OPERATIONS)}")
    rules.unique(spec, "skipNodeOperations", operations)
    if _OPERATIONS[0] in operations and not {*_OPERATIONS[1:]}.intersection(operations):
        spec.problem("skipNodeOperations", f"{_OPERATIONS[0]} is only allowed with {_OPERATIONS[1]}")
