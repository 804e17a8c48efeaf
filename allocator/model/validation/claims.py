"""Rules for claims, claim templates, device classes and DeviceTaintRules."""

from collections.abc import Callable, Mapping
from typing import Final

from allocator.model import field_rules as rules
from allocator.model.allocations import FROM_CLAIM, FROM_CLASS
from allocator.model.claims import MAX_CONSTRAINTS, MAX_RESULTS, AllocationMode, ConstraintKind
from allocator.tools.fields import Fields
from allocator.tools.names import (
    Rule,
    dns_label,
    dns_subdomain,
    driver_name,
    extended_resource,
    full_name,
    pool_name,
    uid,
)

_MAX_ALTERNATIVES: Final = 8
_MAX_TOLERATIONS: Final = 16
_MAX_DERIVED: Final = 32
_MAX_CONSUMERS: Final = 256
_CONSTRAINTS: Final = tuple(kind.value for kind in ConstraintKind)

Check = Callable[[str], str | None]


class ClaimRules:
    """Checks the spec and status of a claim; both refer to the names of its requests.

    Args:
        spec: the fields of the claim's spec.
        flat: requests have the fields of ``exactly`` themselves (v1beta1).
        check: returns what is wrong with a selector; None if nothing is.
    """

    def __init__(self, spec: Fields, *, flat: bool, check: Check | None) -> None:
        self._devices = spec.child("devices")
        self._requests = self._devices.children("requests")
        self._flat = flat
        self._check = check
        self._names = _request_names(self._requests)

    def check_spec(self) -> None:
        """Requests, constraints and configuration."""
        for request in rules.children(self._devices, "requests", rules.MAX_REQUESTS, key="name"):
            self._request(request)
        for constraint in rules.children(self._devices, "constraints", MAX_CONSTRAINTS):
            self._references(constraint)
            _constraint(constraint)
        for config in rules.children(self._devices, "config", rules.MAX_CONFIG):
            self._references(config)
            rules.opaque(config)

    def check_status(self, status: Fields) -> None:
        """Consumers and the allocation."""
        for consumer in rules.children(status, "reservedFor", _MAX_CONSUMERS, key="uid"):
            for name in ("resource", "name", "uid"):
                consumer.required_text(name)
        if status.children("reservedFor") and not status.has("allocation"):
            status.problem("reservedFor", "is only allowed with an allocation")
        self._allocation(status.child("allocation"))

    def _request(self, request: Fields) -> None:
        rules.text(request, "name", dns_label)
        for alternative in rules.children(request, "firstAvailable", _MAX_ALTERNATIVES, key="name"):
            rules.text(alternative, "name", dns_label)
            self._alternative(alternative)
        if request.children("firstAvailable"):
            return
        if self._flat:
            self._alternative(request)
        elif request.has("exactly"):
            self._alternative(request.child("exactly"))
        else:
            request.problem("", "exactly one of exactly and firstAvailable is required")

    def _alternative(self, fields: Fields) -> None:
        rules.text(fields, "deviceClassName", dns_subdomain)
        rules.selectors(fields, self._check)
        rules.one_of(fields, "allocationMode", [mode.value for mode in AllocationMode], required=False)
        takes_all, count = fields.text("allocationMode") == AllocationMode.ALL.value, fields.integer("count")
        if takes_all and count:
            fields.problem("count", f"{count} is not allowed with allocationMode All")
        elif count < 0 and not takes_all:
            fields.problem("count", f"{count} is not greater than zero")
        for each in rules.children(fields, "tolerations", _MAX_TOLERATIONS):
            rules.toleration(each)
        self._derived(fields)

    def _derived(self, fields: Fields) -> None:
        """Derived attributes: each must be named by a constraint."""
        wanted = {c.text(kind) for c in self._devices.children("constraints") for kind in _CONSTRAINTS}
        for each in rules.children(fields, "derivedAttributes", _MAX_DERIVED, key="name"):
            rules.text(each, "name", full_name)
            rules.expression(each, None)
            if each.text("name") not in wanted:
                each.problem("name", f'"{each.text("name")}" is not named by a constraint')

    def _references(self, fields: Fields) -> None:
        """The requests that a constraint or configuration is for."""
        rules.distinct_texts(fields, "requests", rules.MAX_REQUESTS, self._reference)

    def _reference(self, name: str) -> str:
        request, slash, alternative = name.partition("/")
        known = request in self._names and (not slash or alternative in self._names[request])
        return "" if known else "is not a request of the claim, or a request / subrequest"

    def _allocation(self, allocation: Fields) -> None:
        devices = allocation.child("devices")
        for result in rules.children(devices, "results", MAX_RESULTS):
            rules.text(result, "request", self._reference)
            rules.text(result, "driver", driver_name)
            rules.text(result, "pool", pool_name)
            rules.text(result, "device", dns_label)
            rules.text(result, "shareID", uid, required=False)
            rules.binding_conditions(result)
        for config in rules.children(devices, "config", 2 * rules.MAX_CONFIG):
            rules.one_of(config, "source", (FROM_CLASS, FROM_CLAIM))
            self._references(config)
            rules.opaque(config)
        if allocation.has("nodeSelector"):
            rules.node_selector(allocation.child("nodeSelector"))


def _request_names(requests: list[Fields]) -> Mapping[str, frozenset[str]]:
    """Request to the names of its subrequests."""
    return {
        request.text("name"): frozenset(sub.text("name") for sub in request.children("firstAvailable"))
        for request in requests
    }


def _constraint(constraint: Fields) -> None:
    chosen = [kind for kind in _CONSTRAINTS if constraint.has(kind)]
    if len(chosen) != 1:
        constraint.problem("", f"exactly one of {' and '.join(_CONSTRAINTS)} is required")
    for kind in chosen:
        rules.text(constraint, kind, full_name)


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
