"""Traces of ours in the packing benchmark: what is drawn, what the cluster accepts, and what leaves."""

import json
from collections import Counter
from pathlib import Path

import pytest

from loadtest.packing.own.draw import LIVES, OwnPod, OwnTrace, draw
from loadtest.packing.own.mig import mig
from loadtest.packing.own.patterns import parts, patterns
from loadtest.packing.own.run import mean_in_use, run_own
from loadtest.packing.own.scenario import Ask, Class, Device, Machine, PodKind, Scenario
from loadtest.packing.own.scenarios import SCENARIOS
from loadtest.packing_bench import main

A_CLASS = Class("gpu", "gpu.example.com")
ONE = PodKind("one", 1, 1, (Ask("gpu", A_CLASS),))
ONE_GPU = Machine("one GPU", (Device("gpu-0", "gpu.example.com"),), 1)


def models(trace: OwnTrace) -> dict[str, str]:
    """The machine of each node."""
    return {name: machine.model for name, machine in trace.nodes.items()}


def passing(*times: tuple[float, float]) -> OwnTrace:
    """One node with one GPU, and pods that ask for it, each with its times."""
    scenario = Scenario("passing", (ONE_GPU,), (ONE,))
    return OwnTrace(scenario, {"node-0": ONE_GPU}, tuple(OwnPod(ONE, *time) for time in times))


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("departures", [False, True], ids=["stay", "leave"])
def test_trace_depends_on_the_seed_alone(name: str, departures: bool) -> None:
    one, again, other = (draw(SCENARIOS[name](), 4, seed, 1.0, departures=departures) for seed in (7, 7, 8))
    assert one.pods == again.pods != other.pods
    assert models(one) == models(again)


@pytest.mark.parametrize("name", SCENARIOS)
def test_pods_that_stay_end_with_the_first_that_reaches_the_load(name: str) -> None:
    trace = draw(SCENARIOS[name](), 4, 7, 0.9)
    sizes = [pod.kind.size for pod in trace.pods]
    assert sum(sizes[:-1]) < 0.9 * trace.units <= sum(sizes)


@pytest.mark.parametrize("name", SCENARIOS)
def test_pods_that_leave_ask_for_the_load_at_any_time(name: str) -> None:
    trace = draw(SCENARIOS[name](), 200, 7, 0.9, departures=True)
    asked = sum(pod.kind.size * (pod.leaves - pod.arrives) for pod in trace.pods if pod.leaves is not None)
    assert asked / (trace.units * LIVES) == pytest.approx(0.9, rel=0.1)


@pytest.mark.parametrize("name", SCENARIOS)
def test_cluster_accepts_the_objects_and_each_kind_of_pod_fits(name: str) -> None:
    scenario = SCENARIOS[name]()
    nodes = {machine.model.replace(" ", "-").lower(): machine for machine in scenario.machines}
    for kind in scenario.kinds:
        assert run_own(OwnTrace(scenario, nodes, (OwnPod(kind),)), "best-fit", 1).placed == 1, kind.name


@pytest.mark.parametrize("name", SCENARIOS)
def test_nodes_have_all_machines_in_equal_shares(name: str) -> None:
    scenario = SCENARIOS[name]()
    numbers = Counter(models(draw(scenario, 8, 7, 0.1)).values())
    assert numbers == {machine.model: 8 / len(scenario.machines) for machine in scenario.machines}


@pytest.mark.parametrize(
    ("machine", "gib", "multiprocessors", "instances"),
    [
        pytest.param(0, 4, 0, 7, id="A100: 1g.5gb"),
        pytest.param(0, 9, 0, 4, id="A100: 1g.10gb"),
        pytest.param(0, 9, 28, 3, id="A100: 2g.10gb"),
        pytest.param(0, 19, 0, 2, id="A100: 3g.20gb"),
        pytest.param(0, 19, 56, 1, id="A100: 4g.20gb"),
        pytest.param(0, 39, 0, 1, id="A100: 7g.40gb"),
        pytest.param(1, 9, 0, 7, id="H100: 1g.10gb"),
        pytest.param(1, 19, 0, 4, id="H100: 1g.20gb"),
        pytest.param(1, 19, 32, 3, id="H100: 2g.20gb"),
        pytest.param(1, 39, 0, 2, id="H100: 3g.40gb"),
        pytest.param(1, 39, 64, 1, id="H100: 4g.40gb"),
        pytest.param(1, 79, 0, 1, id="H100: 7g.80gb"),
    ],
)
def test_gpu_has_as_many_instances_of_a_profile_as_the_user_guide_says(
    machine: int, gib: int, multiprocessors: int, instances: int
) -> None:
    scenario = mig()
    least = {"memory": gib * 2**30, "multiprocessors": multiprocessors}
    kind = PodKind("wanted", 1, 1, (Ask("partition", scenario.classes[0], least=least),))
    (part,) = parts(scenario.machines[machine], [kind])
    assert patterns(part) == ((instances,),)


