"""The most pods that fit, if all of them are known at once: a bound for every policy, by OR-tools CP-SAT.

It is the cutting-stock model: each part of a machine gets one pattern, and as many pods are placed as patterns have
room for.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from ortools.sat.python.cp_model import FEASIBLE, OPTIMAL, CpModel, CpSolver, LinearExpr

from loadtest.packing.own.draw import OwnTrace
from loadtest.packing.own.patterns import Part, parts, patterns

_SECONDS: Final = 60.0
"""After this time the bound is what is proven by then: never too low, perhaps too high."""


class UnboundedError(RuntimeError):
    """The solver has found nothing; the text has its status."""


def bound(trace: OwnTrace) -> int:
    """The most pods of a trace that can have devices at once. Raises UnboundedError."""
    kinds = trace.scenario.kinds
    having: Counter[Part] = Counter()
    for machine, nodes in Counter(trace.nodes.values()).items():
        for part, number in parts(machine, kinds).items():
            having[part] += number * nodes
    arrived = Counter(pod.kind.name for pod in trace.pods)
    return most(having, [arrived[kind.name] for kind in kinds])


def most(having: Mapping[Part, int], arrived: Sequence[int]) -> int:
    """The most pods that fit.

    Args:
        having: the parts, and how many there are of each.
        arrived: pods of each kind, in the order of the patterns.
    """
    model = CpModel()
    room: list[list[LinearExpr]] = [[] for _ in arrived]
    for part, number in having.items():
        used = []
        for pattern in patterns(part):
            times = model.new_int_var(0, number, "")
            used.append(times)
            for kind, pods in enumerate(pattern):
                room[kind].append(times * pods)
        model.add(sum(used) <= number)
    placed = [model.new_int_var(0, pods, "") for pods in arrived]
    for of_kind, there in zip(placed, room, strict=True):
        model.add(of_kind <= sum(there))
    model.maximize(sum(placed))
    solver = CpSolver()
    solver.parameters.max_time_in_seconds = _SECONDS
    status = solver.solve(model)
    if status not in (OPTIMAL, FEASIBLE):
        raise UnboundedError(f"CP-SAT: {solver.status_name(status)}")
    return int(solver.best_objective_bound)
