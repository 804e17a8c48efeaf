"""How much of a cluster each policy can allocate, as pods arrive until they have asked for more than there is.

There are two sources of nodes and pods. Traces from files have the columns of alibaba/clusterdata,
cluster-trace-gpu-v2023: pods arrive in random order, which the seed decides, and more are drawn from the trace until
the load is reached; CPU and memory count as in kube-scheduler. Traces of ours are drawn by the seed: mig (partitions of
GPUs), any-gpu (GPUs or partitions, whichever are large enough), nvlink (several GPUs that NVLink joins), nic (a GPU and
a NIC at one PCIe root), sriov (shared bandwidth).

Each pod gets a node when it arrives, or never. Filter, prioritize and bind are the service's. Progress goes to stderr,
results to stdout. Exit code 2: bad input.
"""

import argparse
import json
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from allocator.policies import POLICIES
from allocator.tools import hint
from extender import Cluster
from extender.answers.observe.device_states import DeviceStates
from extender.answers.pictures import fleet_of, fleet_picture
from extender.config.settings import SchedulingSettings
from extender.tools.table import print_table
from loadtest.packing.arrivals import LOAD
from loadtest.packing.own.bound import bound
from loadtest.packing.own.draw import draw
from loadtest.packing.own.run import run_own
from loadtest.packing.own.scenarios import SCENARIOS
from loadtest.packing.picture import picture
from loadtest.packing.results import ResultsError, read_published, read_runs
from loadtest.packing.room import Strategy
from loadtest.packing.run import Run, run
from loadtest.packing.table import results_table
from loadtest.packing.trace import Trace, TraceError, TraceNode, read_nodes, read_trace

_USAGE: Final = 2
_STEP: Final = 500
"""Pods between two lines of progress."""

_NODES: Final = 20
"""Nodes of a trace of ours."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code."""
    parser = _parser()
    wanted = parser.parse_args(arguments)
    if problem := _problem(wanted):
        parser.error(problem)
    try:
        nodes = read_nodes(wanted.nodes) if wanted.nodes else ()
        traces = [read_trace(path) for path in wanted.pods]
        published = read_published(wanted.published) if wanted.published else {}
        runs = [each for path in wanted.results for each in read_runs(path)]
    except (TraceError, ResultsError) as error:
        print(error, file=sys.stderr)
        return _USAGE
    try:
        runs += [*_runs(nodes, traces, wanted), *_own_runs(wanted)]
    except OSError as error:
        print(f"{wanted.devices_picture}: {error.strerror}", file=sys.stderr)
        return _USAGE
    if wanted.output == "json":
        print(json.dumps([each.as_json() for each in runs], indent=2))
    else:
        print_table(results_table(runs, published), sys.stdout)
    if wanted.picture:
        try:
            wanted.picture.write_bytes(picture(runs, published))
        except OSError as error:
            print(f"{wanted.picture}: {error.strerror}", file=sys.stderr)
            return _USAGE
    return 0


def _problem(wanted: argparse.Namespace) -> str:
    """What is wrong with options that are right one by one; empty: nothing."""
    if not (wanted.pods or wanted.own or wanted.results):
        return "nothing to measure: name files with pods, or traces of ours with --own, or --results"
    if bool(wanted.pods) != bool(wanted.nodes):
        return "--nodes and files with pods belong together"
    for option in ("strategy", "cpu_of_pods_with_devices"):
        if getattr(wanted, option) and not wanted.pods:
            flag = f"--{option.replace('_', '-')}"
            return f"{flag} is for traces from files: nodes of our traces have CPU and memory for all pods"
    for option in ("bound", "departures", "own_nodes", "devices_picture"):
        if getattr(wanted, option) and not wanted.own:
            return f"--{option.replace('_', '-')} is for traces of ours: name them with --own"
    if wanted.bound and wanted.departures:
        return "--bound is about pods that stay: leave out --departures"
    if wanted.picture and wanted.departures:
        return "--picture is about pods that stay: leave out --departures"
    return ""


def _runs(nodes: Sequence[TraceNode], traces: Sequence[Trace], wanted: argparse.Namespace) -> Iterator[Run]:
    strategy = Strategy(wanted.strategy or Strategy.LEAST)
    for trace in traces:
        for policy in wanted.policies:
            for seed in wanted.seeds:
                title = f"{trace.name}, {policy}, seed {seed}"
                settings = {"policy": policy, "cpuOfAllPods": not wanted.cpu_of_pods_with_devices}
                scheduling = SchedulingSettings.model_validate(settings)
                yield _told(title, run(nodes, trace, scheduling, seed, wanted.load, strategy, _progress(title)))


