"""CEL cases over devices: does it compile, what does it yield, how does it fail, what does it cost."""

from functools import cache
from typing import Any

from allocator import AttributeValue, Device, DeviceId, Quantity, Version
from allocator.cel import CompileError, Environment, EvaluationError, Kind, Measured, Program, compile_expression
from allocator.cel.selectors import as_attribute, as_bool, check_derivation, check_selector

Json = dict[str, Any]


def run_case(case: Json) -> str | None:
    """None if the case passes, else why it does not."""
    actual = case["actual"]
    try:
        program = _compile(case)
    except CompileError as error:
        return None if actual["compileError"] else f"does not compile: {error.message}"
    if actual["compileError"]:
        return f"compiles, upstream says: {actual['compileError'].splitlines()[0]}"
    device = device_of(case["device"])
    measured = program.measure(device)
    if measured.cost != actual["actualCost"] and not _has_no_certain_cost(actual):
        return f"costs {measured.cost}, upstream {actual['actualCost']}"
    return _compare(case, measured) or _evaluates_alike(program, device, measured)


def _has_no_certain_cost(actual: Json) -> bool:
    """Whether the order of a map, an internal error of upstream or the cost limit ended upstream's count."""
    stopped = ("internal error", "operation cancelled: actual cost limit exceeded")
    return bool(actual.get("costVaries")) or actual["runtimeError"].startswith(stopped)


def _compile(case: Json) -> Program:
    features = case["features"]
    environment = _environment(
        case["envType"],
        consumable_capacity=features.get("EnableConsumableCapacity", False),
        list_attributes=features.get("EnableListTypeAttributes", False),
    )
    program = compile_expression(case["expression"], environment)
    (check_derivation if case.get("derivedAttribute") else check_selector)(program, environment)
    return program


@cache
def _environment(kind: str, *, consumable_capacity: bool, list_attributes: bool) -> Environment:
    return Environment(Kind(kind), consumable_capacity=consumable_capacity, list_attributes=list_attributes)


def _compare(case: Json, measured: Measured) -> str | None:
    actual = case["actual"]
    derived = case.get("derivedAttribute", False)
    error: EvaluationError | None = measured.error
    value: object = None
    if error is None:
        try:
            value = _attribute_json(as_attribute(measured.value)) if derived else as_bool(measured.value)
        except EvaluationError as failed:
            error = failed
    if actual["runtimeError"]:
        return None if error else f"yields {value}, upstream fails: {actual['runtimeError']}"
    if error:
        return f"fails: {error.message}"
    wanted = actual["attribute"] if derived else actual["match"]
    return None if value == wanted else f"yields {value}, upstream {wanted}"


def _evaluates_alike(program: Program, device: Device, measured: Measured) -> str | None:
    """The quick way, which counts nothing, agrees with the one that counts."""
    try:
        value = program.evaluate(device)
    except EvaluationError as error:
        return None if measured.error else f"fails unless cost is counted: {error.message}"
    if measured.error:
        return f"fails only when cost is counted: {measured.error.message}"
    return None if value == measured.value else f"yields {value}, with cost counted {measured.value}"


def device_of(spec: Json) -> Device:
    driver = spec.get("driver", "")
    attributes = {_qualified(name, driver): _attribute(value) for name, value in (spec.get("attributes") or {}).items()}
    quantities = {
        _qualified(name, driver): Quantity.parse(capacity["value"])
        for name, capacity in (spec.get("capacity") or {}).items()
    }
    return Device(
        DeviceId(driver, "pool", "device"),
        attributes=attributes,
        quantities=quantities,
        allow_multiple_allocations=bool(spec.get("allowMultipleAllocations")),
    )


def _qualified(name: str, driver: str) -> str:
    return name if "/" in name else f"{driver}/{name}"


def _attribute(spec: Json) -> AttributeValue:
    ((kind, value),) = spec.items()
    match kind:
        case "version":
            return Version.parse(value)
        case "versions":
            return tuple(Version.parse(text) for text in value)
        case "bools" | "ints" | "strings":
            return tuple(value)
        case _:
            return value  # type: ignore[no-any-return]  # JSON


def _attribute_json(value: AttributeValue) -> Json:
    """As the API writes it: an empty list is left out, whatever it is a list of."""
    names = {bool: "bool", int: "int", str: "string", Version: "version"}
    if isinstance(value, tuple):
        if not value:
            return {}
        kind = names[type(value[0])]
        return {f"{kind}s": [str(v) if isinstance(v, Version) else v for v in value]}
    return {names[type(value)]: str(value) if isinstance(value, Version) else value}
