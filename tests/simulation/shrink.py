"""Makes a plan that breaks a law as small as it gets, so that a person can read it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from tests.kit.clusters import Object
from tests.kit.shrinking import smallest
from tests.simulation.plan import Plan, Span, Step

_Part: TypeAlias = "Step | Span | Object"


def shrunk(plan: Plan, breaks: Callable[[Plan], bool], most: int) -> Plan:
    """A part of a plan that breaks the same law; without more of it, the law holds.

    Args:
        plan: breaks the law.
        breaks: whether a plan does.
        most: tries. Then the smallest plan so far is returned.
    """
    whole: list[_Part] = [*plan.spans, *plan.steps, *plan.objects]
    parts = smallest(whole, lambda rest: breaks(_of(plan, rest)), most)
    alone = _with_one_replica(_of(plan, parts))
    return alone if breaks(alone) else _of(plan, parts)


def _of(plan: Plan, parts: Sequence[_Part]) -> Plan:
    return replace(
        plan,
        spans=tuple(each for each in parts if isinstance(each, Span)),
        steps=tuple(each for each in parts if isinstance(each, Step)),
        objects=tuple(each for each in parts if isinstance(each, dict)),
    )


def _with_one_replica(plan: Plan) -> Plan:
    return replace(plan, replicas=1, spans=tuple(replace(each, replica=0) for each in plan.spans))
