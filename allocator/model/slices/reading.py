"""ResourceSlices from JSON: pools, devices, their attributes and capacities. `device` reads the other fields.

v1beta1 keeps all of a device but its name in ``basic``.
"""

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any, Final

from allocator.model.devices import AttributeValue, Capacity, DeviceId, Placement, PoolId, RequestPolicy, ValidRange
from allocator.model.json.common import V1BETA1, VERSIONS, node_selector_or_none
from allocator.model.json.interner import Capacities, Interner
from allocator.model.quantity import Quantity
from allocator.model.semver import Version
from allocator.model.slices.device import Device, read_counters, read_fields
from allocator.model.slices.slice import Slice
from allocator.tools.fields import Fields, ObjectReader, is_int64
from allocator.tools.printable import shown

ATTRIBUTE_TYPES: Final = ("string", "int", "bool", "version", "strings", "ints", "bools", "versions")
_KNOWN: Final = frozenset(ATTRIBUTE_TYPES)
_PLACED: Final = frozenset({"nodeName", "nodeSelector", "allNodes"})


def parse_slice(obj: Mapping[str, object], interner: Interner | None = None) -> Slice:
    """A ResourceSlice of v1, v1beta2 or v1beta1.

    Args:
        obj: decoded JSON with its apiVersion.
        interner: shares equal values between slices; without one, within this slice.

    Raises:
        InvalidObjectError: all that is wrong with it.
    """
    reader = ObjectReader("ResourceSlice", obj, VERSIONS)
    spec = reader.top.child("spec")
    pool = spec.child("pool")
    interner = interner if interner is not None else Interner()
    devices = _Devices(
        PoolId(spec.required_text("driver"), pool.required_text("name")),
        interner,
        nested=reader.api_version == V1BETA1,
    )
    parsed = Slice(
        name=reader.name,
        pool=devices.pool,
        generation=pool.integer("generation"),
        slice_count=pool.integer("resourceSliceCount"),
        placement=_placement(spec),
        per_device_placement=spec.flag("perDeviceNodeSelection"),
        devices=tuple(devices.device(d) for d in spec.children("devices")),
        counter_sets=tuple(
            (each.required_text("name"), read_counters(each, interner)) for each in spec.children("sharedCounters")
        ),
        skip_node_operations=spec.texts("skipNodeOperations"),
        partition_type=spec.text("partitionTypeAttribute"),
        created=reader.created,
        revision=reader.metadata.integer("generation", default=1),
    )
    reader.finish()
    return parsed


def _placement(fields: Fields) -> Placement | None:
    if _PLACED.isdisjoint(fields.data):
        return None
    placement = Placement(
        fields.text("nodeName") or None,
        node_selector_or_none(fields, "nodeSelector"),
        fields.flag("allNodes"),
    )
    return placement if placement != Placement() else None


