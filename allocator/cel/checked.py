"""A checked expression: names resolved to slots, inputs and overloads, constants folded, types known."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from allocator.cel.errors import EvaluationError
from allocator.cel.functions.declare import Function, Overload
from allocator.cel.keys import to_key
from allocator.cel.types import Type
from allocator.cel.values import Value


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A value that is known when the expression compiles; costs nothing."""

    value: Value
    type: Type


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a comprehension, by slot.

    Attributes:
        certain: every value has this type; the checker lets dyn stand for every type.
    """

    slot: int
    type: Type
    certain: bool = False


@dataclass(frozen=True, slots=True)
class DeviceVariable:
    """The variable ``device``."""

    type: Type


@dataclass(frozen=True, slots=True)
class Key:
    """One step of a path: a field name or an index; if ``optional``, a missing value yields ``optional.none()``."""

    value: "Plan"
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Path:
    """``root.field[index]...``; with ``test``, whether the last step would find a value."""

    root: "Plan"
    keys: tuple[Key, ...]
    type: Type
    test: bool = False


@dataclass(frozen=True, slots=True)
class KnownInput:
    """``"name" in device.attributes["domain"]``: whether the device has this attribute or capacity."""

    input: "Input"
    type: Type


@dataclass(frozen=True, slots=True)
class Invoke:
    """A call; ``candidates`` are the overloads that fit the types of the arguments."""

    function: Function
    candidates: tuple[Overload, ...]
    arguments: tuple["Plan", ...]
    type: Type


@dataclass(frozen=True, slots=True, eq=False)
class Membership:
    """``value in [constants]``; the test itself costs nothing."""

    value: "Plan"
    elements: tuple[Value, ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Logic:
    """``&&`` (decisive: False) or ``||`` (decisive: True) of two or more terms."""

    terms: tuple["Plan", ...]
    decisive: bool
    type: Type


@dataclass(frozen=True, slots=True)
class Choice:
    """``condition ? yes : no``."""

    condition: "Plan"
    yes: "Plan"
    no: "Plan"
    type: Type


@dataclass(frozen=True, slots=True)
class OrElse:
    """``optional.or(other)``, or ``optional.orValue(other)`` if ``unwrap``; evaluates ``other`` only if needed."""

    optional: "Plan"
    other: "Plan"
    unwrap: bool
    type: Type


@dataclass(frozen=True, slots=True)
class MakeList:
    """A list; absent optional elements are left out."""

    elements: tuple[tuple["Plan", bool], ...]
    type: Type


@dataclass(frozen=True, slots=True)
class MakeMap:
    """A map; absent optional entries are left out."""

    entries: tuple[tuple["Plan", "Plan", bool], ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Append:
    """Appends an element to the list that a comprehension builds."""

    accumulator: Variable
    element: "Plan"
    type: Type


@dataclass(frozen=True, slots=True)
class Insert:
    """Puts a key and value, or the entries of a map, into the map that a comprehension builds."""

    accumulator: Variable
    arguments: tuple["Plan", ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Loop:
    """A comprehension over slots; ``second`` is None with one variable."""

    range: "Plan"
    variable: int
    second: int | None
    accumulator: int
    initial: "Plan"
    condition: "Plan"
    step: "Plan"
    result: "Plan"
    type: Type


Plan: TypeAlias = (
    Constant | Variable | DeviceVariable | Path | KnownInput | Invoke | Membership | Logic | Choice | OrElse
    | MakeList | MakeMap | Append | Insert | Loop
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Input:
    """One part of a device that an expression reads.

    Attributes:
        kind: driver, allowMultipleAllocations, attributes or capacity.
        name: of an attribute or capacity, qualified by its domain.
        keys: the number of path steps that lead to it.
    """

    kind: str
    name: str = ""
    keys: int = 1


def device_input(path: Path) -> Input | None:
    """The part of the device that a path reads; None if the text of the path does not tell."""
    if not isinstance(path.root, DeviceVariable):
        return None
    names = [key.value.value if isinstance(key.value, Constant) else None for key in path.keys[:3]]
    if any(key.optional for key in path.keys[:2]):
        return None
    match names:
        case ["driver" | "allowMultipleAllocations" as kind, *_] if not (path.test and len(path.keys) == 1):
            return Input(kind)
        case ["attributes" | "capacity" as kind, str(domain), str(name)]:
            return Input(kind, f"{domain}/{name}", 3)
        case _:
            return None


Domains: TypeAlias = Mapping[int, tuple[str, str]]
"""Variables that ``cel.bind`` gives to a domain of attributes or capacity: slot to kind and domain."""


def inputs(plan: Plan, domains: Domains = MappingProxyType({})) -> Iterator[Input | None]:
    """Every part of the device that a plan reads; None stands for an unknown part."""
    match plan:
        case Path():
            found = device_input(plan) or _of_domain(plan, domains)
            if found is not None:
                yield found
            else:
                yield from inputs(plan.root, domains)
            for key in plan.keys:
                yield from inputs(key.value, domains)
        case KnownInput(input=found):
            yield found
        case DeviceVariable():
            yield None
        case Variable(slot=slot):
            if slot in domains:
                yield None
        case Loop(range=Constant(value=()), initial=Path() as initial) if (domain := _domain(initial)) is not None:
            yield from inputs(plan.result, {**domains, plan.accumulator: domain})
        case _:
            for part in parts(plan):
                yield from inputs(part, domains)


def _domain(path: Path) -> tuple[str, str] | None:
    """Kind and domain of ``device.attributes["domain"]``."""
    if not isinstance(path.root, DeviceVariable) or path.test or any(key.optional for key in path.keys):
        return None
    match [key.value.value if isinstance(key.value, Constant) else None for key in path.keys]:
        case ["attributes" | "capacity" as kind, str(domain)]:
            return str(kind), domain
        case _:
            return None


def _of_domain(path: Path, domains: Domains) -> Input | None:
    """The part that a path from such a variable reads."""
    if not isinstance(path.root, Variable) or path.root.slot not in domains:
        return None
    kind, domain = domains[path.root.slot]
    name = path.keys[0].value
    return Input(kind, f"{domain}/{name.value}", 1) if isinstance(name, Constant) and type(name.value) is str else None


def parts(plan: Plan) -> tuple[Plan, ...]:
    """The direct children of a plan; paths and reads of the device have none."""
    match plan:
        case Invoke(arguments=found) | Insert(arguments=found) | Logic(terms=found):
            return found
        case Membership(value=part) | Append(element=part):
            return (part,)
        case Choice():
            return (plan.condition, plan.yes, plan.no)
        case OrElse():
            return (plan.optional, plan.other)
        case MakeList(elements=elements):
            return tuple(element for element, _ in elements)
        case MakeMap(entries=entries):
            return tuple(part for key, value, _ in entries for part in (key, value))
        case Loop():
            return (plan.range, plan.initial, plan.condition, plan.step, plan.result)
        case _:
            return ()


def breadth(plan: Plan) -> int:
    """The number of steps in a plan, without those that a loop in it takes once for each element."""
    match plan:
        case Path(root=root, keys=keys):
            return 1 + breadth(root) + sum(breadth(key.value) for key in keys)
        case Loop(range=source, initial=initial, result=result):
            return 1 + breadth(source) + breadth(initial) + breadth(result)
        case _:
            return 1 + sum(map(breadth, parts(plan)))


def constant_map(keys: Sequence[Plan], values: Sequence[Plan]) -> dict[Hashable, Value] | None:
    """The map of constant keys and values; None if one of them is not constant, or if the map has an error."""
    found: dict[Hashable, Value] = {}
    for key, value in zip(keys, values, strict=True):
        if not isinstance(key, Constant) or not isinstance(value, Constant):
            return None
        try:
            name = to_key(key.value)
        except EvaluationError:
            return None
        found[name] = value.value
    return found