def _own_runs(wanted: argparse.Namespace) -> Iterator[Run]:
    for name in wanted.own:
        for seed in wanted.seeds:
            trace = draw(SCENARIOS[name](), wanted.own_nodes or _NODES, seed, wanted.load, departures=wanted.departures)
            most = bound(trace) if wanted.bound else None
            for policy in wanted.policies:
                title = f"{name}, {policy}, seed {seed}"
                found = run_own(trace, policy, seed, _progress(title), _drawing(wanted.devices_picture, title))
                yield replace(_told(title, found), bound=most)


def _drawing(file: Path | None, title: str) -> Callable[[Cluster], object]:
    """Draws the devices of a cluster into a file, if there is one; a later run draws over it."""

    def draw(cluster: Cluster) -> None:
        if file is not None:
            states = DeviceStates(cluster.settings.features)
            file.write_bytes(fleet_picture(fleet_of(cluster.snapshot, states, title)))

    return draw


def _told(title: str, found: Run) -> Run:
    if found.in_use is not None:
        percent = f"{found.in_use:.1f} % in use, "
    elif found.allocated:
        percent = f"{found.allocated[max(found.allocated)]:.1f} % allocated, "
    else:
        percent = ""
    _tell(f"{title}: {percent}{found.placed} of {found.pods} pods placed, {found.seconds:.0f} s")
    return found


def _progress(title: str) -> Callable[[int, int], None]:
    def tell(done: int, total: int) -> None:
        if done % _STEP == 0 or done == total:
            _tell(f"{title}: {done} of {total} pods")

    return tell


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.packing_bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("pods", nargs="*", type=Path, metavar="PODS.csv", help="pods of a trace from a file")
    add("--nodes", type=Path, metavar="NODES.csv", help="nodes for the traces from files")
    add("--own", type=_own, default=[], help=f"traces of ours: {','.join(SCENARIOS)}", metavar="NAME,...")
    add("--own-nodes", type=_number, help=f"nodes of a trace of ours; default: {_NODES}", metavar="NUMBER")
    add("--departures", action="store_true", help="pods of our traces come and go")
    add("--bound", action="store_true", help="show the most pods of our traces that fit if all are known at once")
    add(
        "--load",
        type=_percent,
        default=LOAD,
        help=f"percent of the cluster that pods ask for in the end, or at any time; default: {LOAD * 100:.0f}",
        metavar="PERCENT",
    )
    add(
        "--strategy",
        choices=[each.value for each in Strategy],
        help="traces from files: among nodes with the policy's highest score, kube-scheduler takes the one with the "
        "most CPU and memory left (LeastAllocated), or with the least (MostAllocated); default: LeastAllocated",
    )
    add(
        "--cpu-of-pods-with-devices",
        action="store_true",
        help="traces from files: the policy fragmentation does not count the CPU of pods without devices",
    )
    add("--policies", type=_policies, default=list(POLICIES), help=f"default: {','.join(POLICIES)}", metavar="NAME,...")
    add("--seeds", type=_seeds, default=[42], help="default: 42", metavar="NUMBER,...")
    _add_results(parser)
    return parser


def _add_results(parser: argparse.ArgumentParser) -> None:
    """The options about what is shown."""
    add = parser.add_argument
    add("--published", type=Path, metavar="FILE.json", help="published results to show too")
    add(
        "--results",
        type=Path,
        action="append",
        default=[],
        metavar="FILE.json",
        help="earlier runs to show too",
    )
    add("--picture", type=Path, metavar="FILE.svg", help="draw what stays unallocated against what is asked for")
    add(
        "--devices-picture",
        type=Path,
        metavar="FILE.svg",
        help="traces of ours: draw the devices of each node as the last run has left them",
    )
    add("--output", choices=("table", "json"), default="table", help="default: table")


def _policies(text: str) -> list[str]:
    return _names(text, POLICIES, "policy")


def _own(text: str) -> list[str]:
    return _names(text, SCENARIOS, "trace")


def _names(text: str, known: Collection[str], what: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f'unknown {what} "{name}"{hint(name, known)}')
    return names


def _seeds(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f'"{text}" is no list of whole numbers such as 42,43') from None


def _number(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f'"{text}" is no whole number of 1 or more')
    return int(text)


def _percent(text: str) -> float:
    return _number(text) / 100


if __name__ == "__main__":
    sys.exit(main())
