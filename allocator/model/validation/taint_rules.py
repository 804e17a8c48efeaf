"""Rules for DeviceTaintRules."""

from allocator.model import field_rules as rules
from allocator.tools.fields import Fields
from allocator.tools.names import Rule, dns_label, driver_name, pool_name


def check_taint_rule(spec: Fields) -> None:
    """The spec of a DeviceTaintRule."""
    selector = spec.child("deviceSelector")
    named: dict[str, Rule] = {"driver": driver_name, "pool": pool_name, "device": dns_label}
    for name, rule in named.items():
        rules.text(selector, name, rule, required=selector.has(name))
    rules.taint(spec.child("taint"))
