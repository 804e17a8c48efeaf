"""How long an explanation takes in a big cluster.

5,000 nodes with 8 devices each. Medians, beside a calibration of the same run: a fixed loop of plain Python, so that
figures of different machines can be set in relation.
"""

import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from extender.cluster.api import RESOURCES
from extender.cluster.objects import Pod, parse_pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.state import ClusterState
from extender.explain.explaining import Explainer
from extender.explain.text import as_text
from extender.serving import make_solver
from extender.settings import Settings
from loadtest import synthetic
from loadtest.allocate_bench import calibration, median_micros

NODES = 5000
GOAL_SECONDS = 2.0
RUNS = 5
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
    """A big cluster of which so many devices are in use, from the first node on."""
    state = ClusterState()
    held = range(int(NODES * synthetic.DEVICES_PER_NODE * used))
    kinds: dict[str, Iterable[dict[str, Any]]] = {
        "Node": (synthetic.node(i, i + 1) for i in range(NODES)),
        "ResourceSlice": (synthetic.resource_slice(i, i + 1) for i in range(NODES)),
        "DeviceClass": (synthetic.device_class(i, i + 1) for i in range(3)),
        "ResourceClaim": (synthetic.claim(i, i + 1) for i in held),
        "Pod": (synthetic.pod(i, i + 1, claims=True) for i in held),
    }
    for kind, resource in RESOURCES.items():
        state.replace(resource, kinds.get(kind, ()), NODES)
    return state.snapshot


def asking(snapshot: Snapshot, requests: Sequence[dict[str, Any]], match: str) -> tuple[Snapshot, Pod]:
    """The cluster with a claim, and a pod that uses it."""
    wanted = []
    for number, each in enumerate(requests):
        selectors = [{"cel": {"expression": each["selector"]}}] if "selector" in each else []
        exactly = {"deviceClassName": DRIVER, "count": each["count"], "selectors": selectors}
        wanted.append({"name": f"request-{number}", "exactly": exactly})
    devices: dict[str, Any] = {"requests": wanted}
    if match:
        devices["constraints"] = [{"matchAttribute": match}]
    state = ClusterState()
    metadata = {"namespace": "default", "name": "wanted", "uid": "wanted", "resourceVersion": "1"}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": devices},
    }
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
    as_text(found)
    return Run(time.perf_counter() - wall, time.process_time() - cpu, len(found.proposals))


def main() -> None:
    """Print the table."""
    title = f"explain, {NODES} nodes, {NODES * synthetic.DEVICES_PER_NODE} devices"
    table = Table("pod", "median, s", "of these on the CPU", f"goal {GOAL_SECONDS:g} s", "proposals", title=title)
    solver = make_solver(Settings())
    clusters = {used: cluster(used) for used in {case[1] for case in CASES}}
    for name, used, requests, match in CASES:
        snapshot, pod = asking(clusters[used], requests, match)
        explainer = Explainer(snapshot, solver)
        runs = sorted((measured(explainer, pod) for _ in range(RUNS)), key=lambda run: run.wall)
        wall, cpu, proposals = runs[RUNS // 2]
        verdict = "met" if wall <= GOAL_SECONDS else "MISSED"
        table.add_row(name, f"{wall:.2f}", f"{cpu:.2f}", verdict, str(proposals))
    Console().print(table)
    Console().print(f"calibration: 10,000 rounds of a plain loop take {median_micros(calibration):.0f} us")


if __name__ == "__main__":
    main()
