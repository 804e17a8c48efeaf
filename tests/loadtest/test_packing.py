"""The packing benchmark over small traces that the tests write."""

import json
from pathlib import Path

import pytest

from extender.cluster.objects.pods import parse_pod
from extender.config.settings import SchedulingSettings
from loadtest.packing.arrivals import arrivals
from loadtest.packing.cluster import pod_objects
from loadtest.packing.room import Room, Strategy
from loadtest.packing.run import allocated, run
from loadtest.packing.trace import WHOLE, Shape, Trace, TraceNode, read_nodes, read_trace
from loadtest.packing_bench import main

NODES = "sn,cpu_milli,memory_mib,gpu,model\na,8000,1024,2,T4\nb,8000,1024,1,G2\nc,64000,2048,0,\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np,1000,16,1,500,\nq,1000,16,1,1000,T4|P100\nr,500,16,0,0,\n"
)
A_NODE = TraceNode("a", 8000, 1024, 2, "T4")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Nodes and pods of a small trace."""
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods_small.csv"
    nodes.write_text(NODES)
    pods.write_text(PODS)
    return nodes, pods


def half() -> Shape:
    """Half a GPU."""
    return Shape(1000, 16, 1, 500)


def test_trace_is_read_with_its_name_and_shapes(files: tuple[Path, Path]) -> None:
    nodes, trace = read_nodes(files[0]), read_trace(files[1])
    assert nodes[:1] == (A_NODE,)
    assert trace == Trace("small", (half(), Shape(1000, 16, 1, WHOLE, ("T4", "P100")), Shape(500, 16)))


@pytest.mark.parametrize("seed", range(5))
def test_every_pod_of_the_trace_arrives_before_any_pod_arrives_again(seed: int) -> None:
    shapes = tuple(Shape(cpu, 16, 1, 100) for cpu in range(5))
    arrived = arrivals(Trace("t", shapes), WHOLE, seed)
    assert set(arrived[:5]) == set(shapes)
    assert sum(shape.asked for shape in arrived) == 1.3 * WHOLE


def test_order_of_arrival_depends_only_on_the_seed() -> None:
    trace = Trace("t", tuple(Shape(cpu, 16, 1, 100) for cpu in range(50)))
    assert arrivals(trace, 6 * WHOLE, 42) == arrivals(trace, 6 * WHOLE, 42) != arrivals(trace, 6 * WHOLE, 43)


def test_load_has_what_is_allocated_when_it_is_first_reached() -> None:
    found = allocated([10, 11, 10], [True, False, True], 100)
    assert found == {5: 10, 10: 10, 15: 10, 20: 10, 25: 20, 30: 20}


@pytest.mark.parametrize(
    ("shape", "placed"),
    [
        pytest.param(half(), 4, id="two pods share a GPU"),
        pytest.param(Shape(1000, 16, 1, 600), 2, id="the rest of a GPU is too little"),
        pytest.param(Shape(1000, 16, 2, WHOLE), 1, id="whole GPUs"),
        pytest.param(Shape(4000, 16, 1, 100), 2, id="CPU is used up first"),
        pytest.param(Shape(0, 512, 1, 100), 2, id="memory is used up first"),
        pytest.param(Shape(0, 0, 1, WHOLE, ("P100",)), 0, id="no such model"),
    ],
)
def test_pods_get_nodes_while_gpus_cpu_and_memory_last(shape: Shape, placed: int) -> None:
    found = run([A_NODE], Trace("t", (shape,)), SchedulingSettings(policy="best-fit"), seed=1)
    assert found.placed == placed
    assert found.allocated[130] == 100 * placed * shape.asked / (2 * WHOLE)


@pytest.mark.parametrize(("strategy", "node"), [(Strategy.LEAST, "b"), (Strategy.MOST, "a")])
def test_strategy_of_kube_scheduler_decides_between_equal_nodes(strategy: Strategy, node: str) -> None:
    shapes = (half(), half())
    room = Room([A_NODE, TraceNode("b", 8000, 1024, 2, "T4")], shapes, strategy)
    first, second = (parse_pod(each) for each in pod_objects(shapes) if each["kind"] == "Pod")
    room.place(first, "a")
    assert room.choose(second, ["a", "b"]) == node


def test_table_has_each_policy_and_the_published_results(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    published = files[0].with_name("published.json")
    published.write_text('{"small": {"FGD": {"90": 88.8, "130": 99.9}}}')
    arguments = ["--nodes", str(files[0]), "--published", str(published), "--policies", "first-fit,best-fit"]
    assert main([*arguments, "--seeds", "1,2", "--strategy", "MostAllocated", str(files[1])]) == 0
    out = capsys.readouterr()
    rows = [line.split("   ") for line in out.out.splitlines()[2:]]
    assert [[cell.strip() for cell in row if cell.strip()][:3] for row in rows] == [
        ["small", "first-fit", "1,2"],
        ["small", "best-fit", "1,2"],
        ["small", "FGD (published)", "-"],
    ]
    assert "of equal nodes: MostAllocated" in out.out
    assert "88.8" in out.out
    assert "small, best-fit, seed 2: " in out.err
    assert out.err.count("% allocated") == 4


def test_runs_with_different_strategies_are_not_mixed(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--nodes", str(files[0]), "--policies", "best-fit", str(files[1])]
    assert main([*arguments, "--output", "json"]) == 0
    before = files[0].with_name("before.json")
    before.write_text(capsys.readouterr().out)
    picture = files[0].with_name("both.svg")
    both = ["--results", str(before), "--strategy", "MostAllocated", "--picture", str(picture)]
    assert main([*arguments, *both]) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    names = ["best-fit, LeastAllocated", "best-fit, MostAllocated"]
    assert [[each for each in names if each in row] for row in rows] == [[each] for each in names]
    assert all(each in picture.read_text() for each in names)


def test_json_has_one_object_for_each_run(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--nodes", str(files[0]), "--policies", "best-fit", "--seeds", "7", "--output", "json", str(files[1])]
    assert main(arguments) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["trace"], found["policy"], found["seed"]) == ("small", "best-fit", 7)
    assert {"90", "95", "100", "110", "120", "130"} <= found["allocated"].keys()
    assert found["seconds"] >= 0
    assert (found["in_use"], found["bound"]) == (None, None)


def test_run_says_that_the_cpu_of_all_pods_counts(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--nodes", str(files[0]), "--policies", "fragmentation", "--output", "json", str(files[1])]
    names = []
    for each in ([], ["--cpu-of-all-pods"]):
        assert main([*arguments, *each]) == 0
        (found,) = json.loads(capsys.readouterr().out)
        names.append(found["policy"])
    assert names == ["fragmentation", "fragmentation, CPU of all pods"]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        pytest.param("1,500,", "1,x,", 'line 2: gpu_milli "x" is not a whole number of 0 or more', id="no number"),
        pytest.param("1,500,", "1,1001,", 'line 2: gpu_milli "1001" is not between 1 and 1000', id="beyond a GPU"),
        pytest.param("1,500,", "2,500,", "only one GPU can be shared", id="shares of two GPUs"),
        pytest.param("num_gpu", "gpus", "no value in column num_gpu", id="no such column"),
        pytest.param(PODS, PODS.splitlines()[0], "no pod asks for a GPU", id="no pods"),
    ],
)
def test_file_that_is_no_trace_is_refused_with_the_place(
    old: str, new: str, problem: str, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    files[1].write_text(PODS.replace(old, new))
    assert main(["--nodes", str(files[0]), str(files[1])]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--policies", "bestfit"], 'unknown policy "bestfit"; did you mean best-fit?'),
        (["--strategy", "Most"], "invalid choice: 'Most' (choose from"),
        (["--seeds", "42,x"], '"42,x" is no list of whole numbers'),
    ],
)
def test_option_that_means_nothing_is_refused(
    arguments: list[str], problem: str, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--nodes", str(files[0]), *arguments, str(files[1])])
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[]", "{", '{"small": {"FGD": {"90": "much"}}}'])
def test_file_without_published_results_is_refused(
    text: str, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    published = files[0].with_name("published.json")
    published.write_text(text)
    assert main(["--nodes", str(files[0]), "--published", str(published), str(files[1])]) == 2
    assert str(published) in capsys.readouterr().err


def test_two_nodes_of_one_name_are_refused(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    files[0].write_text(NODES + "a,1,1,0,\n")
    assert main(["--nodes", str(files[0]), str(files[1])]) == 2
    assert "node a is there twice" in capsys.readouterr().err
