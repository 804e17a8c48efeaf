"""Plans to closures that count cost step by step, as cel-go's tracker does.

Errors are values here, because arguments after a failed one still run and cost; only running into the limit is
an exception. What an operation costs and when is observable, so the order of things matters.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from allocator.cel.calls import implementation
from allocator.cel.cost import LIMIT, LIST_COST, MAP_COST, ONE, Cost
from allocator.cel.errors import CostLimitError, EvaluationError, no_such_overload
from allocator.cel.inputs import device_value
from allocator.cel.loops import Pending, append, elements, frozen, insert
from allocator.cel.paths import PathStep, known_input, walk
from allocator.cel.plan import (
    Append,
    Choice,
    Constant,
    DeviceVariable,
    Insert,
    Invoke,
    KnownInput,
    Logic,
    Loop,
    MakeList,
    MakeMap,
    Membership,
    OrElse,
    Path,
    Plan,
    Variable,
    device_input,
)
from allocator.cel.values import OptionalValue, Value, contains
from allocator.model import Device

WORK_LIMIT: Final = 10_000_000
"""How many characters and elements an evaluation may produce by operations whose cost does not tell."""


class Frame:
    """One evaluation: its input, its variables, and what it has cost so far."""

    __slots__ = ("cost", "device", "slots", "work")

    def __init__(self, device: Device | None, slots: int) -> None:
        self.device = device
        self.slots: list[Value] = [None] * slots
        self.cost = 0
        self.work = 0

    def spend(self, cost: int) -> None:
        """Charge for one step.

        Raises:
            CostLimitError: beyond the limit.
        """
        self.cost += cost
        if self.cost > LIMIT:
            raise CostLimitError

    def produced(self, size: int) -> None:
        """Count what an operation has built.

        Raises:
            CostLimitError: too much in all.
        """
        self.work += size
        if self.work > WORK_LIMIT:
            raise CostLimitError


Step: TypeAlias = Callable[[Frame], Value]
"""Yields a value, or an `EvaluationError` as a value."""


def compile_plan(plan: Plan, *, bare: bool = False) -> Step:
    """The closure of a plan; ``bare``: as a branch of a choice or as a key, where variables come for free."""
    match plan:
        case Constant(value=value):
            return lambda _frame: value
        case Variable():
            return _variable(plan.slot, bare=bare)
        case DeviceVariable():
            return _device if bare else _charged_device
        case Path():
            return _path(plan, bare=bare)
        case KnownInput():
            return _known(plan)
        case Invoke():
            return _invoke(plan)
        case Membership():
            return _membership(plan)
        case Logic():
            return _logic([compile_plan(term) for term in plan.terms], decisive=plan.decisive)
        case Choice():
            return _choice(plan)
        case OrElse():
            return _or_else(compile_plan(plan.optional), compile_plan(plan.other), unwrap=plan.unwrap)
        case MakeList():
            return _list([(compile_plan(element), optional) for element, optional in plan.elements])
        case MakeMap():
            return _map([(compile_plan(k), compile_plan(v), optional) for k, v, optional in plan.entries])
        case Append():
            return _append(compile_plan(plan.accumulator), compile_plan(plan.element))
        case Insert():
            return _insert([compile_plan(part) for part in (plan.accumulator, *plan.arguments)])
        case Loop():
            return _loop(plan)


def _variable(slot: int, *, bare: bool) -> Step:
    cost = 0 if bare else 1

    def step(frame: Frame) -> Value:
        value = frame.slots[slot]
        if type(value) is Pending:
            value = frame.slots[slot] = value.compute(frame)
        frame.spend(cost)
        return value

    return step


def _device(frame: Frame) -> Value:
    if frame.device is None:
        return EvaluationError("no device")
    return device_value(frame.device)


def _charged_device(frame: Frame) -> Value:
    frame.spend(1)
    return _device(frame)


def _path(plan: Path, *, bare: bool) -> Step:
    """Each step costs 1 unless optional and absent; so does the whole, unless ``bare``, a test, or of a choice."""
    found = device_input(plan)
    taken = 0 if found is None else found.keys
    steps = [
        PathStep(compile_plan(key.value, bare=True), key.optional, isinstance(key.value, Constant))
        for key in plan.keys[taken:]
    ]
    direct = isinstance(plan.root, Variable | DeviceVariable | Choice)
    root = compile_plan(plan.root, bare=direct)
    own = 0 if bare or plan.test or isinstance(plan.root, Choice) else 1
    last = plan.keys[taken - 1]
    read = None if found is None else known_input(found, optional=last.optional, test=plan.test and not steps)

    def step(frame: Frame) -> Value:
        value = root(frame) if read is None else read(frame)
        if not isinstance(value, EvaluationError):
            value = walk(frame, value, steps, test=plan.test and bool(steps), optional=last.optional and taken > 0)
        frame.spend(own)
        return value

    return step


def _known(plan: KnownInput) -> Step:
    read = known_input(plan.input, optional=False, test=True)

    def step(frame: Frame) -> Value:
        value = read(frame)
        frame.spend(2)
        return value

    return step


def _invoke(plan: Invoke) -> Step:
    call, cost = implementation(plan), _cost(plan)
    arguments = [compile_plan(argument) for argument in plan.arguments]
    if any(overload.grows for overload in plan.candidates):
        return _growing(_call(call, cost, arguments, lenient=False))
    return _call(call, cost, arguments, lenient=plan.function.name == "@not_strictly_false")


def _cost(plan: Invoke) -> Cost:
    """By function, else by overload if types tell which it is."""
    if plan.function.cost is not None:
        return plan.function.cost
    only = plan.candidates[0].cost if len(plan.candidates) == 1 else None
    return ONE if only is None else only


def _call(call: Callable[..., Value], cost: Cost, arguments: list[Step], *, lenient: bool) -> Step:
    """One or two arguments are always evaluated and charged for; of more, none after a failed one."""
    price, early = cost.of, len(arguments) > 2

    def step(frame: Frame) -> Value:
        values, failed = [], None
        for argument in arguments:
            value = argument(frame)
            values.append(value)
            if failed is None and isinstance(value, EvaluationError) and not lenient:
                failed = value
                if early and len(values) < len(arguments):
                    return failed
        result = failed
        if result is None:
            try:
                result = call(*values)
            except EvaluationError as error:
                result = error.with_traceback(None)
        frame.spend(price(values, result))
        return result

    return step


def _growing(inner: Step) -> Step:
    def step(frame: Frame) -> Value:
        result = inner(frame)
        if isinstance(result, str | tuple | bytes):
            frame.produced(len(result))
        return result

    return step


def _membership(plan: Membership) -> Step:
    value, values = compile_plan(plan.value), plan.elements

    def step(frame: Frame) -> Value:
        found = value(frame)
        return found if isinstance(found, EvaluationError) else contains(values, found)

    return step


def _logic(terms: list[Step], *, decisive: bool) -> Step:
    """A term that decides makes errors of others not matter."""

    def step(frame: Frame) -> Value:
        failed = None
        for term in terms:
            value = term(frame)
            if value is decisive:
                return value
            if failed is None and type(value) is not bool:
                failed = value if isinstance(value, EvaluationError) else no_such_overload()
        return (not decisive) if failed is None else failed

    return step


def _choice(plan: Choice) -> Step:
    condition = compile_plan(plan.condition)
    yes, no = compile_plan(plan.yes, bare=True), compile_plan(plan.no, bare=True)

    def step(frame: Frame) -> Value:
        value = condition(frame)
        if value is True:
            return yes(frame)
        if value is False:
            return no(frame)
        return value if isinstance(value, EvaluationError) else no_such_overload()

    return step


def _or_else(optional: Step, other: Step, *, unwrap: bool) -> Step:
    def step(frame: Frame) -> Value:
        value = optional(frame)
        if isinstance(value, EvaluationError):
            return value
        if type(value) is not OptionalValue:
            return no_such_overload()
        if value.present:
            return value.value if unwrap else value
        return other(frame)

    return step


def _list(parts: list[tuple[Step, bool]]) -> Step:
    def build(frame: Frame) -> Value:
        values: list[Value] = []
        for part, optional in parts:
            value = part(frame)
            if isinstance(value, EvaluationError):
                return value
            if optional:
                if type(value) is not OptionalValue:
                    return EvaluationError("cannot initialize optional list element from non-optional value")
                if not value.present:
                    continue
                value = value.value
            values.append(value)
        return tuple(values)

    def step(frame: Frame) -> Value:
        value = build(frame)
        frame.spend(LIST_COST)
        return value

    return step


def _map(parts: list[tuple[Step, Step, bool]]) -> Step:
    def build(frame: Frame) -> Value:
        values: dict[object, Value] = {}
        for key_part, value_part, optional in parts:
            key = key_part(frame)
            value = key if isinstance(key, EvaluationError) else value_part(frame)
            if isinstance(value, EvaluationError):
                return value
            if optional:
                if type(value) is not OptionalValue:
                    return EvaluationError("cannot initialize optional entry from non-optional value")
                if not value.present:
                    continue
                value = value.value
            try:
                insert(values, key, value, what="map literal")
            except EvaluationError as error:
                return error.with_traceback(None)
        return values

    def step(frame: Frame) -> Value:
        value = build(frame)
        frame.spend(MAP_COST)
        return value

    return step


def _append(accumulator: Step, element: Step) -> Step:
    def step(frame: Frame) -> Value:
        values, value = accumulator(frame), element(frame)
        frame.spend(LIST_COST)
        frame.spend(1)
        if isinstance(values, EvaluationError):
            return values
        return value if isinstance(value, EvaluationError) else append(values, value)

    return step


def _insert(parts: list[Step]) -> Step:
    def step(frame: Frame) -> Value:
        values = []
        for part in parts:
            value = part(frame)
            values.append(value)
            if len(parts) > 2 and isinstance(value, EvaluationError):
                return value
        frame.spend(1)
        failed = next((value for value in values if isinstance(value, EvaluationError)), None)
        if failed is not None:
            return failed
        try:
            return _inserted(*values)
        except EvaluationError as error:
            return error.with_traceback(None)

    return step


def _inserted(target: Value, *entry: Value) -> Value:
    if len(entry) == 2:
        return insert(target, entry[0], entry[1], what="map")
    if not isinstance(entry[0], dict):
        raise no_such_overload()
    for key, value in entry[0].items():
        target = insert(target, key, value, what="map", native=True)
    return target


def _loop(plan: Loop) -> Step:
    source = compile_plan(plan.range)
    initial, condition = compile_plan(plan.initial), compile_plan(plan.condition)
    step_of, result = compile_plan(plan.step), compile_plan(plan.result)
    accumulator, variable, second = plan.accumulator, plan.variable, plan.second

    def step(frame: Frame) -> Value:
        values = source(frame)
        if isinstance(values, EvaluationError):
            return values
        try:
            items: Iterable[tuple[Value, Value]] = elements(values, pairs=second is not None)
        except EvaluationError as error:
            return error
        slots = frame.slots
        slots[accumulator] = Pending(initial)
        for item, other in items:
            slots[variable] = item
            if second is not None:
                slots[second] = other
            if condition(frame) is False:
                break
            slots[accumulator] = step_of(frame)
        return frozen(result(frame))

    return step


