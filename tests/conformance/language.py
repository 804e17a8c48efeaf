"""CEL cases of the language: an expression that reads nothing of a device, and its value."""

from typing import Any

from allocator import Device, DeviceId
from allocator.cel import CompileError, Environment, compile_expression
from allocator.cel.keys import from_key
from allocator.cel.values import UInt, Value
from tests.conformance import exclusions
from tests.conformance.outcome import Skipped

Json = dict[str, Any]

_DEVICE = Device(DeviceId("driver", "pool", "device"))


def run_case(case: Json) -> str | None:
    """None if the case passes, else why it does not.

    Raises:
        Skipped: the device environment cannot pass it.
    """
    if (reason := exclusions.reason(case)) is not None:
        raise Skipped(reason)
    return failure(case)


def failure(case: Json) -> str | None:
    """As `run_case`, for excluded cases as well."""
    kind, wanted = case["expected"]
    try:
        program = compile_expression(case["expression"], Environment())
    except CompileError as error:
        return None if kind == "error" else f"does not compile: {error.message}"
    measured = program.measure(_DEVICE)
    if measured.error is not None:
        return None if kind == "error" else f"fails: {measured.error.message}"
    found = _described(measured.value)
    return None if _alike(found, [kind, wanted]) else f"yields {found}, wanted {case['expected']}"


def _described(value: Value) -> list[Any]:
    """A value as the cases write it: type and JSON."""
    if isinstance(value, dict):
        return ["map", [[_described(from_key(key)), _described(item)] for key, item in value.items()]]
    if isinstance(value, tuple):
        return ["list", [_described(element) for element in value]]
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if isinstance(value, float):
        return ["double", repr(value)]
    names = {bool: "bool", int: "int", UInt: "uint", str: "string", type(None): "null"}
    return [names.get(type(value), type(value).__name__), value]


def _alike(found: list[Any], wanted: list[Any]) -> bool:
    if found[0] != wanted[0]:
        return False
    match found[0]:
        case "map":
            entries = list(wanted[1][0]) if wanted[1] and isinstance(wanted[1][0][0][0], list) else wanted[1]
            return len(found[1]) == len(entries) and all(
                any(_alike(key, k) and _alike(value, v) for k, v in entries) for key, value in found[1]
            )
        case "list":
            return len(found[1]) == len(wanted[1]) and all(map(_alike, found[1], wanted[1]))
        case _:
            return bool(found[1] == wanted[1])
