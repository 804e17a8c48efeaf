"""cel-python's interpreter: an independent engine to compare with."""

import logging
import sys
from typing import Any

import celpy
from celpy import celtypes
from celpy.adapter import json_to_cel
from celpy.celparser import CELParseError
from celpy.evaluation import CELEvalError

from allocator import Device, Quantity
from allocator.cel.compile.frame import device_value
from allocator.cel.keys import from_key
from allocator.cel.values import UInt, Value

Outcome = tuple[str, Any]
"""The name of a type and a value; ``FAILS`` for an expression that fails."""

FAILS: Outcome = ("error", None)
_OURS = {bool: "bool", int: "int", UInt: "uint", float: "double", str: "string", bytes: "bytes", type(None): "null"}
_THEIRS: tuple[tuple[type, str, Any], ...] = (
    (celtypes.BoolType, "bool", bool), (bool, "bool", bool), (celtypes.UintType, "uint", int), (int, "int", int),
    (float, "double", float), (str, "string", str), (bytes, "bytes", bytes), (type(None), "null", lambda value: value),
)  # fmt: skip
"""cel-python's types; some of its operators yield their base in Python. The first type that fits counts."""


def described(value: Value) -> Outcome:
    """One of our values."""
    if isinstance(value, tuple):
        return "list", tuple(map(described, value))
    if isinstance(value, dict):
        return "map", frozenset((described(from_key(key)), described(item)) for key, item in value.items())
    return _OURS[type(value)], value


def evaluate(expression: str, device: Device) -> Outcome:
    """The outcome of an expression in cel-python, which changes and logs more in the process than we want."""
    limit, disabled = sys.getrecursionlimit(), logging.root.manager.disable
    logging.disable()
    try:
        environment = celpy.Environment()
        program = environment.program(environment.compile(expression))
        return _described(program.evaluate({"device": _converted(device_value(device))}))
    except (CELEvalError, CELParseError, IndexError):  # an IndexError while it describes an error
        return FAILS
    finally:
        sys.setrecursionlimit(limit)
        logging.disable(disabled)


def _described(value: Any) -> Outcome:
    if isinstance(value, CELEvalError):
        raise value  # an error as part of a list or map
    if isinstance(value, list):
        return "list", tuple(map(_described, value))
    if isinstance(value, dict):
        return "map", frozenset((_described(key), _described(item)) for key, item in value.items())
    return next((name, plain(value)) for kind, name, plain in _THEIRS if isinstance(value, kind))


def _converted(value: Value) -> Any:
    """A value of a device; a quantity is a text there, because cel-python has no quantities."""
    if isinstance(value, dict):
        return celtypes.MapType({celtypes.StringType(key): _converted(item) for key, item in value.items()})
    if isinstance(value, tuple):
        return celtypes.ListType(map(_converted, value))
    return json_to_cel(str(value) if isinstance(value, Quantity) else value)
