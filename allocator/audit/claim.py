"""The audit of one allocated claim: did it get what it asks for, and is it bound to the right nodes?"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from allocator.audit.finding import Finding, Rule
from allocator.cel import CelError
from allocator.cel.selectors import Selectors
from allocator.model.claims import (
    AllocationMode,
    Claim,
    ConstraintKind,
    ConstraintSpec,
    DeviceClass,
    DeviceRequest,
    DeviceResult,
)
from allocator.model.devices import (
    AttributeValue,
    Capacity,
    Device,
    DeviceId,
    Node,
    NodeSelector,
    NodeSelectorTerm,
    Placement,
    Requirement,
    Slice,
)
from allocator.model.quantity import Quantity
from allocator.model.semver import Version
from allocator.node_selectors import placement_matches, selector_matches


@dataclass(frozen=True, slots=True)
class Published:
    """A device with its slice."""

    device: Device
    slice: Slice

    @property
    def placement(self) -> Placement:
        """From where the device can be reached."""
        own = self.device.placement if self.slice.per_device_placement else self.slice.placement
        return own or Placement()


def claim_findings(
    claim: Claim,
    published: Mapping[DeviceId, Published],
    classes: Mapping[str, DeviceClass],
    nodes: Mapping[str, Node],
    selectors: Selectors,
) -> Iterator[Finding]:
    """What is wrong with one allocated claim, devices that are published no longer passed over."""
    results = claim.allocation.results if claim.allocation else ()
    for result, request, seen in _pairs(claim, results, published):
        yield from _selector_findings(claim, result, request, classes.get(request.device_class), seen, selectors)
        yield from _consumption_findings(claim, result, request, seen)
    yield from _count_findings(claim, results)
    yield from _all_findings(claim, results, published, classes, nodes, selectors)
    for spec in claim.spec.constraints:
        yield from _constraint_findings(claim, spec, results, published, selectors)
    yield from _node_findings(claim, results, published, nodes)


def _requests(claim: Claim) -> dict[str, DeviceRequest]:
    """By the name that results use."""
    return {request.label(each): each for request in claim.spec.requests for each in request.alternatives}


def _pairs(
    claim: Claim, results: Sequence[DeviceResult], published: Mapping[DeviceId, Published]
) -> Iterator[tuple[DeviceResult, DeviceRequest, Published]]:
    requests = _requests(claim)
    for result in results:
        if result.request in requests and result.device in published:
            yield result, requests[result.request], published[result.device]


def _selector_findings(
    claim: Claim,
    result: DeviceResult,
    request: DeviceRequest,
    device_class: DeviceClass | None,
    seen: Published,
    selectors: Selectors,
) -> Iterator[Finding]:
    for text in (*(device_class.selectors if device_class else ()), *request.selectors):
        problem = ""
        try:
            if not selectors.matches(text, seen.device):
                problem = "is false"
        except CelError as error:
            problem = f"fails: {error}"
        if problem:
            yield Finding(Rule.SELECTOR, (str(claim),), result.device, f"request {result.request}: {text!r} {problem}")


def _count_findings(claim: Claim, results: Sequence[DeviceResult]) -> Iterator[Finding]:
    requests = _requests(claim)
    for result in results:
        if result.request not in requests:
            yield Finding(Rule.RESULT, (str(claim),), result.device, f"there is no request {result.request}")
    for request in claim.spec.requests:
        got = {each.name: sum(r.request == request.label(each) for r in results) for each in request.alternatives}
        served = [each for each in request.alternatives if got[each.name]]
        if len(served) != 1:
            text = f"request {request.name}: {len(served)} of its alternatives are served"
            yield Finding(Rule.COUNT, (str(claim),), None, text)
        elif served[0].mode is AllocationMode.EXACT_COUNT and got[served[0].name] != served[0].count:
            text = f"request {request.name}: {got[served[0].name]} devices instead of {served[0].count}"
            yield Finding(Rule.COUNT, (str(claim),), None, text)


def _all_findings(
    claim: Claim,
    results: Sequence[DeviceResult],
    published: Mapping[DeviceId, Published],
    classes: Mapping[str, DeviceClass],
    nodes: Mapping[str, Node],
    selectors: Selectors,
) -> Iterator[Finding]:
    """A request for all devices has every device of the node that matches and was published before."""
    node = _only_node(claim, nodes)
    allocated_at = (claim.allocation.timestamp if claim.allocation else None) or ""
    for name, request in _requests(claim).items():
        got = {r.device for r in results if r.request == name}
        if request.mode is not AllocationMode.ALL or not got or node is None:
            continue
        for device, seen in published.items():
            if device in got or not placement_matches(seen.placement, node) or request.capacity:
                continue
            if not _was_there(seen.slice, allocated_at):
                continue
            if not list(
                _selector_findings(claim, results[0], request, classes.get(request.device_class), seen, selectors)
            ):
                text = f"request {name}: all devices, but not this one"
                yield Finding(Rule.COUNT, (str(claim),), seen.device.id, text)


def _was_there(published: Slice, at: str) -> bool:
    """Whether a slice was there at a time as it is now, as far as can be told; whole seconds, RFC 3339 in UTC."""
    return published.revision <= 1 and not (at and published.created >= at)


def _constraint_findings(
    claim: Claim,
    spec: ConstraintSpec,
    results: Sequence[DeviceResult],
    published: Mapping[DeviceId, Published],
    selectors: Selectors,
) -> Iterator[Finding]:
    values: list[frozenset[object]] = []
    for result, request, seen in _pairs(claim, results, published):
        parent = result.request.partition("/")[0]
        if spec.requests and parent not in spec.requests and result.request not in spec.requests:
            continue
        try:
            value = _value(request, seen.device, spec.attribute, selectors)
        except CelError as error:
            text = f"request {result.request}: derived attribute {spec.attribute} fails: {error}"
            yield Finding(Rule.CONSTRAINT, (str(claim),), result.device, text)
            continue
        if value is None:
            text = f"request {result.request}: attribute {spec.attribute} is missing"
            yield Finding(Rule.CONSTRAINT, (str(claim),), result.device, text)
            continue
        values.append(_elements(value))
    if spec.kind is ConstraintKind.MATCH and values and not frozenset.intersection(*values):
        yield Finding(Rule.CONSTRAINT, (str(claim),), None, f"no value of {spec.attribute} is common to all devices")
    if spec.kind is ConstraintKind.DISTINCT and sum(map(len, values)) != len(frozenset().union(*values)):
        yield Finding(Rule.CONSTRAINT, (str(claim),), None, f"values of {spec.attribute} are not distinct")


def _value(request: DeviceRequest, device: Device, attribute: str, selectors: Selectors) -> AttributeValue | None:
    """The request's own derived attribute, else the published one."""
    for derived in request.derived_attributes:
        if derived.name == attribute:
            return selectors.derive(derived.expression, device)
    return device.attributes.get(attribute)


