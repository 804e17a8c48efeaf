"""Counters that a device consumes of its pool (KEP-4815), and counter sets."""

from collections.abc import Mapping
from typing import Final

from allocator.model import field_rules as rules
from allocator.model.devices import CounterConsumption
from allocator.model.json.interner import Interner
from allocator.model.quantity import Quantity
from allocator.model.slices.device_fields.field import DeviceField
from allocator.tools.fields import Fields
from allocator.tools.names import dns_label

_MAX_COUNTERS: Final = 32
_MAX_CONSUMED_SETS: Final = 2
_MAX_GROUPS: Final = 2


def read_counters(fields: Fields, interner: Interner) -> Mapping[str, Quantity]:
    """Counter to amount, of a counter set or of what is consumed of one."""
    found = {interner.text(name): interner.read(each, "value") for name, each in fields.entries("counters", "value")}
    return interner.counters.setdefault(tuple(found.items()), found)


def check_counters(fields: Fields) -> None:
    """The counters of a counter set, or of what is consumed of one."""
    counters = fields.mapping("counters")
    if not counters:
        fields.problem("counters", "is required")
    if rules.sized(fields, "counters", len(counters), _MAX_COUNTERS):
        for name in counters:
            rules.told(fields, f"counters[{name}]", name, dns_label(name))


def _read(device: Fields, interner: Interner) -> tuple[CounterConsumption, ...]:
    return tuple(_consumption(each, interner) for each in device.children("consumesCounters"))


def _consumption(fields: Fields, interner: Interner) -> CounterConsumption:
    return CounterConsumption(
        interner.text(fields.required_text("counterSet")),
        read_counters(fields, interner),
        fields.texts("compatibilityGroups"),
    )


def _check(device: Fields) -> None:
    for each in rules.children(device, "consumesCounters", _MAX_CONSUMED_SETS, key="counterSet"):
        rules.text(each, "counterSet", dns_label)
        check_counters(each)
        rules.distinct_texts(each, "compatibilityGroups", _MAX_GROUPS, dns_label)


CONSUMES_COUNTERS: Final = DeviceField("consumes_counters", "consumesCounters", _read, _check)
