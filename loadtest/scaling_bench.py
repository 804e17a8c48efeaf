"""How the time of a decision grows: with nodes, with devices on each node, and with shapes of claims.

``python -m loadtest.scaling_bench`` measures processor time in one thread, every size in a process of its own. A
shape's first pod finds the cluster known, but nothing of the shape; its next pods come in turns with those of all other
shapes, each after the pod before got its devices. Growth is told as a slope, the exponent of a power law by least
squares over logarithms: of all sizes, and of the three largest, where what does not grow weighs less. 1 is linear.
"""

import argparse
import gc
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import log
from pathlib import Path
from typing import Final

import orjson
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from extender.cluster.cluster_state import ClusterState
from extender.config.settings import Settings
from extender.faces.assembly import make_solver
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import No
from extender.framework.filter import filter_nodes
from extender.framework.held_devices import found_on
from extender.kube.resources import CLAIMS, CLASSES, NODES, SLICES
from loadtest.decision_bench import DisagreementError, pod_with
from tests.kit.measure import alone
from tests.kit.objects.worlds import ROOT, Machine, Wish, pending_claim, world

_MODULE: Final = "loadtest.scaling_bench"
_FOLDER: Final = Path("loadtest/results")
_FIRST, _NEXT = "first pod of a shape", "next pod"
_REPEATS: Final = 5
_LARGEST: Final = 3
_LINEAR: Final = 1.15
"""A slope that a linear one may look like: of more data, more lies outside the processor's caches."""

_MILLISECOND: Final = 1e-3
_INCHES: Final = 4.5
_DOTS_PER_INCH: Final = 110


