"""How long it takes to decide a pod on every node, beside upstream's allocator on the same world.

Both decide in process, selectors compiled. Upstream's (``loadtest/peer``, built here with Go) uses all cores, as
kube-scheduler's plugin does; ours is a whole filter call: claims found, every node decided, reasons for those that
will not do. Devices become allocated from pod to pod. Figures are medians; goals are ratios of the time that passes.
Beside them stands the ratio of the time spent computing, which other work on the machine disturbs less.

``--nodes`` says how big the clusters are.
"""

import argparse
import gc
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from allocator.outcome import Allocation
from extender.cluster.api import CLAIMS, CLASSES, NODES, SLICES
from extender.cluster.objects import Pod, PodClaim
from extender.cluster.state import ClusterState
from extender.deciding.decider import Decider
from extender.serving import make_solver
from extender.settings import Settings
from extender.verbs.case import found_on
from extender.verbs.filter import FilterResult, filter_nodes
from loadtest.worlds import ROOT, SLICES_OF_GPUS, Machine, RawObject, Wish, pending_claim, world

PEER: Final = Path(__file__).parent / "peer"
PODS: Final = 7
PART, PARTED = Wish(selector=SLICES_OF_GPUS), Machine(partitioned=True)


class DisagreementError(Exception):
    """What was timed is not the same work, so there is nothing to compare."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is decided.

    Attributes:
        in_use: how much of all devices is in use before.
        sizes: numbers of nodes to do it on; none: those asked for.
        first, following: goals: how many times faster than upstream for the first pod of a shape, and for the next.
        scattered: by chance, else one node after the other.
        sample: upstream is asked for so many nodes only, and what it takes is scaled; 0: all.
    """

    name: str
    wish: Wish
    machine: Machine
    in_use: float = 0.4
    scattered: bool = True
    sizes: tuple[int, ...] = ()
    first: float = 0.0
    following: float = 0.0
    sample: int = 0


WORKS: Final = (
    Work("1 device, CEL", Wish(), Machine(), first=3, following=100),
    Work("4 devices, matchAttribute", Wish((4,), match=ROOT), Machine(), in_use=0.2, first=5, following=200),
    Work("3 x 3 of 16, impossible", Wish((3, 3, 3), match=ROOT), Machine(16), in_use=0, first=100, sample=4),
    Work(
        "1 of 64 parts, nodes filled in turn", PART, PARTED, scattered=False, sizes=(100, 1000), first=2, following=50
    ),
    Work("1 of 64 parts, use scattered", PART, PARTED, sizes=(100, 1000), first=2, following=50),
)
OTHER: Final = Wish(selector="true")
"""Another shape, asked for before: the cluster is not new to the service."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds that passed, and seconds that one or more cores computed."""

    passed: float
    computed: float


@dataclass(frozen=True, slots=True)
class Figures:
    """For all nodes, and on how many of those asked the first pod fits."""

    first: Spent
    following: Spent
    fit: int


