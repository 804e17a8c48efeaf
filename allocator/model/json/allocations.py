"""Allocation results to values and to API JSON, as in the status of a claim; the same in all versions."""

import sys
from collections.abc import Iterable, Mapping

from allocator.model.allocations import AllocatedConfig, AllocationResult, DeviceResult, OpaqueConfig
from allocator.model.devices import DeviceId, Toleration
from allocator.model.json.common import node_selector_or_none, opaque, read_tolerations
from allocator.model.json.interner import Interner
from allocator.model.nodes import NodeSelector, Requirement
from allocator.model.quantity import Quantity
from allocator.tools import jsontext
from allocator.tools.fields import Fields
from allocator.tools.jsontext import JSON


def allocation_or_none(status: Fields, name: str) -> AllocationResult | None:
    """The result in a field, or None if it is absent."""
    fields = status.child_or_none(name)
    return None if fields is None else _allocation(fields)


def _allocation(fields: Fields) -> AllocationResult:
    results, configs = fields.child("devices").each_children("results", "config")
    return AllocationResult(
        results=tuple(map(_result, results)),
        configs=tuple(
            AllocatedConfig(config.required_text("source"), opaque(config), config.texts("requests"))
            for config in configs
        ),
        node_selector=node_selector_or_none(fields, "nodeSelector"),
        timestamp=fields.time_or_none("allocationTimestamp"),
    )


def _result(fields: Fields) -> DeviceResult:
    """One result; the claims of a cluster share the texts in it."""
    request, driver, pool, device = map(sys.intern, fields.each_required_text("request", "driver", "pool", "device"))
    return DeviceResult(
        request=request,
        device=DeviceId(driver, pool, device),
        admin_access=fields.flag_or_none("adminAccess"),
        tolerations=read_tolerations(fields),
        share_id=fields.text_or_none("shareID"),
        consumed_capacity=Interner().read_map(fields, "consumedCapacity") if fields.has("consumedCapacity") else None,
        binding_conditions=fields.texts_or_none("bindingConditions"),
        binding_failure_conditions=fields.texts_or_none("bindingFailureConditions"),
        skip_node_operations=fields.texts("skipNodeOperations"),
    )


def allocation_to_json(result: AllocationResult) -> dict[str, JSON]:
    """An allocation for ``status.allocation`` of a claim."""
    devices = _present(
        results=[_result_to_json(each) for each in result.results],
        config=[_allocated_config(each) for each in result.configs],
    )
    return _present(
        devices=devices,
        nodeSelector=None if result.node_selector is None else _node_selector(result.node_selector),
        allocationTimestamp=result.timestamp,
    )


def _node_selector(selector: NodeSelector) -> dict[str, JSON]:
    return {
        "nodeSelectorTerms": [
            _present(
                matchExpressions=[_requirement(each) for each in term.match_expressions],
                matchFields=[_requirement(each) for each in term.match_fields],
            )
            for term in selector.terms
        ]
    }


def _present(**fields: JSON) -> dict[str, JSON]:
    """The fields that say something: neither None nor an empty list."""
    return {name: value for name, value in fields.items() if value is not None and value != []}


def _texts(values: Iterable[str]) -> list[JSON]:
    return list(values)


def _texts_or_none(values: tuple[str, ...] | None) -> list[JSON] | None:
    return None if values is None else list(values)


def _quantities(amounts: Mapping[str, Quantity]) -> dict[str, JSON]:
    return {name: str(amount) for name, amount in amounts.items()}


def _requirement(requirement: Requirement) -> JSON:
    return _present(key=requirement.key, operator=requirement.operator, values=_texts(requirement.values))


def _toleration(toleration: Toleration) -> JSON:
    return _present(
        key=toleration.key or None,
        operator=toleration.operator,
        value=toleration.value or None,
        effect=toleration.effect or None,
        tolerationSeconds=toleration.toleration_seconds,
    )


def _result_to_json(result: DeviceResult) -> JSON:
    consumed = result.consumed_capacity
    return _present(
        request=result.request,
        driver=result.device.driver,
        pool=result.device.pool,
        device=result.device.device,
        adminAccess=result.admin_access,
        tolerations=[_toleration(each) for each in result.tolerations],
        bindingConditions=_texts_or_none(result.binding_conditions),
        bindingFailureConditions=_texts_or_none(result.binding_failure_conditions),
        shareID=result.share_id,
        consumedCapacity=None if consumed is None else _quantities(consumed),
        skipNodeOperations=_texts(result.skip_node_operations),
    )


def _opaque(config: OpaqueConfig) -> JSON:
    """None for a kind of configuration that was unknown when it was read."""
    if not config.driver:
        return None
    parameters: JSON = jsontext.exact(config.parameters) if config.parameters else None
    return _present(driver=config.driver, parameters=parameters)


def _allocated_config(config: AllocatedConfig) -> JSON:
    return _present(source=config.source, requests=_texts(config.requests), opaque=_opaque(config.opaque))