class _Devices:
    """Reads the devices of one slice."""

    def __init__(self, pool: PoolId, interner: Interner, *, nested: bool) -> None:
        interner.trim()
        self.pool = pool
        self._driver = interner.text(pool.driver)
        self._pool = interner.text(pool.pool)
        self._interner = interner
        self._nested = nested
        self._names: dict[str, str] = {}

    def device(self, outer: Fields) -> Device:
        """One device."""
        fields = outer.child("basic") if self._nested else outer
        capacity, quantities = self._capacities(fields)
        return Device(
            id=DeviceId(self._driver, self._pool, self._interner.text(outer.required_text("name"))),
            attributes=self._attributes(fields),
            capacity=capacity,
            quantities=quantities,
            placement=_placement(fields),
            **read_fields(fields, self._interner),
        )

    def _attributes(self, fields: Fields) -> Mapping[str, AttributeValue]:
        """Qualified name to value; a name that is published with the driver's domain wins over the name alone.

        A value of an unknown type becomes an empty list, which matches nothing.
        """
        found = self._interner.attributes_of(self._driver)
        source: list[Hashable] = []
        names, interner = self._names, self._interner
        for name, data in fields.mapping("attributes").items():
            kind, raw = _only_value(data)
            if kind is None:
                fields.problem(f"attributes[{name}]", f"{shown(data)} is not exactly one value{_meant(data)}")
                continue
            if not kind:
                qualified = self._qualified(name)
                found.setdefault(qualified, ())
                source += (qualified,)
                continue
            try:
                value: AttributeValue = _READERS[kind](interner, raw)
            except ValueError as error:
                fields.problem(f"attributes[{name}].{kind}", str(error))
                continue
            qualified = names.get(name) or self._qualified(name)
            if name == qualified or qualified not in found:
                found[qualified] = value
                source += (qualified, kind, raw if type(raw) is str else str(value) if kind == "versions" else value)
        return self._interner.attributes.setdefault(tuple(source), found)

    def _qualified(self, name: str) -> str:
        found = self._names[name] = self._interner.qualified(self._driver, name)
        return found

    def _capacities(self, fields: Fields) -> Capacities:
        amounts = _plain_amounts(fields.data.get("capacity"))
        key = None if amounts is None else (self._driver, *amounts)
        known = self._interner.plain_capacities.get(key)
        if known is not None:
            return known
        found = self._read_capacities(fields)
        if key is not None and not fields.problems:
            self._interner.plain_capacities[key] = found
        return found

    def _read_capacities(self, fields: Fields) -> Capacities:
        capacity: dict[str, Capacity] = {}
        quantities: dict[str, Quantity] = {}
        source: list[Hashable] = [self._driver]
        for name, each in fields.entries("capacity", "value"):
            value = self._interner.read(each, "value")
            policy = self._policy(each)
            capacity[self._interner.text(name)] = Capacity(value, policy)
            source += (name, value, value.format, policy)
            qualified = self._interner.qualified(self._driver, name)
            if name == qualified or qualified not in quantities:
                quantities[qualified] = value
        return self._interner.capacities.setdefault(tuple(source), (capacity, quantities))

    def _policy(self, capacity: Fields) -> RequestPolicy | None:
        fields = capacity.child_or_none("requestPolicy")
        if fields is None:
            return None
        quantities = self._interner
        return RequestPolicy(
            quantities.read_or_none(fields, "default"),
            quantities.read_list(fields, "validValues"),
            self._range(fields),
        )

    def _range(self, policy: Fields) -> ValidRange | None:
        fields = policy.child_or_none("validRange")
        if fields is None:
            return None
        quantities = self._interner
        return ValidRange(
            quantities.read(fields, "min"),
            quantities.read_or_none(fields, "max"),
            quantities.read_or_none(fields, "step"),
        )


def _plain_amounts(capacity: object) -> list[str] | None:
    """Names and amounts of capacities that are texts without a policy, in turn; None if there are others."""
    if not isinstance(capacity, dict):
        return None
    found: list[str] = []
    for name, each in capacity.items():
        amount = each.get("value") if isinstance(each, dict) and len(each) == 1 else None
        if not isinstance(amount, str):
            return None
        found += (name, amount)
    return found


def _only_value(attribute: object) -> tuple[str | None, object]:
    """The type and the value of an attribute. The type is empty if it is unknown, and None if there are two or none."""
    if not isinstance(attribute, dict):
        return None, None
    if len(attribute) == 1:
        [(kind, value)] = attribute.items()
        return (kind, value) if kind in _KNOWN and value is not None else _UNKNOWN
    known = [(kind, value) for kind, value in attribute.items() if kind in _KNOWN and value is not None]
    if len(known) > 1:
        return None, None
    return known[0] if known else _UNKNOWN


_UNKNOWN: Final = "", None


def _meant(data: object) -> str:
    """The way to write a value that stands without its type."""
    kind = next((kind for of, kind in ((bool, "bool"), (int, "int"), (str, "string")) if isinstance(data, of)), "")
    return f"; write {{{kind}: {shown(data)}}}" if kind else ""


def _text(interner: Interner, raw: object) -> str:
    if not isinstance(raw, str):
        raise _not(raw, "a string")
    return interner.text(raw)


def _integer(_: Interner, raw: object) -> int:
    if not is_int64(raw):
        raise _not(raw, "a whole number of 64 bits")
    return raw


def _boolean(_: Interner, raw: object) -> bool:
    if not isinstance(raw, bool):
        raise _not(raw, "true or false")
    return raw


def _version(interner: Interner, raw: object) -> Version:
    return interner.version(_text(interner, raw))


def _list(read: Callable[[Interner, object], Any], interner: Interner, raw: object) -> tuple[Any, ...]:
    if not isinstance(raw, list):
        raise _not(raw, "a list")
    return tuple([read(interner, each) for each in raw])


def _not(raw: object, what: str) -> ValueError:
    return ValueError(f"{shown(raw)} is not {what}")


_SCALARS: Final[Mapping[str, Callable[[Interner, object], Any]]] = {
    "string": _text,
    "int": _integer,
    "bool": _boolean,
    "version": _version,
}
_READERS: Final[Mapping[str, Callable[[Interner, object], Any]]] = {
    **_SCALARS,
    **{f"{kind}s": partial(_list, read) for kind, read in _SCALARS.items()},
}
"""The function that reads a value of each type. A table of bound methods in each `_Devices` would be garbage in cycles.
Until that garbage is collected, the attributes of devices would be scattered over the memory. Then the first pods take
a fifth longer."""
