"""The audit of one allocated claim: it has what it asks for, and is bound to the right nodes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from allocator.audit.rules import Finding, Rule
from allocator.cel import CelError
from allocator.cel.selectors import Selectors
from allocator.model.allocations import AllocationResult, DeviceResult
from allocator.model.claims import AllocationMode, Claim, ConstraintSpec, DeviceRequest, Request
from allocator.model.device_classes import DeviceClass
from allocator.model.devices import AttributeValue, Capacity, DeviceId, Placement
from allocator.model.nodes import Node, NodeSelector, NodeSelectorTerm, Requirement
from allocator.model.quantity import Quantity
from allocator.model.semver import Version
from allocator.model.slices.device import Device
from allocator.model.slices.slice import Slice
from allocator.node_selectors import placement_matches, placement_of, selector_matches

_Problem: TypeAlias = tuple[Rule, DeviceId | None, str]
"""The rule that is broken, on which device (None: not just one), and how."""


@dataclass(frozen=True, slots=True)
class Published:
    """A device with its slice."""

    device: Device
    slice: Slice

    @property
    def placement(self) -> Placement:
        """The nodes from which the device can be reached."""
        return placement_of(self.slice, self.device)


class ClaimAudit:
    """Judges allocated claims by what is published. Devices that are no longer published are passed over."""

    def __init__(
        self,
        published: Mapping[DeviceId, Published],
        classes: Mapping[str, DeviceClass],
        nodes: Mapping[str, Node],
        selectors: Selectors,
    ) -> None:
        self._published = published
        self._classes = classes
        self._nodes = nodes
        self._selectors = selectors

    def findings(self, claim: Claim, allocation: AllocationResult) -> Iterator[Finding]:
        """The findings about the allocation of a claim."""
        one_claim = (str(claim),)
        for rule, device, message in self._problems(claim, allocation):
            yield Finding(rule, one_claim, device, message)

    def _problems(self, claim: Claim, allocation: AllocationResult) -> Iterator[_Problem]:
        results = allocation.results
        requests = {request.label(each): each for request in claim.spec.requests for each in request.alternatives}
        known = [
            (result, requests[result.request], self._published[result.device])
            for result in results
            if result.request in requests and result.device in self._published
        ]
        for result, request, seen in known:
            for problem in self._unmet_selectors(request, seen):
                yield Rule.SELECTOR, result.device, f"request {result.request}: {problem}"
            for problem in _wrong_consumption(result, request, seen.device):
                yield Rule.CONSUMPTION, result.device, problem
        for result in results:
            if result.request not in requests:
                yield Rule.RESULT, result.device, f"there is no request {result.request}"
        own = [each for each in claim.spec.requests if not self._is_negotiated(each)]
        yield from _wrong_counts(own, claim.spec.optional, results)
        for name, request in requests.items():
            yield from self._missing_devices(name, request, allocation)
        for spec in claim.spec.constraints:
            yield from self._violations(spec, known)
        if len(own) == len(claim.spec.requests):
            for problem in self._wrong_nodes(allocation):
                yield Rule.NODE_SELECTOR, None, problem

    def _is_negotiated(self, request: Request) -> bool:
        """Whether a controller decides about a request: how many devices it gives, and for which nodes."""
        classes = (self._classes.get(each.device_class) for each in request.alternatives)
        return any(each is not None and each.controller for each in classes)

    def _unmet_selectors(self, request: DeviceRequest, seen: Published) -> Iterator[str]:
        device_class = self._classes.get(request.device_class)
        for text in (*(device_class.selectors if device_class else ()), *request.selectors):
            try:
                if not self._selectors.matches(text, seen.device):
                    yield f"{text!r} is false"
            except CelError as error:
                yield f"{text!r} fails: {error}"

    def _missing_devices(self, name: str, request: DeviceRequest, allocation: AllocationResult) -> Iterator[_Problem]:
        """A request for all devices has every device of the node that matches and was published before."""
        node = self._only_node(allocation)
        got = {r.device for r in allocation.results if r.request == name}
        if request.mode is not AllocationMode.ALL or not got or node is None or request.capacity:
            return
        for device, seen in self._published.items():
            if device in got or not placement_matches(seen.placement, node):
                continue
            if _was_there(seen.slice, allocation.timestamp or "") and not any(self._unmet_selectors(request, seen)):
                yield Rule.COUNT, seen.device.id, f"request {name}: all devices, but not this one"

    def _violations(
        self, spec: ConstraintSpec, known: Sequence[tuple[DeviceResult, DeviceRequest, Published]]
    ) -> Iterator[_Problem]:
        values: list[frozenset[object]] = []
        for result, request, seen in known:
            parent = result.request.partition("/")[0]
            if spec.requests and parent not in spec.requests and result.request not in spec.requests:
                continue
            try:
                value = self._value(request, seen.device, spec.attribute)
            except CelError as error:
                text = f"request {result.request}: derived attribute {spec.attribute} fails: {error}"
                yield Rule.CONSTRAINT, result.device, text
                continue
            if value is None:
                text = f"request {result.request}: attribute {spec.attribute} is missing"
                yield Rule.CONSTRAINT, result.device, text
                continue
            values.append(_elements(value))
        if spec.kind is not None and values and not spec.kind.holds(values):
            yield Rule.CONSTRAINT, None, spec.kind.broken.format(spec.attribute)

    def _value(self, request: DeviceRequest, device: Device, attribute: str) -> AttributeValue | None:
        """The request's derived attribute, else the published attribute."""
        for derived in request.derived_attributes:
            if derived.name == attribute:
                return self._selectors.derive(derived.expression, device)
        return device.attributes.get(attribute)

    def _only_node(self, allocation: AllocationResult) -> Node | None:
        """The node that a claim is bound to, if it is bound to one."""
        selector = allocation.node_selector
        matching = [node for node in self._nodes.values() if selector and selector_matches(selector, node)]
        return matching[0] if len(matching) == 1 else None

    def _wrong_nodes(self, allocation: AllocationResult) -> Iterator[str]:
        """The selector admits exactly the nodes that reach all devices, or the one node that the claim is bound to."""
        selector = allocation.node_selector
        all_seen = [self._published[r.device] for r in allocation.results if r.device in self._published]
        bound = any(seen.placement.node_name or seen.device.binds_to_node for seen in all_seen)
        if bound and not _names_one_node(selector):
            yield "a device is local to a node, but the claim is not bound to one node"
        for node in self._nodes.values():
            admitted = selector is None or selector_matches(selector, node)
            reaches = all(placement_matches(seen.placement, node) for seen in all_seen)
            if admitted and not reaches:
                yield f"node {node.name} is admitted, but does not reach all devices"
            elif reaches and not admitted and not bound and len(all_seen) == len(allocation.results):
                yield f"node {node.name} reaches all devices, but is not admitted"