def _elements(value: AttributeValue) -> frozenset[object]:
    parts: tuple[object, ...] = value if isinstance(value, tuple) else (value,)
    return frozenset((type(part), part.text if isinstance(part, Version) else part) for part in parts)


def _consumption_findings(
    claim: Claim, result: DeviceResult, request: DeviceRequest, seen: Published
) -> Iterator[Finding]:
    if result.share_id is None:
        return
    asked = {_qualified(seen.device, name): amount for name, amount in request.capacity or ()}
    for name, capacity in seen.device.capacity.items():
        got = (result.consumed_capacity or {}).get(name)
        problem = _consumption_problem(capacity, asked.get(_qualified(seen.device, name)), got)
        if problem:
            yield Finding(Rule.CONSUMPTION, (str(claim),), result.device, f"capacity {name}: {problem}")


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


def _only_node(claim: Claim, nodes: Mapping[str, Node]) -> Node | None:
    """The node that a claim is bound to, if it is bound to one."""
    selector = claim.allocation.node_selector if claim.allocation else None
    if selector is None:
        return None
    matching = [node for node in nodes.values() if selector_matches(selector, node)]
    return matching[0] if len(matching) == 1 else None


def _node_findings(
    claim: Claim,
    results: Sequence[DeviceResult],
    published: Mapping[DeviceId, Published],
    nodes: Mapping[str, Node],
) -> Iterator[Finding]:
    """The claim's selector lets in exactly the nodes that reach all its devices, or the one node it is bound to."""
    selector = claim.allocation.node_selector if claim.allocation else None
    all_seen = [published[r.device] for r in results if r.device in published]
    bound = any(seen.placement.node_name or seen.device.binds_to_node for seen in all_seen)
    if bound and not _names_one_node(selector):
        text = "a device is local to a node, but the claim is not bound to one node"
        yield Finding(Rule.NODE_SELECTOR, (str(claim),), None, text)
    for node in nodes.values():
        admitted = selector is None or selector_matches(selector, node)
        reaches = all(placement_matches(seen.placement, node) for seen in all_seen)
        if admitted and not reaches:
            text = f"node {node.name} is admitted, but does not reach all devices"
            yield Finding(Rule.NODE_SELECTOR, (str(claim),), None, text)
        elif reaches and not admitted and not bound and len(all_seen) == len(results):
            text = f"node {node.name} reaches all devices, but is not admitted"
            yield Finding(Rule.NODE_SELECTOR, (str(claim),), None, text)


def _names_one_node(selector: NodeSelector | None) -> bool:
    match selector:
        case NodeSelector((NodeSelectorTerm((), (Requirement("metadata.name", "In", (_,)),)),)):
            return True
        case _:
            return False
