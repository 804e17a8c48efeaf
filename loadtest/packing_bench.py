"""How much of a cluster's GPUs each policy can allocate, as pods of a trace arrive until 130 % is asked for.

The pods of a trace arrive in random order, which the seed decides, and more are drawn from the trace until they ask for
130 % of all GPUs. Each pod gets a node when it arrives, or never; nothing leaves. Filter, prioritize and bind are the
service's; CPU and memory count as in kube-scheduler. Traces have the columns of alibaba/clusterdata,
cluster-trace-gpu-v2023. Progress goes to stderr, results to stdout. Exit code 2: bad input.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from allocator import POLICIES, hint
from extender.observe.tables.terminal import print_table
from loadtest.packing.published import PublishedError, read_published
from loadtest.packing.run import Run, run
from loadtest.packing.table import results_table
from loadtest.packing.trace import Trace, TraceError, TraceNode, read_nodes, read_trace

_USAGE: Final = 2
_STEP: Final = 500
"""Pods between two lines of progress."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code."""
    wanted = _parser().parse_args(arguments)
    try:
        nodes = read_nodes(wanted.nodes)
        traces = [read_trace(path) for path in wanted.pods]
        published = read_published(wanted.published) if wanted.published else {}
    except (TraceError, PublishedError) as error:
        print(error, file=sys.stderr)
        return _USAGE
    runs = list(_runs(nodes, traces, wanted.policies, wanted.seeds))
    if wanted.output == "json":
        print(json.dumps([each.as_json() for each in runs], indent=2))
    else:
        print_table(results_table(runs, published), Console())
    return 0


def _runs(
    nodes: Sequence[TraceNode], traces: Sequence[Trace], policies: Sequence[str], seeds: Sequence[int]
) -> Iterator[Run]:
    for trace in traces:
        for policy in policies:
            for seed in seeds:
                title = f"{trace.name}, {policy}, seed {seed}"
                found = run(nodes, trace, policy, seed, _progress(title))
                percent = f"{found.allocated[max(found.allocated)]:.1f} % allocated"
                _tell(f"{title}: {percent}, {found.placed} of {found.pods} pods placed, {found.seconds:.0f} s")
                yield found


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
    parser.add_argument("pods", nargs="+", type=Path, metavar="PODS.csv", help="pods of a trace")
    parser.add_argument("--nodes", required=True, type=Path, metavar="NODES.csv", help="nodes of the cluster")
    parser.add_argument(
        "--policies", type=_policies, default=list(POLICIES), help=f"default: {','.join(POLICIES)}", metavar="NAME,..."
    )
    parser.add_argument("--seeds", type=_seeds, default=[42], help="default: 42", metavar="NUMBER,...")
    parser.add_argument("--published", type=Path, metavar="FILE.json", help="published results to show in the table")
    parser.add_argument("--output", choices=("table", "json"), default="table", help="default: table")
    return parser


def _policies(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in POLICIES:
            raise argparse.ArgumentTypeError(f'unknown policy "{name}"{hint(name, POLICIES)}')
    return names


def _seeds(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f'"{text}" is no list of whole numbers such as 42,43') from None


if __name__ == "__main__":
    sys.exit(main())