def _wrong_counts(
    requests: Sequence[Request], optional: Sequence[str], results: Sequence[DeviceResult]
) -> Iterator[_Problem]:
    counts = Counter(result.request for result in results)
    for request in requests:
        served = [each for each in request.alternatives if counts[request.label(each)]]
        got = counts[request.label(served[0])] if served else 0
        if not served and request.name in optional:
            continue
        if len(served) != 1:
            yield Rule.COUNT, None, f"request {request.name}: {len(served)} of its alternatives are served"
        elif served[0].mode is AllocationMode.EXACT_COUNT and got != served[0].count:
            yield Rule.COUNT, None, f"request {request.name}: {got} devices instead of {served[0].count}"


def _was_there(published: Slice, at: str) -> bool:
    """Whether the slice was already as it is now, as far as can be told; whole seconds, RFC 3339 in UTC."""
    return published.revision <= 1 and not (at and published.created >= at)


def _elements(value: AttributeValue) -> frozenset[object]:
    parts: tuple[object, ...] = value if isinstance(value, tuple) else (value,)
    return frozenset((type(part), part.text if isinstance(part, Version) else part) for part in parts)


def _wrong_consumption(result: DeviceResult, request: DeviceRequest, device: Device) -> Iterator[str]:
    if result.share_id is None:
        return
    asked = {_qualified(device, name): amount for name, amount in request.capacity or ()}
    for name, capacity in device.capacity.items():
        got = (result.consumed_capacity or {}).get(name)
        problem = _consumption_problem(capacity, asked.get(_qualified(device, name)), got)
        if problem:
            yield f"capacity {name}: {problem}"


def _qualified(device: Device, name: str) -> str:
    return name if "/" in name else f"{device.driver}/{name}"


def _consumption_problem(capacity: Capacity, asked: Quantity | None, got: Quantity | None) -> str:
    if got is None:
        return "nothing is consumed"
    policy = capacity.policy
    if asked is None:
        expected = policy.default if policy is not None and policy.default is not None else capacity.value
        return "" if got == expected else f"{got} instead of {expected}, which is what no request means"
    if got < asked:
        return f"{got} is less than the {asked} asked for"
    if policy is not None and policy.valid_values and got not in policy.valid_values:
        return f"{got} is not one of the valid values"
    bounds = policy.valid_range if policy is not None else None
    if bounds is not None and (got < bounds.min or (bounds.max is not None and got > bounds.max)):
        return f"{got} is out of range"
    return ""


def _names_one_node(selector: NodeSelector | None) -> bool:
    match selector:
        case NodeSelector((NodeSelectorTerm((), (Requirement("metadata.name", "In", (_,)),)),)):
            return True
        case _:
            return False
