"""How long one decision takes, in process, cold: the selectors are compiled, nothing else is remembered.

Each figure is the median of many decisions, beside a calibration of the same run: a fixed loop of plain Python, so that
figures of different machines can be set in relation.
"""

import statistics
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from allocator import (
    Claim,
    ClaimSpec,
    ConstraintKind,
    ConstraintSpec,
    Device,
    DeviceClass,
    DeviceId,
    DeviceRequest,
    Features,
    Inventory,
    Node,
    Placement,
    PoolId,
    Request,
    Selectors,
    Slice,
    Task,
    Unsatisfiable,
    Usage,
    allocate,
)
from allocator.policies import POLICIES, Policy

DRIVER = "gpu.example.com"
ROOT = "resource.kubernetes.io/pcieRoot"
CLASS = DeviceClass("gpu", selectors=(f'device.driver == "{DRIVER}"',))
MODEL = f'device.attributes["{DRIVER}"].model == "a100"'


def node_of(devices: int, roots: int) -> tuple[Node, Inventory]:
    """A node with a pool of GPUs spread over PCIe roots."""
    pool = PoolId(DRIVER, "node-1")
    gpus = tuple(
        Device(
            DeviceId(DRIVER, "node-1", f"gpu-{i}"),
            attributes={f"{DRIVER}/model": "a100", f"{DRIVER}/uuid": f"gpu-{i:08x}", ROOT: f"pci0000:0{i % roots}"},
        )
        for i in range(devices)
    )
    return Node("node-1"), Inventory.of([Slice("gpus", pool, placement=Placement(node_name="node-1"), devices=gpus)])


def claim_of(*counts: int, match: bool = False) -> Claim:
    """A claim of as many requests, each with a count."""
    requests = tuple(
        Request(f"request-{i}", (DeviceRequest("gpu", selectors=(MODEL,), count=n),)) for i, n in enumerate(counts)
    )
    constraints = (ConstraintSpec(ConstraintKind.MATCH, ROOT),) if match else ()
    return Claim("default", "claim", "uid", ClaimSpec(requests, constraints))


CASES = (
    ("1 device of 8", (8, 2), (1,), False, 60.0),
    ("4 devices of 8, matchAttribute", (8, 2), (4,), True, 150.0),
    ("3 x 3 of 16 on 2 roots, impossible", (16, 2), (3, 3, 3), True, None),
    ("1 device of 64", (64, 8), (1,), False, None),
)
"""What, devices and roots of the node, counts, matchAttribute, goal in microseconds."""


def median_micros(work: Callable[[], object], seconds: float = 0.5) -> float:
    """The median time of one call, in microseconds."""
    work()
    times: list[float] = []
    until = time.perf_counter() + seconds
    while (start := time.perf_counter()) < until:
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def calibration() -> int:
    """A fixed amount of plain Python."""
    total = 0
    for i in range(10_000):
        total += i % 7
    return total


def decision(case_policy: Policy, task: Task, selectors: Selectors) -> Callable[[], object]:
    """One decision, ready to be repeated."""
    return lambda: allocate(
        task, selectors=selectors, clock=time.monotonic, new_share_id=lambda: "share", policy=case_policy
    )


def main() -> None:
    """Print the table."""
    table = Table("decision", "policy", "median, us", "goal", "steps", "answer", title="One node, in process, cold")
    selectors = Selectors()
    for name, (devices, roots), counts, match, goal in CASES:
        node, inventory = node_of(devices, roots)
        pools = inventory.for_node(node, Features())
        task = Task(node, (claim_of(*counts, match=match),), {"gpu": CLASS}, pools, Usage())
        for policy in POLICIES.values():
            answer = allocate(task, selectors=selectors, clock=time.monotonic, new_share_id=str, policy=policy)
            micros = median_micros(decision(policy, task, selectors))
            outcome = "no" if isinstance(answer, Unsatisfiable) else "yes"
            met = "" if goal is None else f"{goal:.0f} {'met' if micros <= goal else 'MISSED'}"
            table.add_row(name, policy.name, f"{micros:.1f}", met, str(answer.steps), outcome)
    Console().print(table)
    Console().print(f"calibration: 10,000 rounds of a plain loop take {median_micros(calibration):.0f} us")


if __name__ == "__main__":
    main()
