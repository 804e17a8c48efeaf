"""Allocation results of a solution: devices, configuration, and the nodes that the claim is bound to."""

from collections.abc import Callable, Sequence

from allocator.errors import NodeUnsuitableError
from allocator.model.allocations import FROM_CLAIM, FROM_CLASS, AllocatedConfig, AllocationResult, DeviceResult
from allocator.model.claims import Claim
from allocator.model.features import Features
from allocator.model.nodes import Node, NodeSelector, NodeSelectorTerm, Requirement
from allocator.node_selectors import placement_of
from allocator.pools import Candidate
from allocator.search.candidates import Alternative, Candidates

Chosen = tuple[Alternative, tuple[int, ...]]
"""The alternative that was chosen for a request, with its candidates in order."""


def allocation_result(
    claim: Claim,
    chosen: Sequence[Chosen],
    candidates: Candidates,
    node: Node,
    features: Features,
    new_share_id: Callable[[], str],
) -> AllocationResult:
    """The result of one claim; `chosen` has an entry for each request of the claim, in order.

    Raises:
        NodeUnsuitableError: a slice with a node selector of several terms, which the API forbids.
    """
    results = tuple(
        [
            _device_result(alternative, index, candidates, features, new_share_id)
            for alternative, indexes in chosen
            for index in indexes
        ]
    )
    devices = [candidates.all[index] for _, indexes in chosen for index in indexes]
    return AllocationResult(
        results=results,
        configs=(*_class_configs(chosen), *_claim_configs(claim, chosen)),
        node_selector=_node_selector(claim, devices, node),
    )


def _device_result(
    alternative: Alternative,
    index: int,
    candidates: Candidates,
    features: Features,
    new_share_id: Callable[[], str],
) -> DeviceResult:
    candidate = candidates.all[index]
    device, shared = candidate.device, candidates.is_shared(index)
    return DeviceResult(
        request=alternative.label,
        device=device.id,
        admin_access=alternative.request.admin_access or None,
        tolerations=alternative.request.tolerations,
        share_id=new_share_id() if shared else None,
        consumed_capacity=(candidates.taken(alternative, index) or None) if shared else None,
        binding_conditions=device.binding_conditions if features.binding_conditions else None,
        binding_failure_conditions=device.binding_failure_conditions if features.binding_conditions else None,
        skip_node_operations=candidate.slice.skip_node_operations,
    )


def _class_configs(chosen: Sequence[Chosen]) -> list[AllocatedConfig]:
    """The configuration of each class, once for all requests of that class."""
    requests: dict[str, list[str]] = {}
    for alternative, _ in chosen:
        requests.setdefault(alternative.device_class.name, []).append(alternative.label)
    classes = {a.device_class.name: a.device_class for a, _ in chosen}
    return [
        AllocatedConfig(FROM_CLASS, opaque, _unless_all(tuple(requests[name]), chosen))
        for name, device_class in classes.items()
        for opaque in device_class.configs
    ]


def _claim_configs(claim: Claim, chosen: Sequence[Chosen]) -> list[AllocatedConfig]:
    """The claim's configuration for the requests and subrequests that were chosen."""
    names = {name for alternative, _ in chosen for name in (alternative.request_name, alternative.label)}
    return [
        AllocatedConfig(FROM_CLAIM, config.opaque, _unless_all(config.requests, chosen))
        for config in claim.spec.configs
        if not config.requests or not names.isdisjoint(config.requests)
    ]


def _unless_all(requests: tuple[str, ...], chosen: Sequence[Chosen]) -> tuple[str, ...]:
    """The names; none, which means all, if they cover every request of the claim."""
    covers_all = all(a.request_name in requests or a.label in requests for a, _ in chosen)
    return () if covers_all else requests


def _node_selector(claim: Claim, devices: Sequence[Candidate], node: Node) -> NodeSelector | None:
    fields: list[Requirement] = []
    expressions: list[Requirement] = []
    for candidate in devices:
        placement = placement_of(candidate.slice, candidate.device)
        if placement.node_name or candidate.device.binds_to_node:
            just_here = Requirement("metadata.name", "In", (node.name,))
            return NodeSelector((NodeSelectorTerm(match_fields=(just_here,)),))
        terms = placement.node_selector.terms if placement.node_selector is not None else ()
        if len(terms) > 1:
            raise NodeUnsuitableError(
                str(claim), "", f"slice {candidate.slice.name} has a node selector of {len(terms)} terms"
            )
        for term in terms:
            fields.extend(term.match_fields)
            expressions.extend(term.match_expressions)
    if not fields and not expressions:
        return None
    return NodeSelector((NodeSelectorTerm(_distinct(expressions), _distinct(fields)),))


def _distinct(requirements: Sequence[Requirement]) -> tuple[Requirement, ...]:
    """Without duplicates; the order of a requirement's values makes no difference."""
    seen: dict[tuple[str, str, frozenset[str]], Requirement] = {}
    for each in requirements:
        seen.setdefault((each.key, each.operator, frozenset(each.values)), each)
    return tuple(seen.values())
