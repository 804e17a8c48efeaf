"""Values to API JSON, in the shape of the version that the API server has. The inverse of `allocator.model.json`."""

from collections.abc import Iterable, Mapping

from allocator.model.claims import (
    AllocatedConfig,
    AllocationMode,
    AllocationResult,
    ClaimConfig,
    ClaimSpec,
    ConstraintSpec,
    DeviceRequest,
    DeviceResult,
    OpaqueConfig,
    Request,
)
from allocator.model.devices import JSON, NodeSelector, Requirement, Toleration
from allocator.model.json import text as jsontext
from allocator.model.json.common import V1BETA1, VERSIONS
from allocator.model.quantity import Quantity


def allocation_to_json(result: AllocationResult, api_version: str = VERSIONS[0]) -> dict[str, JSON]:
    """An allocation for ``status.allocation`` of a claim; the same in all versions that are supported.

    Raises:
        ValueError: the version is not supported.
    """
    _check(api_version)
    devices = _present(
        results=[_result(each) for each in result.results],
        config=[_allocated_config(each) for each in result.configs],
    )
    return _present(
        devices=devices,
        nodeSelector=None if result.node_selector is None else node_selector_to_json(result.node_selector),
        allocationTimestamp=result.timestamp,
    )


def claim_spec_to_json(spec: ClaimSpec, api_version: str = VERSIONS[0]) -> dict[str, JSON]:
    """The spec of a claim. v1beta1 has the fields of ``exactly`` in the request itself.

    Raises:
        ValueError: the version is not supported, or the spec has an allocation mode that was unknown when read.
    """
    _check(api_version)
    devices = _present(
        requests=[_request(each, flat=api_version == V1BETA1) for each in spec.requests],
        constraints=[_constraint(each) for each in spec.constraints],
        config=[_claim_config(each) for each in spec.configs],
    )
    return {"devices": devices}


def node_selector_to_json(selector: NodeSelector) -> dict[str, JSON]:
    """A core/v1 NodeSelector."""
    return {
        "nodeSelectorTerms": [
            _present(
                matchExpressions=[_requirement(each) for each in term.match_expressions],
                matchFields=[_requirement(each) for each in term.match_fields],
            )
            for term in selector.terms
        ]
    }


def _check(api_version: str) -> None:
    if api_version not in VERSIONS:
        raise ValueError(f"{api_version} is not one of {', '.join(VERSIONS)}")


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


def _result(result: DeviceResult) -> JSON:
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


def _claim_config(config: ClaimConfig) -> JSON:
    return _present(requests=_texts(config.requests), opaque=_opaque(config.opaque))


def _constraint(constraint: ConstraintSpec) -> JSON:
    named: dict[str, JSON] = {} if constraint.kind is None else {constraint.kind.value: constraint.attribute}
    return _present(requests=_texts(constraint.requests), **named)


def _request(request: Request, *, flat: bool) -> JSON:
    ways = [_alternative(each) for each in request.alternatives]
    if request.prioritized:
        return _present(name=request.name, firstAvailable=list(ways))
    if flat:
        return {"name": request.name, **{name: value for way in ways for name, value in way.items()}}
    return _present(name=request.name, exactly=ways[0] if ways else None)


def _alternative(request: DeviceRequest) -> dict[str, JSON]:
    """One way to satisfy a request; the API's defaults are written out where it writes them itself."""
    if request.mode is None:
        raise ValueError(f"a request for class {request.device_class} has an unknown allocation mode")
    capacity: JSON = None
    if request.capacity is not None:
        capacity = {"requests": _quantities(dict(request.capacity))}
    return _present(
        name=request.name or None,
        deviceClassName=request.device_class,
        selectors=[{"cel": {"expression": expression}} for expression in request.selectors],
        allocationMode=request.mode.value,
        count=request.count if request.mode is AllocationMode.EXACT_COUNT else None,
        adminAccess=True if request.admin_access else None,
        tolerations=[_toleration(each) for each in request.tolerations],
        capacity=capacity,
        derivedAttributes=[
            {"name": derived.name, "expression": derived.expression} for derived in request.derived_attributes
        ],
    )
