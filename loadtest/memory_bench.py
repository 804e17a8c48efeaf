"""What the service takes of memory: with many devices, with ever more of them, and after many pods have come and gone.

``python -m loadtest.memory_bench`` measures resident memory, every size in a process of its own (Linux). ``--trace N``
tells instead which lines of code made what the second half of N pods has left behind.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import tracemalloc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

import orjson

from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod, PodClaim
from extender.config.sources import load
from extender.faces.assembly import make_extender, make_solver
from extender.faces.serving.memory import sparing_survivors
from extender.framework.wire import FilterArgs
from extender.kube.resources import CLAIMS, CLASSES, NODES, RESOURCES, SLICES
from extender.lab.api import MemoryApi
from extender.tools import logs
from extender.tools.logs import LogSettings
from loadtest.churn import Churn
from loadtest.sync_bench import fake_server
from tests.kit.measure import MEGABYTE, Footprint, alone, footprint, resident, resident_peak
from tests.kit.objects import synthetic
from tests.kit.objects.parts import DRIVER
from tests.kit.objects.worlds import RawObject, Wish, pending_claim
from tests.kit.process import free_port
from tests.kit.service import extender

_MODULE: Final = "loadtest.memory_bench"
_NODES: Final = 5000
"""With 8 devices each, as everywhere here."""

_SIZES: Final = (1000, _NODES, 12_500, 25_000)
_SHAPES: Final = 20
_PODS: Final = 50_000
_CHURNING: Final = 100
"""Nodes on which pods come and go."""

_UNIT: Final = 10_000
_START_SECONDS: Final = 300.0
_TRACED_LINES: Final = 25

_MOST: Final = 300.0
_MOST_BENT: Final = 1.1
_MOST_GROWTH: Final = 1.0


def main() -> None:
    """Measure and print, or be one of the processes that are measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=_PODS, help="that come and go")
    parser.add_argument("--trace", type=int, metavar="N", help="where memory goes that N pods leave behind")
    parser.add_argument("--deciding", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--churning", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    logs.configure(LogSettings(level="error"))
    if arguments.trace:
        asyncio.run(_trace(arguments.trace))
    elif arguments.deciding:
        _tell(asyncio.run(_deciding(arguments.deciding)))
    elif arguments.churning:
        with sparing_survivors():
            _tell(asyncio.run(_churning(arguments.churning)))
    else:
        _measure(arguments.pods)


def _tell(found: Mapping[str, Footprint]) -> None:
    print(orjson.dumps({name: asdict(each) for name, each in found.items()}).decode())


def _measure(pods: int) -> None:
    now, peak = _serving()
    print(f"dra-extender serve, following {_NODES:,} nodes with {synthetic.DEVICES_PER_NODE * _NODES:,} devices:")
    print(_line("resident when synced", now / MEGABYTE, "MB", _MOST))
    print(f"  {'the most until then':<52} {peak / MEGABYTE:8.1f} MB")
    print(f"the service in a process alone, {_SHAPES} shapes of claims decided on all nodes:")
    _print_sizes({nodes: _alone("--deciding", nodes) for nodes in _SIZES})
    print(f"{pods:,} pods that come and go on {_CHURNING} nodes with 64 devices each:")
    _print_growth({int(name): each for name, each in _alone("--churning", pods).items()}, pods)


def _alone(kind: str, number: int) -> dict[str, Footprint]:
    return {name: Footprint(**each) for name, each in alone(_MODULE, kind, str(number)).items()}


def _print_sizes(found: Mapping[int, Mapping[str, Footprint]]) -> None:
    """Every size, and what each further device takes, from size to size."""
    for nodes, points in found.items():
        start, synced, decided = (points[name].resident / MEGABYTE for name in ("start", "synced", "decided"))
        parts = f"modules {start:.0f}, cluster {synced - start:.0f}, decisions {decided - synced:.0f}"
        what = f"{nodes * synthetic.DEVICES_PER_NODE:,} devices"
        if nodes == _NODES:
            print(_line(what, decided, "MB", _MOST), f" ({parts})")
        else:
            print(f"  {what:<52} {decided:8.1f} MB ({parts})")
    steps = [(large - small) * synthetic.DEVICES_PER_NODE / _UNIT for small, large in pairwise(found)]
    taken = [b["decided"].resident - a["decided"].resident for a, b in pairwise(found.values())]
    slopes = [each / MEGABYTE / step for each, step in zip(taken, steps, strict=True)]
    told = ", ".join(f"{each:.1f}" for each in slopes)
    print(f"  {f'for {_UNIT:,} devices more, from size to size':<52} {told} MB")
    print(_line("the last of these, as a ratio to the first", slopes[-1] / slopes[0], "x", _MOST_BENT))


def _print_growth(points: Mapping[int, Footprint], pods: int) -> None:
    """Every point, and the growth by least squares once what is kept of late pods is there."""
    for number, each in points.items():
        print(f"  {f'after {number:,} pods':<52} {each.resident / MEGABYTE:8.1f} MB, {each.objects:,} objects")
    late = {number: each for number, each in points.items() if number >= 2 * pods / 5}
    megabytes = _growth(late, [each.resident / MEGABYTE for each in late.values()])
    objects = _growth(late, [each.objects for each in late.values()])
    what = f"growth for {_UNIT:,} pods, from {next(iter(late)):,} on"
    print(_line(what, megabytes, "MB", _MOST_GROWTH), f" ({objects:+,.0f} objects)")


def _growth(pods: Iterable[int], values: Sequence[float]) -> float:
    return statistics.linear_regression(list(pods), values).slope * _UNIT


def _line(what: str, value: float, unit: str, most: float) -> str:
    verdict = "met" if value <= most else "MISSED"
    return f"  {what:<52} {value:8.1f} {unit:<2} (goal {most:g}: {verdict})"


# --- the service as it is run --------------------------------------------------------------------------------


def _serving() -> tuple[int, int]:
    """Bytes of a service that has synced with a server that has nodes and devices: now, and at most."""
    sizes = {"nodes": _NODES}
    with fake_server(sizes) as api_port, tempfile.TemporaryDirectory() as folder:
        service = extender(Path(folder), api_port, free_port())
        service.start(within=_START_SECONDS)
        try:
            return resident(service.pid), resident_peak(service.pid)
        finally:
            service.stop()


# --- ever more devices ---------------------------------------------------------------------------------------


async def _deciding(nodes: int) -> dict[str, Footprint]:
    """A service over a cluster that is made up in this process, before and after pods of several shapes."""
    found = {"start": footprint()}
    state, settings = ClusterState(), load("scheduling: {deadlineSeconds: 600}")
    wishes = [_wish(number) for number in range(_SHAPES)]
    objects: dict[str, Iterable[RawObject]] = {
        NODES.kind: (synthetic.node(number, number + 1) for number in range(nodes)),
        SLICES.kind: (synthetic.resource_slice(number, number + 1) for number in range(nodes)),
        CLASSES.kind: [synthetic.device_class(0, 1)],
        CLAIMS.kind: [pending_claim(wish, f"claim-{number}") for number, wish in enumerate(wishes)],
    }
    for resource in RESOURCES.values():
        state.replace(resource, objects.get(resource.kind, ()), nodes)
    found["synced"] = footprint()
    api = MemoryApi(now=lambda: datetime.now(UTC), new_uid=lambda: "uid")
    service = make_extender(api, state, make_solver(settings), settings).service
    names = list(state.snapshot.nodes)
    for number in range(_SHAPES):
        claims = (PodClaim("gpu", claim_name=f"claim-{number}"),)
        result = await service.filter(
            FilterArgs(Pod("default", f"pod-{number}", f"uid-{number}", claims=claims), names)
        )
        if not result.passed:
            raise RuntimeError(f"shape {number} fits on no node")
    return found | {"decided": footprint()}


def _wish(number: int) -> Wish:
    """One of many shapes: different attributes are read and compared."""
    read = ("productName", "architecture", "brand", "type", "uuid")[number % 5]
    selector = f"device.attributes['{DRIVER}'].{read}.size() >= {number // 5}"
    return Wish((1 + number % 2,), selector, match=f"{DRIVER}/pcieRoot" if number % 2 else "")


# --- pods that come and go -----------------------------------------------------------------------------------


async def _churning(pods: int) -> dict[str, Footprint]:
    """By how many pods have come."""
    churn, found = Churn(_CHURNING), {}
    step = pods // 10
    for number in range(step, pods + 1, step):
        await churn.pods(step)
        found[str(number)] = footprint()
        print(f"after {number:,} pods: {found[str(number)]}", file=sys.stderr)
    return found


async def _trace(pods: int) -> None:
    churn = Churn(_CHURNING)
    await churn.pods(pods // 2)
    footprint()
    tracemalloc.start(5)
    before = tracemalloc.take_snapshot()
    await churn.pods(pods // 2)
    footprint()
    after = tracemalloc.take_snapshot()
    for each in after.compare_to(before, "lineno")[:_TRACED_LINES]:
        print(each)


if __name__ == "__main__":
    main()
