"""Rules for device classes."""

from collections.abc import Callable

from allocator.model import field_rules as rules
from allocator.tools.fields import Fields
from allocator.tools.names import extended_resource


def check_class(spec: Fields, check: Callable[[str], str | None] | None) -> None:
    """The spec of a DeviceClass."""
    rules.selectors(spec, check)
    for config in rules.children(spec, "config", rules.MAX_CONFIG):
        rules.opaque(config)
    rules.text(spec, "extendedResourceName", extended_resource, required=spec.has("extendedResourceName"))
