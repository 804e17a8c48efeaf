"""How long one evaluation of a selector takes, beside cel-python's interpreter on the same expression in the same run.

Each figure is the median of several repeats. The peer gets what it needs prepared outside the measurement: its program,
and the device converted to its types; expressions that need functions it does not have are measured for us alone.
"""

import statistics
import sys
import timeit
from collections.abc import Callable
from functools import partial
from typing import Any

import celpy
from celpy.adapter import json_to_cel
from rich.console import Console
from rich.table import Table

from allocator import Device, DeviceId, Quantity, Selectors, Version
from allocator.cel import CostLimitError, Environment, Program, compile_expression

DRIVER = "gpu.example.com"
DEVICE = Device(
    DeviceId(DRIVER, "node-1", "gpu-0"),
    attributes={
        f"{DRIVER}/model": "a100",
        f"{DRIVER}/index": 3,
        f"{DRIVER}/driverVersion": Version.parse("550.54.15"),
        "resource.kubernetes.io/pcieRoot": "pci0000:01",
    },
    quantities={f"{DRIVER}/memory": Quantity.parse("80Gi")},
)
ATTRIBUTES = f'device.attributes["{DRIVER}"]'
CAPACITY = f'device.capacity["{DRIVER}"]'
CASES = (
    ("driver", f'device.driver == "{DRIVER}"', 0.3, True),
    ("string attribute", f'{ATTRIBUTES}.model == "a100"', 1.0, True),
    ("int attribute", f"{ATTRIBUTES}.index > 2", 1.0, True),
    ("version attribute", f'{ATTRIBUTES}.driverVersion.isGreaterThan(semver("550.0.0"))', 1.0, False),
    ("capacity", f'{CAPACITY}.memory.compareTo(quantity("40Gi")) >= 0', 1.0, False),
    ("one of", f'{ATTRIBUTES}.model in ["h100", "a100"]', 1.0, True),
    ("two together", f'device.driver == "{DRIVER}" && {ATTRIBUTES}.model == "a100"', None, True),
    ("regular expression", f'{ATTRIBUTES}.model.matches("^a[0-9]+$")', None, True),
    ("comprehension", f'["a100", "h100"].exists(m, m == {ATTRIBUTES}.model)', None, True),
)
"""What, expression, goal in microseconds, whether cel-python can do it."""


GROWING = (
    ("strings doubled by map", '["a"].map(x, x + x)' + ".map(x, x + x)" * 60 + ".size() == 1"),
    ("lists doubled by map", "[[1]].map(x, x + x)" + ".map(x, x + x)" * 60 + ".size() == 1"),
    ("formats", '["a"].map(x, "%s%s".format([x, x]))' + '.map(x, "%s%s".format([x, x]))' * 60 + ".size() == 1"),
)
"""Values that would fill the memory; the goal is to hit the limit on cost within 100 ms."""


def median_micros(work: Callable[[], object], repeats: int = 9, seconds: float = 0.02) -> float:
    """The median time of one call in microseconds, without that of calling nothing."""
    timer = timeit.Timer(work)
    number = max(1, int(seconds / max(timer.timeit(1), timer.timeit(1), 1e-7)))
    nothing = statistics.median(timeit.repeat(lambda: None, number=number, repeat=repeats))
    return max(0.0, statistics.median(timer.repeat(repeats, number)) - nothing) / number * 1e6


def peer(expression: str) -> Callable[[], object]:
    """The expression in cel-python's interpreter, ready to run."""
    # Its Environment raises the recursion limit of the process; ours is measured at the usual one.
    limit = sys.getrecursionlimit()
    environment = celpy.Environment()
    program = environment.program(environment.compile(expression))
    sys.setrecursionlimit(limit)
    domains: dict[str, dict[str, Any]] = {}
    for qualified, value in DEVICE.attributes.items():
        domain, _, name = qualified.partition("/")
        domains.setdefault(domain, {})[name] = str(value) if isinstance(value, Version) else value
    context = {"device": json_to_cel({"driver": DRIVER, "attributes": domains})}
    return partial(program.evaluate, context)


def ours(program: Program) -> Callable[[], object]:
    """Our program on the device, ready to run."""
    return partial(program.evaluate, DEVICE)


def stopped(program: Program) -> None:
    """Run into the limit on cost."""
    try:
        program.evaluate(DEVICE)
    except CostLimitError:
        return
    raise AssertionError("the limit was not hit")


def growing_table() -> Table:
    """How soon values that grow are stopped."""
    table = Table("what grows", "ms until the limit", "goal")
    for name, expression in GROWING:
        millis = median_micros(partial(stopped, compile_expression(expression, Environment()))) / 1e3
        table.add_row(name, f"{millis:.2f}", f"100 {'met' if millis <= 100 else 'MISSED'}")
    return table


def main() -> None:
    """Print the tables."""
    columns = ("selector", "us", "goal", "matches, us", "compile, ms", "cel-python", "ratio")
    table = Table(*columns, title="One evaluation")
    environment, selectors = Environment(), Selectors()
    for name, expression, goal, comparable in CASES:
        micros = median_micros(ours(compile_expression(expression, environment)))
        matching = median_micros(partial(selectors.matches, expression, DEVICE))
        compiling = median_micros(partial(compile_expression, expression, environment)) / 1e3
        other = median_micros(peer(expression)) if comparable else None
        table.add_row(
            name,
            f"{micros:.2f}",
            "" if goal is None else f"{goal:.1f} {'met' if micros <= goal else 'MISSED'}",
            f"{matching:.2f}",
            f"{compiling:.2f}",
            "" if other is None else f"{other:.1f}",
            "" if other is None else f"{other / max(micros, 0.001):.0f}",
        )
    Console().print(table)
    Console().print(growing_table())


if __name__ == "__main__":
    main()
