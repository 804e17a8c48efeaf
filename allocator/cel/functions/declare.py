"""The declaration of a function: overloads, types, implementation and cost in one place.

The checker picks overloads by types, the compilers call implementations, the meter uses costs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from allocator.cel.cost import Cost
from allocator.cel.types import Type

Implementation: TypeAlias = Callable[..., Any]
"""Takes the values of the arguments and returns the result. Raises `EvaluationError`."""


@dataclass(frozen=True, slots=True, eq=False)
class Overload:
    """One signature of a function.

    Attributes:
        member: called as ``parameters[0].function(...)``.
        cost: None for 1; used only if the types determine this overload.
        grows: the result can be much larger than the cost shows, so its size is counted.
    """

    parameters: tuple[Type, ...]
    result: Type
    implementation: Implementation
    member: bool = False
    cost: Cost | None = None
    grows: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function or operator with its overloads.

    Attributes:
        cost: the cost of overloads without their own, and of a call if types leave several overloads.
        singleton: upstream has one implementation for all overloads, so the values alone determine the overload.
            Otherwise only an overload that fits the types is called.
        guarded: upstream compares the values of the arguments with the types of the overload.
    """

    name: str
    overloads: tuple[Overload, ...]
    cost: Cost | None = None
    singleton: bool = False
    guarded: bool = True


Library: TypeAlias = tuple[Function, ...]


@dataclass(frozen=True, slots=True)
class Declarations:
    """The functions that an expression may use.

    Attributes:
        device: the fields of the variable ``device``.
    """

    functions: Mapping[str, Function]
    device: Mapping[str, Type]


def function(name: str, *overloads: Overload, cost: Cost | None = None) -> Function:
    """A function of some overloads."""
    return Function(name, overloads, cost)


def free(
    *parameters: Type, result: Type, call: Implementation, cost: Cost | None = None, grows: bool = False
) -> Overload:
    """An overload that is called as ``function(...)``, or an operator's."""
    return Overload(parameters, result, call, cost=cost, grows=grows)


def member(
    *parameters: Type, result: Type, call: Implementation, cost: Cost | None = None, grows: bool = False
) -> Overload:
    """An overload that is called as ``first.function(...)``."""
    return Overload(parameters, result, call, member=True, cost=cost, grows=grows)
