"""What expressions may use, as upstream declares it and as we do."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from allocator.cel import Environment, Kind
from allocator.cel.calls import SIGNATURES
from allocator.cel.functions.declare import Overload
from allocator.cel.macros import MACROS

Json = dict[str, Any]

CASES: Final = tuple(
    {"envType": kind.value, "features": {"EnableConsumableCapacity": on, "EnableListTypeAttributes": on}}
    for kind in Kind
    for on in (False, True)
)
"""The environments."""

_NOTHING_TO_APPLY_TO: Final = "kubernetes.authorization."
"""No device has an authorizer, so its library is missing on purpose."""

_WITHOUT_OVERLOADS: Final = frozenset({"_&&_", "_||_", "_?._", "in", "_in_", "__not_strictly_false__"})
"""Operators with rules of their own in the checker, and names that upstream keeps for old trees."""


def differences(case: Json, theirs: Json) -> Iterator[str]:
    """What upstream and we declare differently in an environment; the order of overloads counts."""
    features = case["features"]
    environment = Environment(
        Kind(case["envType"]),
        consumable_capacity=features["EnableConsumableCapacity"],
        list_attributes=features["EnableListTypeAttributes"],
    )
    wanted, found = _upstream(theirs["overloads"]), _ours(environment)
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            yield f"{name}: {found.get(name, 'missing')}, upstream {wanted.get(name, 'has none')}"
    macros = {f"macro {name.removeprefix('cel.')}/{count}/{_flag(name, member)}" for name, count, member in MACROS}
    yield from (f"{name}: only upstream or only we have it" for name in sorted(macros ^ set(theirs["macros"])))


def _flag(name: str, member: bool) -> str:  # a field of the key
    """``cel.bind`` is a member in upstream."""
    return str(member or name.startswith("cel.")).lower()


def relevant(overload: Json) -> bool:
    """Whether an overload of upstream is one that we declare."""
    types = (*overload["parameters"], overload["result"])
    return not any(_NOTHING_TO_APPLY_TO in kind for kind in types) and overload["function"] not in _WITHOUT_OVERLOADS


def _upstream(overloads: list[Json]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in filter(relevant, overloads):
        found.setdefault(each["function"], []).append(_text(each["member"], each["parameters"], each["result"]))
    return found


def _ours(environment: Environment) -> Mapping[str, list[str]]:
    functions = environment.declarations.functions
    found = {name: [_signature(overload) for overload in function.overloads] for name, function in functions.items()}
    for name, signatures in SIGNATURES.items():
        found[name] = [_text(name in {"or", "orValue"}, map(str, kinds), str(result)) for kinds, result in signatures]
    return found


def _signature(overload: Overload) -> str:
    return _text(overload.member, map(str, overload.parameters), str(overload.result))


def _text(member: bool, parameters: Any, result: str) -> str:  # a field of the declaration
    """A signature with numbers for type parameters."""
    numbers: dict[str, int] = {}
    text = f"{'member ' if member else ''}({', '.join(parameters)}) -> {result}"
    return re.sub(r"<([^>]*)>", lambda match: f"<{numbers.setdefault(match[1], len(numbers))}>", text)