@dataclass(frozen=True, slots=True)
class Size:
    """What is decided on.

    Attributes:
        devices: of each node.
        matched: the shapes ask for 4 devices with a value in common, else for 1; all read an attribute.
    """

    nodes: int = 1000
    devices: int = 8
    shapes: int = 1
    matched: bool = False


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of the processor for one pod on all nodes: medians."""

    first: float
    following: float


@dataclass(frozen=True, slots=True)
class Axis:
    """Sizes that differ in one thing, which is called as the field of `Size`."""

    title: str
    field: str
    sizes: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Curve:
    """Times of one kind of pod along an axis."""

    axis: str
    pod: str
    xs: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def slope(self) -> float:
        """Of all sizes."""
        return _slope(self.xs, self.seconds)

    @property
    def slope_of_largest(self) -> float:
        """Of the largest sizes."""
        return _slope(self.xs[-_LARGEST:], self.seconds[-_LARGEST:])


_NODES: Final = (100, 300, 1000, 3000, 10_000, 20_000)
_AXES: Final = (
    Axis("nodes", "nodes", tuple(Size(nodes=each) for each in _NODES)),
    Axis(
        "nodes, 4 in common",
        "nodes",
        tuple(Size(nodes=each, matched=True) for each in _NODES),
    ),
    Axis("devices of 1,000 nodes", "devices", tuple(Size(devices=2**power) for power in range(8))),
    Axis("devices, 4 in common", "devices", tuple(Size(devices=2**power, matched=True) for power in range(3, 8))),
    Axis("shapes in turns", "shapes", tuple(Size(shapes=2**power) for power in range(7))),
)


def main() -> None:
    """Measure, print, and write; or be one of the processes that are measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=_FOLDER, help="folder for scaling.json and scaling.png")
    parser.add_argument("--size", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.size:
        print(orjson.dumps(asdict(measured(Size(**orjson.loads(arguments.size))))).decode())
        return
    curves = [curve for axis in _AXES for curve in _curves(axis)]
    Console().print(_table(curves))
    arguments.out.mkdir(parents=True, exist_ok=True)
    told = [asdict(each) | {"slope": each.slope, "slope_of_largest": each.slope_of_largest} for each in curves]
    (arguments.out / "scaling.json").write_bytes(orjson.dumps(told, option=orjson.OPT_INDENT_2))
    _picture(curves).savefig(arguments.out / "scaling.png", dpi=_DOTS_PER_INCH)
    print(f"figures and pictures: {arguments.out}/scaling.json, {arguments.out}/scaling.png")


def _curves(axis: Axis) -> list[Curve]:
    found = []
    for size in axis.sizes:
        found.append(Times(**alone(_MODULE, "--size", orjson.dumps(asdict(size)).decode())))
        print(f"{size}: {found[-1]}", file=sys.stderr)
    xs = tuple(getattr(size, axis.field) for size in axis.sizes)
    kinds = ((_FIRST, [each.first for each in found]), (_NEXT, [each.following for each in found]))
    return [Curve(axis.title, pod, xs, tuple(seconds)) for pod, seconds in kinds]


def _slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The exponent of the power law that comes nearest."""
    return statistics.linear_regression([log(x) for x in xs], [log(y) for y in ys]).slope


# --- one size ------------------------------------------------------------------------------------------------


class Subject:
    """A world with claims that wait, and one decider after the other.

    Claims are called after their shape and a number.
    """

    def __init__(self, size: Size) -> None:
        self._wishes = [_wish(number, size) for number in range(size.shapes)]
        objects = world(size.nodes, Machine(size.devices), self._wishes[0])
        names = [
            (wish, f"{shape}-{number}") for shape, wish in enumerate(self._wishes) for number in range(_REPEATS + 1)
        ]
        claims = [pending_claim(wish, name) for wish, name in (*names, (Wish(selector="true"), "other"))]
        self._names = [each["metadata"]["name"] for each in objects["nodes"]]
        self._state = ClusterState()
        kinds = {NODES: objects["nodes"], SLICES: objects["slices"], CLASSES: objects["classes"]}
        for resource, listed in (*kinds.items(), (CLAIMS, [*objects["allocated"], *claims])):
            self._state.replace(resource, listed, 1)
        self._solver = make_solver(Settings())
        self._chance = random.Random(1)
        self.anew()

    def anew(self) -> None:
        """Forget what was decided; the cluster is known."""
        self._decider = Decider(self._solver, self._state)
        self.filter("other")

    def filter(self, claim: str) -> float:
        """Seconds for a pod with a claim."""
        began = time.process_time()
        snapshot = self._state.snapshot
        self._decider.follow(snapshot)
        filter_nodes(pod_with(claim), self._names, snapshot, self._solver, decider=self._decider)
        return time.process_time() - began

    def take(self, claim: str) -> None:
        """The pod with the claim gets its devices on one node or another."""
        snapshot = self._state.snapshot
        passed = filter_nodes(pod_with(claim), self._names, snapshot, self._solver, decider=self._decider).passed
        node = snapshot.nodes[passed[self._chance.randrange(len(passed))]]
        found = found_on(node, pod_with(claim), snapshot, self._solver)
        if isinstance(found, No):
            raise DisagreementError(f"filter lets {node.name} pass, where there is nothing: {found.reason.in_words()}")
        self._state.assume(f"uid-ResourceClaim-{claim}", found.results[0], "uid-pod")


def measured(size: Size) -> Times:
    """Medians over repeats; of many shapes, means over all of them within each."""
    subject = Subject(size)
    gc.collect()
    gc.freeze()  # as the service does with what is there to stay
    first, following = [], []
    for _ in range(_REPEATS):
        subject.anew()
        first.append(statistics.mean(subject.filter(f"{shape}-0") for shape in range(size.shapes)))
    for number in range(_REPEATS):
        times = []
        for shape in range(size.shapes):
            subject.take(f"{shape}-{number}")
            times.append(subject.filter(f"{shape}-{number + 1}"))
        following.append(statistics.mean(times))
    return Times(statistics.median(first), statistics.median(following))


def _wish(number: int, size: Size) -> Wish:
    selector = f'device.attributes["gpu.example.com"].model == "a100" || "{number}" == ""'
    return Wish((min(4, size.devices),), selector, match=ROOT) if size.matched else Wish(selector=selector)


# --- what is told --------------------------------------------------------------------------------------------


def _table(curves: Sequence[Curve]) -> Table:
    table = Table(
        "", "pod", "ms", "slope", f"of {_LARGEST} largest", title="Processor time for a pod, smallest to largest"
    )
    for each in curves:
        verdict = "" if each.slope_of_largest <= _LINEAR else "MORE THAN LINEAR"
        smallest, largest = (seconds / _MILLISECOND for seconds in (each.seconds[0], each.seconds[-1]))
        table.add_row(
            f"{each.axis}, {each.xs[0]:,} to {each.xs[-1]:,}",
            each.pod,
            f"{smallest:.2f} to {largest:.2f}",
            f"{each.slope:.2f}",
            f"{each.slope_of_largest:.2f} {verdict}".rstrip(),
        )
    return table


def _picture(curves: Sequence[Curve]) -> Figure:
    """A diagram for each axis."""
    titles = list(dict.fromkeys(each.axis for each in curves))
    figure = Figure(figsize=(_INCHES * len(titles), _INCHES), layout="constrained")
    for axes, title in zip(figure.subplots(1, len(titles)), titles, strict=True):
        _diagram(axes, [each for each in curves if each.axis == title])
    return figure


def _diagram(axes: Axes, curves: Sequence[Curve]) -> None:
    for each in curves:
        milliseconds = [seconds / _MILLISECOND for seconds in each.seconds]
        axes.loglog(each.xs, milliseconds, marker="o", label=f"{each.pod}: slope {each.slope:.2f}")
    start = curves[-1].seconds[0] / _MILLISECOND
    xs = curves[-1].xs
    axes.loglog(xs, [start * x / xs[0] for x in xs], linestyle=":", color="#8a8f98", label="linear")
    axes.set_title(curves[0].axis, fontsize=9)
    axes.set_ylabel("ms of the processor for a pod")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(fontsize=8)


if __name__ == "__main__":
    main()