def test_pod_that_leaves_makes_room_and_rejected_pods_do_not_come_back() -> None:
    trace = passing((1.0, 3.0), (2.0, 4.0), (3.5, 9.0))
    assert run_own(trace, "best-fit", 1).placed == 2
    assert run_own(trace, "best-fit", 1).allocated == {}


def test_share_in_use_is_a_mean_over_the_time_after_the_cluster_has_filled() -> None:
    trace = passing((0.0, 2.0), (1.5, 4.0), (3.5, 9.0))
    assert mean_in_use(trace, [True, False, True]) == 100 * (1.0 + 1.5) / 4


def test_json_has_the_bound_and_what_is_allocated(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--own", "nvlink,nic", "--own-nodes", "2", "--seeds", "1,2", "--policies", "pack,best-fit"]
    assert main([*arguments, "--load", "100", "--bound", "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(run["trace"], run["seed"], run["policy"]) for run in found] == [
        (trace, seed, policy) for trace in ("nvlink", "nic") for seed in (1, 2) for policy in ("pack", "best-fit")
    ]
    assert all(run["placed"] <= run["bound"] <= run["pods"] for run in found)
    assert all(run["allocated"]["100"] <= 100 for run in found)


def test_table_of_pods_that_leave_has_what_is_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--own", "sriov", "--own-nodes", "1", "--policies", "spread", "--departures", "--load", "90"]) == 0
    out = capsys.readouterr()
    heading = out.out.splitlines()[1]
    assert "IN USE" in heading
    assert "BOUND" not in heading
    assert "% in use" in out.err


def test_picture_has_a_line_for_each_policy_and_is_the_same_from_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, again, measured = tmp_path / "first.svg", tmp_path / "again.svg", tmp_path / "runs.json"
    arguments = ["--own", "nvlink", "--own-nodes", "2", "--policies", "pack,spread", "--output", "json"]
    assert main([*arguments, "--picture", str(first)]) == 0
    measured.write_text(capsys.readouterr().out)
    assert main(["--results", str(measured), "--picture", str(again)]) == 0
    assert "spread" in capsys.readouterr().out
    assert first.read_bytes() == again.read_bytes()
    assert all(f">{policy}<" in first.read_text() for policy in ("pack", "spread"))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "nothing to measure"),
        (["--own", "migs"], 'unknown trace "migs"; did you mean mig?'),
        (["--own", "mig", "--own-nodes", "0"], '"0" is no whole number of 1 or more'),
        (["--own", "mig", "--load", "much"], '"much" is no whole number of 1 or more'),
        (["--own", "mig", "--bound", "--departures"], "leave out --departures"),
        (["--own", "mig", "--picture", "x.svg", "--departures"], "leave out --departures"),
        (["--bound", "--results", "x.json"], "--bound is for traces of ours"),
        (["--own", "mig", "--strategy", "MostAllocated"], "--strategy is for traces from files"),
        (["pods.csv"], "--nodes and files with pods belong together"),
        (["--nodes", "nodes.csv", "--own", "mig"], "--nodes and files with pods belong together"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{}", '[{"trace": "mig"}]', "["])
def test_file_without_runs_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "runs.json"
    file.write_text(text)
    assert main(["--results", str(file)]) == 2
    assert str(file) in capsys.readouterr().err


def test_picture_that_cannot_be_written_is_told_after_the_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "absent" / "picture.svg"
    assert main(["--own", "nvlink", "--own-nodes", "1", "--policies", "pack", "--picture", str(file)]) == 2
    out = capsys.readouterr()
    assert "nvlink" in out.out
    assert f"{file}: No such file or directory" in out.err