class Ours:
    """The extender on a world."""

    def __init__(self, objects: dict[str, list[RawObject]], work: Work) -> None:
        self.names = [each["metadata"]["name"] for each in objects["nodes"]]
        claims = [
            pending_claim(wish, f"{kind}-{i}")
            for kind, wish in (("asked", work.wish), ("other", OTHER))
            for i in range(PODS)
        ]
        self.state = ClusterState()
        of_kind = {NODES: objects["nodes"], SLICES: objects["slices"], CLASSES: objects["classes"]}
        for resource, listed in (*of_kind.items(), (CLAIMS, [*objects["allocated"], *claims])):
            self.state.replace(resource, listed, 1)
        self.solver = make_solver(Settings())

    def figures(self) -> Figures:
        """What it takes."""
        gc.collect()
        gc.freeze()  # as the service does with what is there to stay
        first = [self._first(number) for number in range(PODS)]
        decider = Decider(self.solver, self.state.changes_since)
        fit = len(self._filter(decider, "asked-0")[1].passed)
        following = [self._next(decider, number) for number in range(1, PODS)]
        gc.unfreeze()
        return Figures(_median(first), _median(following), fit)

    def _first(self, number: int) -> Spent:
        """The cluster is known, the shape is not."""
        decider = Decider(self.solver, self.state.changes_since)
        self._filter(decider, f"other-{number}")
        return self._filter(decider, f"asked-{number}")[0]

    def _next(self, decider: Decider, number: int) -> Spent:
        """The pod before gets its devices, then the next one comes."""
        snapshot = self.state.snapshot
        before = self._filter(decider, f"asked-{number - 1}")[1].passed
        if before:
            node = snapshot.nodes[before[number * len(before) // PODS]]
            found = found_on(node, _pod(f"asked-{number - 1}"), snapshot, self.solver)
            if not isinstance(found, Allocation):
                raise DisagreementError(f"filter lets {node.name} pass, where there is nothing: {found.reason}")
            self.state.assume(f"uid-ResourceClaim-asked-{number - 1}", found.results[0], "uid-pod")
        return self._filter(decider, f"asked-{number}")[0]

    def _filter(self, decider: Decider, claim: str) -> tuple[Spent, FilterResult]:
        start, computed = time.perf_counter(), time.thread_time()
        snapshot = self.state.snapshot
        decider.follow(snapshot)
        result = filter_nodes(_pod(claim), self.names, snapshot, self.solver, decider=decider)
        return Spent(time.perf_counter() - start, time.thread_time() - computed), result


def _pod(claim: str) -> Pod:
    return Pod("default", f"pod-{claim}", f"uid-{claim}", claims=(PodClaim("gpu", claim_name=claim),))


def _median(spent: Sequence[Spent]) -> Spent:
    return Spent(statistics.median(s.passed for s in spent), statistics.median(s.computed for s in spent))


def upstream(peer: Path, file: Path, work: Work) -> Figures:
    """Upstream's allocator on a world; it has no memory, so that all pods are alike to it."""
    command = [str(peer), "-pods", str(PODS), "-nodes", str(work.sample), str(file)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # built here
    report = json.loads(done.stdout)
    nodes = len(json.loads(file.read_text())["nodes"])
    scale = nodes / report["asked"]
    spent = _median(
        [Spent(*(each * scale for each in pair)) for pair in zip(report["seconds"], report["cpu"], strict=True)]
    )
    return Figures(spent, spent, report["fit"])


def measured(peer: Path, sizes: Sequence[int]) -> Iterator[tuple[Work, int, Figures, Figures]]:
    """Work, nodes, upstream's figures and ours, one after the other on the same world.

    Raises:
        DisagreementError: they don't agree on how many nodes will do.
    """
    for work in WORKS:
        for nodes in work.sizes or sizes:
            objects = world(nodes, work.machine, work.wish, in_use=work.in_use, scattered=work.scattered)
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                json.dump(objects, file)
                file.flush()
                theirs = upstream(peer, Path(file.name), work)
            mine = Ours(objects, work).figures()
            if not work.sample and theirs.fit != mine.fit:
                raise DisagreementError(
                    f"{work.name}: {theirs.fit} of {nodes} nodes fit for upstream, {mine.fit} for us"
                )
            yield work, nodes, theirs, mine


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000, 5000], help="sizes of the clusters")
    sizes = parser.parse_args().nodes
    table = Table(
        "work",
        "nodes",
        "pod",
        "upstream, ms",
        "ours, ms",
        "faster",
        "less computing",
        "goal",
        title="Deciding a pod on every node",
    )
    with tempfile.TemporaryDirectory() as folder:
        peer = Path(folder) / "peer"
        subprocess.run(["go", "build", "-o", peer, "."], cwd=PEER, check=True)  # Go's own installation
        for work, nodes, theirs, mine in measured(peer, sizes):
            for pod, goal in (("first", work.first), ("next", work.following)):
                was, now = (theirs.first, mine.first) if pod == "first" else (theirs.following, mine.following)
                ratio = was.passed / now.passed
                met = "" if not goal else f"{goal:.0f}x {'met' if ratio >= goal else 'MISSED'}"
                table.add_row(
                    work.name,
                    f"{nodes:,}",
                    pod,
                    f"{was.passed * 1e3:.1f}",
                    f"{now.passed * 1e3:.2f}",
                    f"{ratio:.1f}x",
                    f"{was.computed / now.computed:.1f}x",
                    met,
                )
    Console().print(table)


if __name__ == "__main__":
    main()
