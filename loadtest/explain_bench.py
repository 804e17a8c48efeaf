"""How long an explanation takes in a big cluster, and how long filter calls take meanwhile.

5,000 nodes with 8 devices each. Medians, beside a calibration of the same run: a fixed loop of plain Python, so that
figures of different machines can be set in relation.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from extender.answers.explain.explainer import Explainer
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod, parse_pod
from extender.cluster.snapshot import Snapshot
from extender.config.settings import Settings
from extender.config.sources import load
from extender.faces.assembly import make_extender, make_solver
from extender.faces.serving.memory import undisturbed
from extender.framework.service import Service
from extender.framework.wire import FilterArgs
from extender.kube.resources import RESOURCES
from extender.lab.api import MemoryApi
from loadtest.allocate_bench import calibration, median_micros
from tests.kit.objects import synthetic
from tests.kit.objects.parts import api_object, claim_spec, exactly

NODES = 5000
GOAL_SECONDS = 2.0
RUNS = 5
FILTERS = 100
BETWEEN_SECONDS = 0.02
DRIVER = "gpu.example.com"
NAME = f'device.attributes["{DRIVER}"].productName'

CASES: tuple[tuple[str, float, list[dict[str, Any]], str], ...] = (
    ("all in use, 1 device", 1.0, [{"count": 1}], ""),
    ("all in use, 4 devices on one PCIe root", 1.0, [{"count": 4}], f"{DRIVER}/pcieRoot"),
    ("half in use, all nodes full or free, 9 devices", 0.5, [{"count": 9}], ""),
    ("no such model", 0.5, [{"count": 1, "selector": f'{NAME} == "Example H100"'}], ""),
    ("3 x 3 on one PCIe root, impossible", 0.5, [{"count": 3}, {"count": 3}, {"count": 3}], f"{DRIVER}/pcieRoot"),
    ("fits", 0.5, [{"count": 1}], ""),
)
"""What, share of devices in use, requests, matchAttribute."""


def cluster(used: float) -> Snapshot:
    """A big cluster; this share of its devices is in use, from the first node on."""
    state = ClusterState()
    held = range(int(NODES * synthetic.DEVICES_PER_NODE * used))
    kinds: dict[str, Iterable[dict[str, Any]]] = {
        "Node": (synthetic.node(i, i + 1) for i in range(NODES)),
        "ResourceSlice": (synthetic.resource_slice(i, i + 1) for i in range(NODES)),
        "DeviceClass": (synthetic.device_class(i, i + 1) for i in range(3)),
        "ResourceClaimTemplate": (synthetic.claim_template(0, 1),),
        "ResourceClaim": (synthetic.claim(i, i + 1) for i in held),
        "Pod": (synthetic.pod(i, i + 1, claims=True) for i in held),
    }
    for kind, resource in RESOURCES.items():
        state.replace(resource, kinds.get(kind, ()), NODES)
    return state.snapshot


def asking(snapshot: Snapshot, requests: Sequence[dict[str, Any]], match: str) -> tuple[Snapshot, Pod]:
    """The cluster with a claim, and a pod that uses it."""
    wanted = [
        exactly(f"request-{number}", DRIVER, each["count"], *([each["selector"]] if "selector" in each else []))
        for number, each in enumerate(requests)
    ]
    spec = claim_spec(wanted, **({"constraints": [{"matchAttribute": match}]} if match else {}))
    state = ClusterState()
    metadata = {"namespace": "default", "name": "wanted", "uid": "wanted", "resourceVersion": "1"}
    claim = api_object("ResourceClaim", "wanted", metadata=metadata, spec=spec)
    state.replace(RESOURCES["ResourceClaim"], [claim], 1)
    pod = {
        "metadata": {**metadata, "name": "pod", "uid": "pod"},
        "spec": {"resourceClaims": [{"name": "c", "resourceClaimName": "wanted"}]},
    }
    return snapshot.with_claim(next(iter(state.snapshot.claims.values()))), parse_pod(pod)


class Run(NamedTuple):
    """One explanation: seconds that passed, seconds of the CPU, and how many proposals were found."""

    wall: float
    cpu: float
    proposals: int


def measured(explainer: Explainer, pod: Pod) -> Run:
    """Explain a pod, text included."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = explainer.explain(pod)
    str(found)
    return Run(time.perf_counter() - wall, time.process_time() - cpu, len(found.proposals))


async def filters(
    service: Service, pod: Pod, names: Sequence[str], work: Callable[[], Awaitable[object]] | None
) -> list[float]:
    """Seconds that each of some filter calls takes, as a scheduler makes them: with a little time between two.

    Args:
        service: answers the calls.
        pod: they are about pods like this one.
        names: of the nodes.
        work: done again and again meanwhile; None: nothing.
    """
    stopped = False

    async def do(work: Callable[[], Awaitable[object]]) -> None:
        while not stopped:
            await work()

    task = None if work is None else asyncio.create_task(do(work))
    times = []
    for number in range(FILTERS):
        asked = replace(pod, name=f"asked-{number}", uid=f"asked-{number}")
        start = time.perf_counter()
        await service.filter(FilterArgs(asked, names))
        times.append(time.perf_counter() - start)
        await asyncio.sleep(BETWEEN_SECONDS)
    stopped = True
    if task is not None:
        await task
    return sorted(times)


def meanwhile(snapshot: Snapshot, pod: Pod) -> Table:
    """Filter calls alone, and while explanations are made one after the other."""
    api = MemoryApi(now=lambda: datetime.now(UTC), new_uid=lambda: "uid")
    settings = load("scheduling: {deadlineSeconds: 60}")
    extender = make_extender(api, Still(snapshot), make_solver(settings), settings)
    names = list(snapshot.nodes)
    table = Table("filter calls", "median, ms", "95 of 100 within, ms", title=f"{FILTERS} filter calls")
    for title, explaining in (("alone, cold", False), ("alone", False), ("while explaining", True)):
        work = (lambda: extender.explanations.explain(pod)) if explaining else None
        times = asyncio.run(filters(extender.service, pod, names, work))
        table.add_row(title, f"{times[len(times) // 2] * 1e3:.1f}", f"{times[len(times) * 95 // 100] * 1e3:.1f}")
    return table


class Still(ClusterState):
    """A cluster in which nothing happens."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self._snapshot = snapshot
        for resource in RESOURCES.values():
            self.trust(resource)


def main() -> None:
    """Print the tables."""
    title = f"explain, {NODES} nodes, {NODES * synthetic.DEVICES_PER_NODE} devices"
    table = Table("pod", "median, s", "of these on the CPU", f"goal {GOAL_SECONDS:g} s", "proposals", title=title)
    solver = make_solver(Settings())
    with undisturbed():  # a service does not have the objects of its cluster examined again and again, either
        clusters = {used: cluster(used) for used in {case[1] for case in CASES}}
    for name, used, requests, match in CASES:
        snapshot, pod = asking(clusters[used], requests, match)
        explainer = Explainer.alone(snapshot, solver)
        runs = sorted((measured(explainer, pod) for _ in range(RUNS)), key=lambda run: run.wall)
        wall, cpu, proposals = runs[RUNS // 2]
        verdict = "met" if wall <= GOAL_SECONDS else "MISSED"
        table.add_row(name, f"{wall:.2f}", f"{cpu:.2f}", verdict, str(proposals))
    Console().print(table)
    Console().print(meanwhile(*asking(clusters[1.0], CASES[0][2], CASES[0][3])))
    Console().print(f"calibration: 10,000 rounds of a plain loop take {median_micros(calibration):.0f} us")


if __name__ == "__main__":
    main()
