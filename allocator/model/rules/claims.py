"""Rules for claims, claim templates, device classes and taint rules."""

from collections.abc import Callable, Mapping
from typing import Final

from allocator.model.json.fields import Fields
from allocator.model.rules import shared as rules
from allocator.model.rules.names import (
    Rule,
    dns_label,
    dns_subdomain,
    driver_name,
    extended_resource,
    full_name,
    pool_name,
    uid,
)

_MAX_CONSTRAINTS: Final = 32
_MAX_ALTERNATIVES: Final = 8
_MAX_TOLERATIONS: Final = 16
_MAX_DERIVED: Final = 32
_MAX_RESULTS: Final = 32
_MAX_CONSUMERS: Final = 256
_CONSTRAINTS: Final = ("matchAttribute", "distinctAttribute")

Check = Callable[[str], str | None]


class ClaimRules:
    """Checks a claim's spec and status, in which names of requests must fit together.

    Args:
        spec: the fields of the claim's spec.
        flat: requests have the fields of ``exactly`` themselves (v1beta1).
        check: says what is wrong with a selector, if anything.
    """

    def __init__(self, spec: Fields, *, flat: bool, check: Check | None) -> None:
        self._devices = spec.child("devices")
        self._requests = self._devices.children("requests")
        self._flat = flat
        self._check = check
        self._names = _request_names(self._requests)

    def check_spec(self) -> None:
        """Requests, constraints and configuration."""
        if rules.sized(self._devices, "requests", len(self._requests), rules.MAX_REQUESTS):
            for request in self._requests:
                self._request(request)
            rules.unique(self._devices, "requests", (request.text("name") for request in self._requests))
        constraints = self._devices.children("constraints")
        if rules.sized(self._devices, "constraints", len(constraints), _MAX_CONSTRAINTS):
            for constraint in constraints:
                self._references(constraint)
                _constraint(constraint)
        configs = self._devices.children("config")
        if rules.sized(self._devices, "config", len(configs), rules.MAX_CONFIG):
            for config in configs:
                self._references(config)
                rules.opaque(config)

    def check_status(self, status: Fields) -> None:
        """Consumers and the allocation."""
        consumers = status.children("reservedFor")
        if rules.sized(status, "reservedFor", len(consumers), _MAX_CONSUMERS):
            for consumer in consumers:
                for name in ("resource", "name", "uid"):
                    rules.text(consumer, name, _anything)
            rules.unique(status, "reservedFor", (consumer.text("uid") for consumer in consumers))
        if consumers and not status.has("allocation"):
            status.problem("reservedFor", "is only allowed with an allocation")
        self._allocation(status.child("allocation"))

    def _request(self, request: Fields) -> None:
        rules.text(request, "name", dns_label)
        alternatives = request.children("firstAvailable")
        if rules.sized(request, "firstAvailable", len(alternatives), _MAX_ALTERNATIVES):
            for alternative in alternatives:
                rules.text(alternative, "name", dns_label)
                self._alternative(alternative)
            rules.unique(request, "firstAvailable", (each.text("name") for each in alternatives))
        if alternatives:
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
        rules.one_of(fields, "allocationMode", ("ExactCount", "All"), required=False)
        count = fields.integer("count") or 1
        if fields.text("allocationMode") == "All" and fields.integer("count"):
            fields.problem("count", f"{count} is not allowed with allocationMode All")
        elif count <= 0 and fields.text("allocationMode") != "All":
            fields.problem("count", f"{count} is not greater than zero")
        tolerations = fields.children("tolerations")
        if rules.sized(fields, "tolerations", len(tolerations), _MAX_TOLERATIONS):
            for each in tolerations:
                rules.toleration(each)
        self._derived(fields)

    def _derived(self, fields: Fields) -> None:
        """Derived attributes: each is there for a constraint."""
        derived = fields.children("derivedAttributes")
        if not rules.sized(fields, "derivedAttributes", len(derived), _MAX_DERIVED):
            return
        wanted = {c.text(kind) for c in self._devices.children("constraints") for kind in _CONSTRAINTS}
        for each in derived:
            rules.text(each, "name", full_name)
            rules.expression(each, None)
            if each.text("name") not in wanted:
                each.problem("name", f'"{each.text("name")}" is not named by a constraint')
        rules.unique(fields, "derivedAttributes", (each.text("name") for each in derived))

    def _references(self, fields: Fields) -> None:
        """The requests that a constraint or configuration is for."""
        names = fields.texts("requests")
        if rules.sized(fields, "requests", len(names), rules.MAX_REQUESTS):
            rules.texts(fields, "requests", self._reference)
            rules.unique(fields, "requests", names)

    def _reference(self, name: str) -> str:
        request, slash, alternative = name.partition("/")
        known = request in self._names and (not slash or alternative in self._names[request])
        return "" if known else "is not a request of the claim, or a request / subrequest"

    def _allocation(self, allocation: Fields) -> None:
        devices = allocation.child("devices")
        results = devices.children("results")
        if rules.sized(devices, "results", len(results), _MAX_RESULTS):
            for result in results:
                rules.text(result, "request", self._reference)
                rules.text(result, "driver", driver_name)
                rules.text(result, "pool", pool_name)
                rules.text(result, "device", dns_label)
                rules.text(result, "shareID", uid, required=False)
                rules.binding_conditions(result)
        configs = devices.children("config")
        if rules.sized(devices, "config", len(configs), 2 * rules.MAX_CONFIG):
            for config in configs:
                rules.one_of(config, "source", ("FromClass", "FromClaim"))
                self._references(config)
                rules.opaque(config)
        if allocation.has("nodeSelector"):
            rules.node_selector(allocation.child("nodeSelector"))


def check_class(spec: Fields, check: Check | None) -> None:
    """The spec of a DeviceClass."""
    rules.selectors(spec, check)
    configs = spec.children("config")
    if rules.sized(spec, "config", len(configs), rules.MAX_CONFIG):
        for config in configs:
            rules.opaque(config)
    rules.text(spec, "extendedResourceName", extended_resource, required=spec.has("extendedResourceName"))


def check_taint_rule(spec: Fields) -> None:
    """The spec of a DeviceTaintRule."""
    selector = spec.child("deviceSelector")
    named: dict[str, Rule] = {"driver": driver_name, "pool": pool_name, "device": dns_label}
    for name, rule in named.items():
        rules.text(selector, name, rule, required=selector.has(name))
    rules.taint(spec.child("taint"))


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


def _anything(_: str) -> str:
    return ""
