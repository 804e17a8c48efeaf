"""`defragment` on the command line: what it prints of manifests and of a live cluster, and its exit codes."""

from pathlib import Path

import orjson
import pytest

from extender.faces.commands.main import app
from extender.faces.commands.output import FOUND_PROBLEMS, OK, USAGE
from tests.extender.answers.defragmentation.scenes import moves, owned, runs, waits
from tests.extender.faces.commands.scenes import BROKEN, RUNNER, written
from tests.kit.clusters import GPU, Object, local_slice, node, pod

PIECES: list[Object] = [
    *(GPU, node("a"), local_slice("a", 3), node("b"), local_slice("b", 1)),
    *moves("x", "a/gpu-0", on="a", priority=5),
    *runs("bare", "a/gpu-1", on="a"),
]
"""Two devices are free, on two nodes. One pod that can move holds a device, and one that cannot."""


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    return written(tmp_path / "cluster.yaml", *PIECES, *waits("p", 2), *waits("q", 9))


def test_a_line_for_each_shape_and_notes_about_pods_that_do_not_move(manifests: Path) -> None:
    result = RUNNER.invoke(app, ["defragment", str(manifests)])
    assert result.exit_code == OK
    lacking = "request gpu asks for 9 devices of class gpu, and 2 suitable devices are free on all nodes together"
    assert [line.split("   ") for line in _columns(result.stdout)] == [
        ["PODS", "ASK FOR", "ROOM ON", "PLACED", "MOVES OR REASON"],
        ["ns/p", "gpu: 2 gpu", "a", "1 of 1", "move ns/x from a to b"],
        ["ns/q", "gpu: 9 gpu", "-", "0 of 1", lacking],
    ]
    assert result.stderr == "note: not moved: pod ns/bare: no controller makes it again\n"


def _columns(text: str) -> list[str]:
    """Lines with the same space between all columns."""
    return ["   ".join(filter(None, (cell.strip() for cell in line.split("   ")))) for line in text.splitlines()]


def test_wide_has_a_line_for_each_pod_that_moves(manifests: Path) -> None:
    result = RUNNER.invoke(app, ["defragment", "-m", str(manifests), "-o", "wide", "--pod", "ns/p"])
    assert _columns(result.stdout)[1].split("   ")[4:] == ["ns/x", "ReplicaSet web", "5", "a", "b", "-"]


def test_json_has_everything(manifests: Path) -> None:
    result = RUNNER.invoke(app, ["defragment", str(manifests), "-o", "json", "--pod", "ns/p"])
    move = {"pod": "ns/x", "priority": 5, "controller": "ReplicaSet web", "from": "a", "to": "b"}
    commands = ["kubectl cordon a", "kubectl delete pod --namespace ns x", "kubectl uncordon a"]
    assert orjson.loads(result.stdout) == {
        "shapes": [
            {
                "pods": ["ns/p"],
                "asks": ["gpu: 2 gpu"],
                "proposal": {"node": "a", "moves": [move], "placed": ["ns/p"], "commands": commands},
                "reason": None,
            }
        ],
        "protected": [{"reason": "no controller makes it again", "names": ["pod ns/bare"]}],
        "fitting": [],
        "notModeled": [],
    }


def test_names_are_those_of_the_pods_that_the_first_proposal_moves(manifests: Path) -> None:
    assert RUNNER.invoke(app, ["defragment", str(manifests), "-o", "name"]).stdout == "ns/x\n"


def test_pending_pods_of_manifests_are_scheduled_first(tmp_path: Path) -> None:
    """The pods that a simulation has scheduled move like all others: manifests are a plan."""
    first = [owned(waits(name)) for name in ("v", "w")]
    last = waits("p", 2, created="2026-01-02T00:00:00Z")
    nodes = [GPU, *(each for name in "ab" for each in (node(name), local_slice(name, 2)))]
    path = written(tmp_path / "plan.yaml", *nodes, *first[0], *first[1], *last)
    found = RUNNER.invoke(app, ["defragment", str(path), "--policy", "spread"])
    assert _columns(found.stdout)[1] == "ns/p   gpu: 2 gpu   a   1 of 1   move ns/v from a to b"


EMPTY: dict[str, tuple[list[Object], str]] = {
    "no pending pods": (PIECES, "no pod with devices is pending"),
    "a pod that fits": ([*PIECES, pod("plain")], "no pod with devices is pending"),
}


@pytest.mark.parametrize(("objects", "said"), EMPTY.values(), ids=EMPTY)
def test_an_empty_result_says_why(objects: list[Object], said: str, tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["defragment", str(written(tmp_path / "cluster.yaml", *objects))])
    assert (result.exit_code, result.stdout, result.stderr) == (OK, "", f"note: {said}\n")


MISTAKES: dict[str, tuple[list[str], int, str]] = {
    "a pod on a node": (["--pod", "ns/x"], USAGE, "pod ns/x is not pending: its node is a"),
    "no name of a pod": (["--pod", "a/b/c"], USAGE, "a/b/c: expected POD or NAMESPACE/POD"),
    "a live cluster, too": (
        ["--context", "x"],
        USAGE,
        "manifests name a cluster in memory, --kubeconfig and --context name a live one: give only one of them",
    ),
    "too little time": (
        ["--seconds", "1e-9"],
        USAGE,
        "1e-09 seconds were not enough to look at the pending pods: raise --seconds",
    ),
}


@pytest.mark.parametrize(("arguments", "code", "said"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_told(arguments: list[str], code: int, said: str, manifests: Path) -> None:
    result = RUNNER.invoke(app, ["defragment", str(manifests), *arguments])
    assert (result.exit_code, result.stderr) == (code, f"error: {said}\n")


def test_an_unknown_pod_is_told_with_the_nearest_name(manifests: Path) -> None:
    result = RUNNER.invoke(app, ["defragment", str(manifests), "--pod", "ns/pp"])
    assert (result.exit_code, result.stderr.splitlines()) == (
        USAGE,
        [
            "note: pods that need no devices are not looked at",
            "error: pod ns/pp does not exist; did you mean ns/p?",
        ],
    )


def test_a_pod_without_a_proposal_ends_in_1(manifests: Path) -> None:
    result = RUNNER.invoke(app, ["defragment", str(manifests), "--pod", "ns/q"])
    assert result.exit_code == FOUND_PROBLEMS


def test_objects_with_errors_are_left_out(manifests: Path, tmp_path: Path) -> None:
    bad = written(tmp_path / "bad.yaml", BROKEN)
    result = RUNNER.invoke(app, ["defragment", "-o", "name", str(manifests), str(bad)])
    assert (result.exit_code, result.stdout) == (FOUND_PROBLEMS, "ns/x\n")
    assert result.stderr.startswith(f"error: {bad}: ResourceSlice slice-b: ")
