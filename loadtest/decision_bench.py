"""How long it takes to decide a pod on every node, beside upstream's allocator on the same world.

Both decide in process, selectors compiled. Upstream's (``loadtest/peer``, built here with Go) uses all cores, as
kube-scheduler's plugin does; ours is a whole filter call as the service makes it, in one thread: claims found, every
node decided, the best of them named, reasons for those that will not do. Devices become allocated from pod to pod.

Figures are medians. Goals are ratios of the time that passes, on a machine that has nothing else to do. Where it has,
the ratio of the time spent computing tells more, of all cores on both sides; it is held against the same goals.

``--nodes`` says how big the clusters are, ``--works`` which works are done, by parts of their names. ``--policy`` is
our policy.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from allocator import Allocation
from allocator.policies import POLICIES
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod, PodClaim
from extender.config.settings import SchedulingSettings, Settings
from extender.faces.assembly import make_solver
from extender.framework.decisions.evaluate import Decider
from extender.framework.filter import Bounds, FilterResult, filter_nodes
from extender.framework.held_devices import found_on
from extender.kube.resources import CLAIMS, CLASSES, DEVICE_QUOTAS, NODES, SLICES
from tests.kit.objects.manifests import DEVICE_CLASS
from tests.kit.objects.parts import api_object
from tests.kit.objects.worlds import NAMESPACE, ROOT, SLICES_OF_GPUS, Machine, RawObject, Wish, pending_claim, world

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
        first, following: goals: how many times faster than upstream for the first pod of a shape, and for the next; 0:
            none.
        scattered: by chance, else one node after the other.
        sample: the number of nodes that upstream is asked for; its time is scaled. 0: all.
        limit: what a DeviceQuota limits; there are `QUOTAS` of them, one in the namespace of the pods. None: there is
            no quota. Upstream knows none.
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
    limit: RawObject | None = None


QUOTAS: Final = 100
WORKS: Final = (
    Work("1 device, CEL", Wish(), Machine(), first=3, following=100),
    Work(f"1 device, CEL, {QUOTAS} DeviceQuotas of devices", Wish(), Machine(), limit={"devices": 100_000}),
    Work(f"1 device, CEL, {QUOTAS} DeviceQuotas of memory", Wish(), Machine(), limit={"capacity": {"memory": "9Pi"}}),
    Work("4 devices, matchAttribute", Wish((4,), match=ROOT), Machine(), in_use=0.2, first=5, following=200),
    Work("3 x 3 of 16, impossible", Wish((3, 3, 3), match=ROOT), Machine(16), in_use=0, first=100, sample=4),
    Work(
        "1 of 64 parts, nodes filled in turn", PART, PARTED, scattered=False, sizes=(100, 1000), first=2, following=50
    ),
    Work("1 of 64 parts, use scattered", PART, PARTED, sizes=(100, 1000), first=2, following=50),
)
_WIDTH: Final = 124
"""Of the table, in characters."""

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

    def __init__(self, objects: dict[str, list[RawObject]], work: Work, settings: Settings) -> None:
        self.names = [each["metadata"]["name"] for each in objects["nodes"]]
        claims = [
            pending_claim(wish, f"{kind}-{i}")
            for kind, wish in (("asked", work.wish), ("other", OTHER))
            for i in range(PODS)
        ]
        self.state = ClusterState(counts_cpu=settings.scheduling.counts_cpu)
        of_kind = {NODES: list(_with_cpu(objects["nodes"])), SLICES: objects["slices"], CLASSES: objects["classes"]}
        of_kind[DEVICE_QUOTAS] = list(_quotas(work.limit))
        for resource, listed in (*of_kind.items(), (CLAIMS, [*objects["allocated"], *claims])):
            self.state.replace(resource, listed, 1)
        self.solver = make_solver(settings)
        self.bounds = Bounds(most=settings.scheduling.most_nodes(len(self.names)))

    def figures(self) -> Figures:
        """What it takes."""
        gc.collect()
        gc.freeze()  # as the service does with what is there to stay
        first = [self._first(number) for number in range(PODS)]
        decider = Decider(self.solver, self.state)
        result = self._filter(decider, "asked-0")[1]
        fit = len(self.names) - len(result.failed) - len(result.unresolvable)
        following = [self._next(decider, number) for number in range(1, PODS)]
        gc.unfreeze()
        return Figures(_median(first), _median(following), fit)

    def _first(self, number: int) -> Spent:
        """The cluster is known, the shape is not."""
        decider = Decider(self.solver, self.state)
        self._filter(decider, f"other-{number}")
        return self._filter(decider, f"asked-{number}")[0]

    def _next(self, decider: Decider, number: int) -> Spent:
        """The pod before gets its devices, then the next one comes."""
        snapshot = self.state.snapshot
        before = self._filter(decider, f"asked-{number - 1}")[1].passed
        if before:
            node = snapshot.nodes[before[number * len(before) // PODS]]
            found = found_on(node, pod_with(f"asked-{number - 1}"), snapshot, self.solver)
            if not isinstance(found, Allocation):
                raise DisagreementError(
                    f"filter lets {node.name} pass, where there is nothing: {found.reason.in_words()}"
                )
            self.state.assume(f"uid-ResourceClaim-asked-{number - 1}", found.results[0], "uid-pod")
        return self._filter(decider, f"asked-{number}")[0]

    def _filter(self, decider: Decider, claim: str) -> tuple[Spent, FilterResult]:
        start, computed = time.perf_counter(), time.thread_time()
        snapshot = self.state.snapshot
        decider.follow(snapshot)
        result = filter_nodes(pod_with(claim), self.names, snapshot, self.solver, decider=decider, bounds=self.bounds)
        return Spent(time.perf_counter() - start, time.thread_time() - computed), result


def _quotas(limit: RawObject | None) -> Iterator[RawObject]:
    """Quotas with a limit, each in a namespace of its own."""
    for number in range(QUOTAS if limit else 0):
        namespace = f"team-{number}" if number else NAMESPACE
        spec = {"limits": [{"name": "gpu", "deviceClassName": DEVICE_CLASS, **(limit or {})}]}
        yield api_object("DeviceQuota", "gold", namespace=namespace, spec=spec)


def _with_cpu(nodes: Iterable[RawObject]) -> Iterator[RawObject]:
    """Nodes with different amounts of CPU, which only the policy fragmentation reads."""
    for number, node in enumerate(nodes):
        yield {**node, "status": {"allocatable": {"cpu": f"{number % 100}"}}}


def pod_with(claim: str) -> Pod:
    """A pod with this claim."""
    return Pod("default", f"pod-{claim}", f"uid-{claim}", claims=(PodClaim("gpu", claim_name=claim),), cpu=1000)


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


def measured(
    peer: Path, works: Sequence[Work], sizes: Sequence[int], settings: Settings
) -> Iterator[tuple[Work, int, Figures, Figures]]:
    """Work, nodes, upstream's figures and ours, one after the other on the same world.

    Raises:
        DisagreementError: they don't agree on how many nodes will do.
    """
    for work in works:
        for nodes in work.sizes or sizes:
            objects = world(nodes, work.machine, work.wish, in_use=work.in_use, scattered=work.scattered)
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                json.dump(objects, file)
                file.flush()
                theirs = upstream(peer, Path(file.name), work)
            mine = Ours(objects, work, settings).figures()
            if not work.sample and theirs.fit != mine.fit:
                raise DisagreementError(
                    f"{work.name}: {theirs.fit} of {nodes} nodes fit for upstream, {mine.fit} for us"
                )
            yield work, nodes, theirs, mine


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000, 5000], help="sizes of the clusters")
    parser.add_argument("--works", nargs="+", default=[""], metavar="TEXT", help="parts of the names of works")
    parser.add_argument("--policy", choices=POLICIES, default="best-fit", help="our policy; default: best-fit")
    asked = parser.parse_args()
    settings = Settings(scheduling=SchedulingSettings(policy=asked.policy))
    works = [work for work in WORKS if any(text in work.name for text in asked.works)]
    if not works:
        parser.error(f"no work has one of these in its name; there are: {'; '.join(work.name for work in WORKS)}")
    columns = ("work", "nodes", "pod", "upstream, ms", "ours, ms", "goal", "faster", "less computing")
    table = Table(*columns, title="Deciding a pod on every node")
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        peer = Path(folder) / "peer"
        subprocess.run(["go", "build", "-o", peer, "."], cwd=PEER, check=True)  # Go's own installation
        for work, nodes, theirs, mine in measured(peer, works, asked.nodes, settings):
            table.add_row(*_row(work, nodes, "first", work.first, theirs.first, mine.first))
            if work.following:
                table.add_row(*_row(work, nodes, "next", work.following, theirs.following, mine.following))
    console = Console(width=max(_WIDTH, Console().width))
    console.print(table)
    console.print(f"load {before:.1f} before, {os.getloadavg()[0]:.1f} after, {os.cpu_count()} cores")


def _row(work: Work, nodes: int, pod: str, goal: float, theirs: Spent, mine: Spent) -> Iterator[str]:
    yield from (
        work.name,
        f"{nodes:,}",
        pod,
        f"{theirs.passed * 1e3:,.1f}",
        f"{mine.passed * 1e3:,.2f}",
        f"{goal:.0f}x",
    )
    for ratio in (theirs.passed / mine.passed, theirs.computed / mine.computed):
        yield f"{ratio:,.1f}x {'met' if ratio >= goal else 'MISSED'}"


if __name__ == "__main__":
    main()
