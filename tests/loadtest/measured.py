"""Results to show and judge, as a load test would have written them."""

from datetime import UTC, datetime
from itertools import count

from loadtest.endtoend.results import Machine, Mood, Results, Run
from loadtest.endtoend.workload import SubjectName, Wish, Workload

NOW = datetime(2026, 11, 21, 20, 0, tzinfo=UTC)
MOOD = Mood(at=NOW, load=0.5, calibration=0.05)
MACHINE = Machine(
    cores=2,
    processor="Abacus 9000",
    memory_gib=23.5,
    system="Linux 6",
    python="3.11.7",
    go="go1.26",
    kubernetes="v1.36.3",
)
SELECTORS = {"any": "true"}
CLAIMS = Workload(about="one claim", selectors=SELECTORS, wishes=(Wish(selector="any"),))
WORKLOADS = {
    "claims": CLAIMS,
    "none": Workload(about="no claims"),
    "crowded": CLAIMS.model_copy(update={"about": "many beside", "undisturbed": "claims"}),
}


def run(
    workload: str,
    subject: SubjectName,
    rate: float,
    *,
    nodes: int = 500,
    pods: int = 5,
    repetition: int = 1,
    findings: tuple[str, ...] = (),
) -> Run:
    """One in which pods got nodes at an even pace, two seconds after the start."""
    return Run(
        workload=workload,
        nodes=nodes,
        pods=pods,
        subject=subject,
        repetition=repetition,
        before=MOOD,
        bound_at=tuple(2 + number / rate for number in range(pods)),
        processor={"kube-apiserver": 0.03 * pods, "extender": 0.01 * pods},
        findings=findings,
    )


def runs(workload: str, *, nodes: int = 500, pods: int = 5, **rates: list[float]) -> list[Run]:
    """By subject (``in_tree``, ``ours``, ``idle``), a run for each rate."""
    names: dict[str, SubjectName] = {"in_tree": "in-tree", "ours": "dra-extender", "idle": "idle"}
    return [
        run(workload, names[subject], rate, nodes=nodes, pods=pods, repetition=repetition)
        for subject, each in rates.items()
        for repetition, rate in zip(count(1), each, strict=False)
    ]


def results(*measured: Run) -> Results:
    """All that a load test has written."""
    return Results(began=NOW, commit="abc123", machine=MACHINE, workloads=WORKLOADS, runs=measured)
