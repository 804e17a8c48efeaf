"""Rules for device classes and for DeviceTaintRules."""

from collections.abc import Callable

from allocator.model import field_rules as rules
from allocator.tools.fields import Fields
from allocator.tools.names import Rule, dns_label, driver_name, extended_resource, pool_name


def check_class(spec: Fields, check: Callable[[str], str | None] | None) -> None:
    """The spec of a DeviceClass."""
    rules.selectors(spec, check)
    for config in rules.children(spec, "config", rules.MAX_CONFIG):
        rules.opaque(config)
    rules.text(spec, "extendedResourceName", extended_resource, required=spec.has("extendedResourceName"))


def check_taint_rule(spec: Fields) -> None:
    """The spec of a DeviceTaintRule."""
    selector = spec.child("deviceSelector")
    named: dict[str, Rule] = {"driver": driver_name, "pool": pool_name, "device": dns_label}
    for name, rule in named.items():
        rules.text(selector, name, rule, required=selector.has(name))
    rules.taint(spec.child("taint"))
