"""Plans to closures that count cost step by step, as cel-go's tracker does.

Errors are values here, because the arguments after a failed one still run and cost. Only exceeding a limit is an
exception. Cost is observable, so the order of evaluation must be cel-go's.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final

from allocator.cel.calls import constant_pattern, cost_of, folded, implementation
from allocator.cel.checked import (
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
    breadth,
    device_input,
)
from allocator.cel.compile.collections import Pending, append_step, elements, frozen, insert_step, make_list, make_map
from allocator.cel.compile.frame import ELEMENT_WORK, Frame, Step
from allocator.cel.compile.paths import PathStep, known_input, walk
from allocator.cel.cost import LIMIT
from allocator.cel.equality import membership
from allocator.cel.errors import CostLimitError, EvaluationError, StoppedError, no_such_overload
from allocator.cel.keys import new_key, to_key
from allocator.cel.values import OptionalValue, Value, nested_size

_LONG: Final = 4096
_TRAVERSING: Final = frozenset(
    {"_==_", "_!=_", "@in", "includes", "indexOf", "lastIndexOf", "format", "join", "isSorted", "min", "max", "sum"}
    | {"flatten", "sort", "@sortByAssociatedKeys", "distinct", "slice", "reverse"}
    | {"sets.contains", "sets.equivalent", "sets.intersects"}
)
"""Calls that read a whole list or map, whatever they cost."""


def compile_plan(plan: Plan, *, bare: bool = False) -> Step:
    """The closure of a plan; ``bare``: it is a branch of a choice or a key, where variables cost nothing."""
    if isinstance(plan, Path):
        return _path(plan, bare=bare)
    if isinstance(plan, Variable):
        return _variable(plan.slot, bare=bare)
    if isinstance(plan, DeviceVariable):
        return Frame.view if bare else _device
    return _COMPILERS[type(plan)](plan)


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
    frame.spend(1)
    return frame.view()


def _path(plan: Path, *, bare: bool) -> Step:
    """Each step costs 1 unless optional and absent. The path costs 1 more unless ``bare``, a test, or of a choice."""
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


def _step_of_known_input(plan: KnownInput) -> Step:
    read = known_input(plan.input, optional=False, test=True)

    def step(frame: Frame) -> Value:
        value = read(frame)
        frame.spend(2)
        return value

    return step


def _invoke(plan: Invoke) -> Step:
    call = implementation(plan)
    arguments = [compile_plan(argument) for argument in plan.arguments]
    if any(overload.grows for overload in plan.candidates):
        return _growing(plan, call, arguments)
    result = folded(plan)
    return _call(plan, call, arguments) if result is None else _repeated(plan, result)


def _repeated(plan: Invoke, result: Constant) -> Step:
    """A call of constants is computed once, but costs at each evaluation."""
    price = cost_of(plan).of([a.value for a in plan.arguments if isinstance(a, Constant)], result.value)

    def step(frame: Frame) -> Value:
        frame.spend(price)
        return result.value

    return step


def _call(plan: Invoke, call: Callable[..., Value], arguments: list[Step]) -> Step:
    """One or two arguments are always evaluated and charged; of more, none after a failed one.

    The same holds for ``format``, for a constant pattern, which is compiled with the expression, and for several
    possible overloads.
    """
    prepared = constant_pattern(plan) is not None or plan.function.name == "format"
    searched = len(plan.candidates) > 1 and not plan.function.singleton
    formula, early = cost_of(plan), len(arguments) > 2 or prepared or searched
    price, late = formula.of, formula.late
    lenient, traversing = plan.function.name == "@not_strictly_false", plan.function.name in _TRAVERSING

    def step(frame: Frame) -> Value:
        values, failed = [], None
        for argument in arguments:
            value = argument(frame)
            values.append(value)
            if isinstance(value, EvaluationError):
                if early and len(values) < len(arguments):
                    return value
                failed = failed or value
            elif traversing or type(value) is str:
                _count(frame, value)
        result = None if lenient else failed
        if not late:
            frame.spend(price(values, result))
        if result is None:
            try:
                result = call(*values)
            except StoppedError:
                raise
            except EvaluationError as error:
                result = error.as_value()
        if late:
            frame.spend(price(values, result))
        return result

    return step


def _count(frame: Frame, value: Value) -> None:
    """Count what a call reads, in case its cost does not: only sizes that no value of a device has."""
    if type(value) is str:
        if len(value) > _LONG:
            frame.produced(len(value) // ELEMENT_WORK)
    elif type(value) is tuple or isinstance(value, dict):
        frame.produced(len(value) + nested_size(value))


def _growing(plan: Invoke, call: Callable[..., Value], arguments: list[Step]) -> Step:
    """Calls with a possibly large result: charged before the call, as far as the arguments show, and counted after."""
    cost = cost_of(plan)

    def guarded(*values: Value) -> Value:
        if cost.of(values, None) > LIMIT:
            raise CostLimitError
        return call(*values)

    inner = _call(plan, guarded, arguments)

    def step(frame: Frame) -> Value:
        result = inner(frame)
        if isinstance(result, str | bytes):
            frame.produced(len(result))
        elif isinstance(result, tuple):
            frame.produced(len(result) * ELEMENT_WORK)
        return result

    return step


def _membership(plan: Membership) -> Step:
    value, has = compile_plan(plan.value), membership(plan.elements)

    def step(frame: Frame) -> Value:
        found = value(frame)
        return found if isinstance(found, EvaluationError) else has(found)

    return step


def _logic(plan: Logic) -> Step:
    """A decisive term absorbs the errors of the others."""
    terms, decisive = [compile_plan(term) for term in plan.terms], plan.decisive

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


def _or_else(plan: OrElse) -> Step:
    optional, other, unwrap = compile_plan(plan.optional), compile_plan(plan.other), plan.unwrap

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


def _loop(plan: Loop) -> Step:
    source = compile_plan(plan.range)
    initial, condition = compile_plan(plan.initial), compile_plan(plan.condition)
    step_of, result = compile_plan(plan.step), compile_plan(plan.result)
    accumulator, variable, second = plan.accumulator, plan.variable, plan.second
    work = breadth(plan.condition) + breadth(plan.step)

    def step(frame: Frame) -> Value:
        values = source(frame)
        if isinstance(values, EvaluationError):
            return values
        try:
            items: Iterable[tuple[Value, Value]] = elements(values, pairs=second is not None)
        except EvaluationError as error:
            return error.as_value()
        slots = frame.slots
        slots[accumulator] = Pending(initial)
        for item, other in items:
            slots[variable] = item
            if second is not None:
                slots[second] = other
            frame.work += work
            if frame.work > frame.pause:
                frame.look()
            if condition(frame) is False:
                break
            slots[accumulator] = step_of(frame)
        return frozen(result(frame))

    return step


def _aggregate(plan: MakeList) -> Step:
    return make_list([(compile_plan(element), optional) for element, optional in plan.elements])


def _mapping(plan: MakeMap) -> Step:
    return make_map(
        [(compile_plan(key), _key(key), compile_plan(value), optional) for key, value, optional in plan.entries]
    )


def _key(plan: Plan) -> Callable[[Value], Hashable]:
    """Turns the values of a plan into keys of maps. Each evaluation makes new results and new values of the device."""
    origin = plan.root if isinstance(plan, Path) else plan
    return new_key if isinstance(origin, Invoke | Loop | DeviceVariable) else to_key


def _appending(plan: Append) -> Step:
    constant = isinstance(plan.element, Constant)
    return append_step(compile_plan(plan.accumulator), compile_plan(plan.element), constant=constant)


def _inserting(plan: Insert) -> Step:
    return insert_step(compile_plan(plan.accumulator), [compile_plan(part) for part in plan.arguments])


def _constant(plan: Constant) -> Step:
    value = plan.value
    return lambda _frame: value


_COMPILERS: Final[Mapping[type, Callable[[Any], Step]]] = {
    Constant: _constant,
    KnownInput: _step_of_known_input,
    Invoke: _invoke,
    Membership: _membership,
    Logic: _logic,
    Choice: _choice,
    OrElse: _or_else,
    MakeList: _aggregate,
    MakeMap: _mapping,
    Append: _appending,
    Insert: _inserting,
    Loop: _loop,
}
