"""The packing benchmark over small traces that the tests write."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.policies import POLICIES
from extender.cluster.objects.pods import parse_pod
from extender.config.settings import SchedulingSettings
from loadtest.packing.arrivals import arrivals
from loadtest.packing.cluster import pod_objects
from loadtest.packing.own.bound import bound
from loadtest.packing.own.draw import LIVES, OwnPod, OwnTrace, draw
from loadtest.packing.own.mig import mig
from loadtest.packing.own.patterns import parts, patterns
from loadtest.packing.own.run import mean_in_use, run_own
from loadtest.packing.own.scenario import Ask, Class, Device, Machine, PodKind, Scenario
from loadtest.packing.own.scenarios import SCENARIOS
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


def test_run_says_that_the_cpu_of_pods_without_devices_does_not_count(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--nodes", str(files[0]), "--policies", "fragmentation", "--output", "json", str(files[1])]
    names = []
    for each in ([], ["--cpu-of-pods-with-devices"]):
        assert main([*arguments, *each]) == 0
        (found,) = json.loads(capsys.readouterr().out)
        names.append(found["policy"])
    assert names == ["fragmentation", "fragmentation, CPU of pods with devices"]


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


# The bound of the packing benchmark: no policy places more pods, and trying everything places as many.


DRIVER = "gpu.example.com"
ROOT = f"{DRIVER}/root"
CLASSES = Class("all", DRIVER), Class("large", DRIVER, "large")
COUNTERS = {("set", "a"): 3, ("set", "b"): 2}

Used = dict[tuple[int, str, str], int]
"""What is in use: node, device or counter set, and capacity or counter; a whole device has the name ``itself``."""


@st.composite
def machines(draw_from: st.DrawFn) -> Machine:
    """Up to four devices: some are shared, some consume counters."""
    devices = []
    for number in range(draw_from(st.integers(1, 4))):
        attributes: dict[str, str | int | bool] = {"type": draw_from(st.sampled_from(["large", "small"]))}
        if draw_from(st.booleans()):
            attributes["root"] = draw_from(st.integers(0, 1))
        consumed = draw_from(st.dictionaries(st.sampled_from(sorted(COUNTERS)), st.integers(1, 2), max_size=2))
        shared = not consumed and draw_from(st.booleans())
        memory = draw_from(st.integers(1, 4))
        devices.append(Device(f"gpu-{number}", DRIVER, attributes, {"memory": memory}, consumed, shared))
    return Machine("machine", tuple(devices), 1, COUNTERS)


@st.composite
def kinds(draw_from: st.DrawFn) -> PodKind:
    """A pod with one request for up to two devices, or with two requests; or with a share of a device."""
    if draw_from(st.booleans()):
        ask = Ask("r", draw_from(st.sampled_from(CLASSES)), share={"memory": draw_from(st.integers(1, 3))})
        return PodKind("shares", 1, 1, (ask,))
    asks = tuple(
        Ask(f"r{number}", draw_from(st.sampled_from(CLASSES)), draw_from(st.integers(1, 2)))
        for number in range(draw_from(st.integers(1, 2)))
    )
    return PodKind("kind", 1, 1, asks, draw_from(st.sampled_from(["", ROOT])))


@st.composite
def traces(draw_from: st.DrawFn) -> OwnTrace:
    """One or two nodes and a few pods."""
    named = draw_from(st.lists(kinds(), min_size=1, max_size=3))
    of = tuple(PodKind(f"kind-{number}", 1, 1, kind.asks, kind.match) for number, kind in enumerate(named))
    nodes = draw_from(st.lists(machines(), min_size=1, max_size=2))
    pods = draw_from(st.lists(st.sampled_from(of), min_size=1, max_size=5))
    scenario = Scenario("tiny", tuple(nodes), of)
    return OwnTrace(
        scenario, {f"node-{number}": node for number, node in enumerate(nodes)}, tuple(OwnPod(kind) for kind in pods)
    )


def most_by_trying(trace: OwnTrace) -> int:
    """The most pods that fit, by trying all devices of all nodes for each pod."""
    nodes = list(trace.nodes.values())
    best = 0

    def go_on(number: int, placed: int, used: Used) -> None:
        nonlocal best
        best = max(best, placed)
        if number == len(trace.pods) or placed + len(trace.pods) - number <= best:
            return
        for node, machine in enumerate(nodes):
            for devices in choices(machine, trace.pods[number].kind):
                after = taken(node, machine, trace.pods[number].kind, devices, used)
                if after is not None:
                    go_on(number + 1, placed + 1, after)
        go_on(number + 1, placed, used)

    go_on(0, 0, {})
    return best


def choices(machine: Machine, kind: PodKind) -> Iterator[Sequence[Sequence[Device]]]:
    """The devices that suit, for each request, and agree in what they have to agree in."""
    for chosen in product(*(combinations(machine.devices, ask.count) for ask in kind.asks)):
        devices = [device for each in chosen for device in each]
        suits = all(ask.suits(device) for ask, each in zip(kind.asks, chosen, strict=True) for device in each)
        values = {device.value(kind.match) for device in devices} if kind.match else {0}
        if suits and len(values) == 1 and None not in values:
            yield chosen


def taken(node: int, machine: Machine, kind: PodKind, chosen: Sequence[Sequence[Device]], used: Used) -> Used | None:
    """What is in use with more devices; None: there is not enough."""
    after = dict(used)
    for ask, devices in zip(kind.asks, chosen, strict=True):
        for device in devices:
            whole = {} if device.shared else {"itself": 1}
            parts = [(device.name, name, amount, 1) for name, amount in whole.items()]
            parts += [(of, name, amount, machine.counters[of, name]) for (of, name), amount in device.counters.items()]
            if device.shared:
                parts += [(device.name, name, ask.share.get(name, has), has) for name, has in device.capacity.items()]
            for of, name, amount, there in parts:
                after[node, of, name] = after.get((node, of, name), 0) + amount
                if after[node, of, name] > there:
                    return None
    return after


@given(traces())
@settings(max_examples=100, deadline=None)
def test_bound_is_what_trying_everything_finds(trace: OwnTrace) -> None:
    assert bound(trace) == most_by_trying(trace)


@given(traces(), st.sampled_from(sorted(POLICIES)))
@settings(max_examples=50, deadline=None)
def test_no_policy_places_more_than_the_bound(trace: OwnTrace, policy: str) -> None:
    assert run_own(trace, policy, 1).placed <= bound(trace)


@pytest.mark.parametrize("name", SCENARIOS)
def test_default_policy_places_no_more_of_our_traces_than_the_bound(name: str) -> None:
    trace = draw(SCENARIOS[name](), 2, 5, 1.2)
    assert run_own(trace, "best-fit", 5).placed <= bound(trace)


# Traces of ours in the packing benchmark: what is drawn, what the cluster accepts, and what leaves.


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
