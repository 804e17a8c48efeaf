"""Compute claims (KEP-3675): the parameters of the text become requests and constraints over CPU devices."""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator import InvalidObjectError, Problem
from allocator.model.optional import OPTIONAL_REQUESTS
from allocator.model.validation import validate
from allocator.tools import Fields
from extender import Cluster
from extender.cluster.cluster_state import ClusterState
from extender.cluster.compute_claims import has_parameters, read_parameters, with_cores
from extender.cluster.kinds import Topic
from extender.cluster.resources import cpu_of, cpu_request
from extender.config.settings import Settings
from extender.faces.commands.main import app
from extender.kube.api import Event, EventType, ObjectKey
from extender.kube.resources import NODES, PODS, RESOURCES
from extender.lab.manifests import load, load_objects
from tests.extender.faces.commands.scenes import RUNNER
from tests.kit.clusters import Object, node, pod
from tests.kit.objects.parts import api_object, exactly, of_driver, slice_spec
from tests.kit.places import CONFIG

EXAMPLES = int(os.environ.get("COMPUTE_EXAMPLES", "25"))
PATIENT = Settings.model_validate({"scheduling": {"maxSeconds": 60, "deadlineSeconds": 60}})
"""A busy machine stops no search: the limit on steps does."""

STORY = CONFIG / "compute"
NUMA = "resource.kubernetes.io/numaNode"
BIND, BIND_IF_POSSIBLE = "NUMA-MEM-AFFINITY-BIND-REQUIRED", "NUMA-MEM-AFFINITY-BIND-PREFERRED"
SPREAD, SPREAD_IF_POSSIBLE = "NUMA-MEM-AFFINITY-INTERLEAVE-REQUIRED", "NUMA-MEM-AFFINITY-INTERLEAVE-PREFERRED"
NEAR, NEAR_IF_POSSIBLE = "NUMA-DEVICE-AFFINITY-REQUIRED", "NUMA-DEVICE-AFFINITY-PREFERRED"
PAIRS, PAIRS_IF_POSSIBLE, ALONE = "CORE-SIBLING-REQUIRED", "CORE-SIBLING-PREFERRED", "CORE-SIBLING-DENIED"
CPUS = api_object("DeviceClass", "dra.cpu", spec={"selectors": of_driver("dra.cpu")})
NICS = api_object("DeviceClass", "nic", spec={"selectors": of_driver("nic.example.com")})


def cpu(number: int, *, zone: int, core: int, smt: bool = True) -> Object:
    numbers = {"dra.cpu/cpuID": number, "dra.cpu/coreID": core, "dra.cpu/socketID": zone, NUMA: zone}
    attributes: Object = {name: {"int": value} for name, value in numbers.items()}
    return {"name": f"cpu-{number}", "attributes": attributes | {"dra.cpu/smtEnabled": {"bool": smt}}}


def machine(free: Mapping[int, Sequence[int]], *, smt: bool = True, nics: Sequence[int | None] = ()) -> list[Object]:
    """Node n: for each of its two NUMA nodes, how many CPUs of each core are free; and the NUMA node of each NIC."""
    cpus = [
        cpu(100 * zone + 10 * core + thread, zone=zone, core=core, smt=smt)
        for zone, cores in free.items()
        for core, threads in enumerate(cores)
        for thread in range(threads)
    ]
    ports = [
        {"name": f"nic-{number}", "attributes": {} if zone is None else {NUMA: {"int": zone}}}
        for number, zone in enumerate(nics)
    ]
    slices = [("dra.cpu", cpus), ("nic.example.com", ports)]
    published = [
        api_object("ResourceSlice", driver, spec=slice_spec("n", found, driver=driver, nodeName="n"))
        for driver, found in slices
        if found
    ]
    return [
        node("n"),
        CPUS,
        NICS,
        *published,
    ]


def parameters(
    cores: str | int, *cpu_attributes: str, memory: str = "NO-MEM-AFFINITY", device: str = "NO-DEVICE-AFFINITY"
) -> Object:
    return {
        "cores": [cores],
        "cpu attributes": [["EXCLUSIVE", *cpu_attributes]],
        "mem attributes": [memory],
        "device attributes": [device],
    }


def claim(content: Object, *requests: Object) -> Object:
    config = [{"opaque": {"driver": "dra.cpu", "parameters": content}}]
    devices = {"config": config} | ({"requests": [*requests]} if requests else {})
    return api_object("ResourceClaim", "c", namespace="ns", metadata={"uid": "uid-c"}, spec={"devices": devices})


def placed(objects: Sequence[Object], content: Object, *requests: Object) -> list[str] | str:
    """The devices of a pod with a compute claim, or why it gets none."""
    cluster = Cluster.from_objects([*objects, claim(content, *requests), pod("p", "c")], settings=PATIENT)
    found = cluster.schedule()[0]
    return [each.result.device.device for each in found.devices] if found.node else found.reason


def cores_of(devices: list[str] | str) -> list[tuple[int, int]]:
    """NUMA node and core of each CPU."""
    assert isinstance(devices, list), devices
    numbers = [int(each.removeprefix("cpu-")) for each in devices if each.startswith("cpu-")]
    return [(number // 100, number % 100 // 10) for number in numbers]


def pairs(devices: list[str] | str) -> int:
    return sum(count == 2 for count in Counter(cores_of(devices)).values())


def zones(devices: list[str] | str) -> set[int]:
    return {zone for zone, _ in cores_of(devices)}


# --- the story ----------------------------------------------------------------------------------------------


def test_example_of_the_text_gets_its_cores_beside_its_device() -> None:
    core, timing = Cluster.from_manifests([STORY]).schedule()
    cpus = [each.result.device.device for each in core.devices]
    assert (core.pod, cpus) == ("telco/packet-core-1", ["nic-0", "cpu-0", "cpu-16", "cpu-1", "cpu-17", "cpu-2"])
    assert [each.result.device.device for each in timing.devices] == ["cpu-3", "cpu-19", "cpu-4", "cpu-20"]


def test_cores_stay_away_from_a_device_without_free_cores_beside_it() -> None:
    site = machine({0: (2, 1), 1: (2, 2, 2)}, nics=(0, 1))
    found = placed(site, parameters("5", PAIRS_IF_POSSIBLE, memory=BIND, device=NEAR), exactly("nic", "nic"))
    assert found[0] == "nic-1"
    assert (zones(found), pairs(found)) == ({1}, 2)


def test_convert_prints_what_simulate_uses_and_leaves_it_alone_the_second_time(tmp_path: Path) -> None:
    first = RUNNER.invoke(app, ["convert", str(STORY / "claims.yaml")])
    assert first.exit_code == 0
    (tmp_path / "claims.yaml").write_text(first.stdout)
    assert RUNNER.invoke(app, ["convert", str(tmp_path)]).stdout == first.stdout
    objects = [each.data for each in load([STORY / "claims.yaml"]).objects if each.kind == "ResourceClaimTemplate"]
    assert list(yaml.safe_load_all(first.stdout)) == objects


# --- what each attribute means ------------------------------------------------------------------------------

TWO_CORES = {0: (2, 2), 1: (2, 2)}


@pytest.mark.parametrize(
    ("free", "content", "expected"),
    [
        pytest.param({0: (1, 1), 1: (2, 2)}, parameters("4", PAIRS), (2, {1}), id="siblings are required"),
        pytest.param({0: (1, 1), 1: (2, 1)}, parameters("4", PAIRS), None, id="too few siblings are free"),
        pytest.param({0: (1, 1), 1: (2, 1)}, parameters("4", PAIRS_IF_POSSIBLE), (1, None), id="as many as there are"),
        pytest.param({0: (1, 1), 1: (1,)}, parameters("3", PAIRS_IF_POSSIBLE), (0, {0, 1}), id="siblings refuse none"),
        pytest.param({0: (2,), 1: (2, 1)}, parameters("3", memory=BIND), (1, {1}), id="one NUMA node is required"),
        pytest.param({0: (2,), 1: (2,)}, parameters("3", memory=BIND), None, id="no NUMA node has as many"),
        pytest.param({0: (2,), 1: (2, 1)}, parameters("3", memory=BIND_IF_POSSIBLE), (1, {1}), id="one is preferred"),
        pytest.param({0: (2,), 1: (2,)}, parameters("3", memory=BIND_IF_POSSIBLE), (1, {0, 1}), id="it is no reason"),
        pytest.param(
            {0: (2, 1), 1: (2, 2, 1, 1)},
            parameters("4", PAIRS_IF_POSSIBLE, memory=BIND_IF_POSSIBLE),
            (2, {1}),
            id="pairs on the one that has as many",
        ),
        pytest.param({0: (2, 2), 1: (1,)}, parameters("2", memory=SPREAD), (0, {0, 1}), id="two NUMA nodes"),
        pytest.param({0: (2, 2)}, parameters("2", memory=SPREAD), None, id="there is only one"),
        pytest.param({0: (2, 2)}, parameters("2", memory=SPREAD_IF_POSSIBLE), (1, {0}), id="two are no reason"),
        pytest.param(TWO_CORES, parameters("4", PAIRS, memory=SPREAD), (2, {0, 1}), id="pairs on two NUMA nodes"),
    ],
)
def test_attributes_decide_which_cpus_are_taken(
    free: Mapping[int, Sequence[int]], content: Object, expected: tuple[int, set[int] | None] | None
) -> None:
    found = placed(machine(free), content)
    if expected is None:
        assert isinstance(found, str)
    else:
        assert (pairs(found), zones(found)) == (expected[0], expected[1] or zones(found))


def test_pairs_that_there_are_not_are_noticed_long_before_a_limit() -> None:
    found = placed(machine({0: (2, 2, 2, 1, 1), 1: (2, 2, 2, 2, 1, 1)}), parameters("16", PAIRS))
    assert found == "1 not enough free devices for request cores-0-7"


@pytest.mark.parametrize(("smt", "taken"), [(True, 4), (False, 2)])
def test_core_without_its_sibling_takes_the_whole_core(smt: bool, taken: int) -> None:
    free = (2, 2) if smt else (1, 1)
    found = placed(machine({0: free}, smt=smt), parameters("2", ALONE))
    assert len(found) == taken
    assert len(set(cores_of(found))) == 2


@pytest.mark.parametrize(
    ("nics", "device", "expected"),
    [
        ((1,), NEAR, {1}),
        ((None,), NEAR, None),
        ((1,), NEAR_IF_POSSIBLE, {1}),
        ((None,), NEAR_IF_POSSIBLE, {0}),
    ],
)
def test_cores_are_near_the_devices_of_the_claim(
    nics: Sequence[int | None], device: str, expected: set[int] | None
) -> None:
    free = {0: (1,), 1: (2,)} if len(nics) > 1 else TWO_CORES
    found = placed(machine(free, nics=nics), parameters("2", device=device), exactly("nic", "nic"))
    assert isinstance(found, str) if expected is None else zones(found) == expected


def test_range_takes_more_cores_where_they_are_free() -> None:
    assert [len(placed(machine({0: free}), parameters("2-4"))) for free in ((2,), (2, 1), (2, 2), (2, 2, 2))] == [
        2,
        3,
        4,
        4,
    ]
    made = with_cores(claim(parameters("2-4", PAIRS)))
    annotations = made["metadata"]["annotations"]  # type: ignore[index]
    assert annotations == {OPTIONAL_REQUESTS: "cores-0-1"}


@pytest.mark.parametrize("siblings", [(), (PAIRS_IF_POSSIBLE,), (PAIRS,), (ALONE,)])
@pytest.mark.parametrize("memory", ["NO-MEM-AFFINITY", BIND, BIND_IF_POSSIBLE, SPREAD, SPREAD_IF_POSSIBLE])
@pytest.mark.parametrize("device", ["NO-DEVICE-AFFINITY", NEAR_IF_POSSIBLE])
def test_no_preference_makes_a_claim_too_large(siblings: tuple[str, ...], memory: str, device: str) -> None:
    content = parameters("15" if ALONE in siblings else "30", *siblings, memory=memory, device=device)
    assert not validate(with_cores(claim(content, exactly("nic", "nic"))), lambda _: None)


def test_preferences_that_need_too_many_constraints_are_left_out_the_last_pairs_first() -> None:
    everything = parameters("31", PAIRS_IF_POSSIBLE, memory=BIND_IF_POSSIBLE, device=NEAR_IF_POSSIBLE)
    spec = claim(everything, exactly("nic", "nic"))["spec"]
    own = [{"requests": ["nic"], "matchAttribute": f"example.com/a{number}"} for number in range(6)]
    obj = {**claim(everything), "spec": {"devices": {**spec["devices"], "constraints": own}}}
    devices = with_cores(obj)["spec"]["devices"]  # type: ignore[index]
    preferring = [each["name"] for each in devices["requests"] if "siblings" in str(each)]
    assert preferring == [f"cores-0-{number}" for number in range(12)]
    assert len(devices["constraints"]) == 32


def test_driver_gets_the_parameters_of_its_requests() -> None:
    content = parameters("3", PAIRS_IF_POSSIBLE)
    made = with_cores(claim(content, exactly("nic", "nic")))
    (config,) = made["spec"]["devices"]["config"]  # type: ignore[index]
    assert config == {"requests": ["cores-0-0", "cores-0-1"], "opaque": {"driver": "dra.cpu", "parameters": content}}


def test_config_map_of_the_text_is_read_as_a_claim_template() -> None:
    text = json.dumps(parameters("2"))
    found = with_cores(api_object("ConfigMap", "x", namespace="ns", data={"config.json": text}))
    assert (found["kind"], has_parameters(found)) == ("ResourceClaimTemplate", True)
    other = api_object("ConfigMap", "x", data={"config.json": '{"colors": 3}'})
    assert with_cores(other) is other


# --- mistakes -----------------------------------------------------------------------------------------------

MISTAKES: Mapping[str, tuple[Object, str]] = {
    "no cores": ({"cores": []}, "cores: needs at least one number of cores"),
    "no number": ({"cores": ["many"]}, 'cores[0]: "many" is neither a number of cores, nor a range such as "6-8"'),
    "a range that goes down": ({"cores": ["8-6"]}, 'cores[0]: "8-6" is neither'),
    "a driver that is no name": ({"cores": ["1"], "cci driver": "A_B"}, 'cci driver: "A_B": '),
    "an unknown field": (
        {"cores": ["1"], "cpus attributes": []},
        "cpus attributes: unknown field; did you mean cpu attributes?",
    ),
    "too few entries": (
        {"cores": ["1", "2"], "cpu attributes": [["EXCLUSIVE"]]},
        "cpu attributes: has 1 entries, and cores has 2: each group has one",
    ),
    "an unknown attribute": (
        parameters("1", "CORE-SIBLINGS"),
        'cpu attributes[0]: "CORE-SIBLINGS" is not one of EXCLUSIVE',
    ),
    "no list": (
        {"cores": ["1"], "cpu attributes": ["SHARED"]},
        "cpu attributes[0]: expected a list",
    ),
    "shared and exclusive": (parameters("1", "SHARED"), "cpu attributes[0]: cores are either EXCLUSIVE or SHARED"),
    "siblings of shared cores": (
        {"cores": ["2"], "cpu attributes": [["SHARED", PAIRS]]},
        "cpu attributes[0]: CORE-SIBLING-REQUIRED needs EXCLUSIVE",
    ),
    "a place of shared cores": (
        {"cores": ["2"], "mem attributes": [BIND]},
        "cpu attributes[0]: SHARED cores belong to no NUMA node",
    ),
    "two rules": (parameters("2", PAIRS, ALONE), "cpu attributes[0]: names two rules for siblings"),
    "half a pair": (parameters("3", PAIRS), "cores[0]: CORE-SIBLING-REQUIRED needs an even number of cores"),
    "an unknown place": (
        parameters("1", memory="HUGE_PAGE_SIZE_1M"),
        'mem attributes[0]: "HUGE_PAGE_SIZE_1M" is not one of',
    ),
    "a contradiction": (
        parameters("2", memory=SPREAD, device=NEAR),
        "mem attributes[0]: cores of several NUMA nodes cannot",
    ),
    "one core in two places": (parameters("1", memory=SPREAD), "cores[0]: one core cannot be on several NUMA nodes"),
    "too many": (parameters("17", ALONE), "cores: takes 34 CPUs for itself, a claim can hold 32 devices"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_named_with_their_place(case: str) -> None:
    content, problem = MISTAKES[case]
    found: list[Problem] = []
    read_parameters(Fields(content, "", found))
    assert [str(each)[: len(problem)] for each in found] == [problem]


@pytest.mark.parametrize(
    ("obj", "problem"),
    [
        (claim({"cores": ["4"]}), "spec.devices.config[0].opaque.parameters.cores: all cores are SHARED"),
        (claim(parameters("0")), 'spec.devices.config[0].opaque.parameters.cores[0]: "0" is neither'),
        (claim(parameters("1"), exactly("cores-0", "nic")), "spec.devices.requests[0]: names that begin with cores-"),
        (
            claim(parameters("1", device=NEAR_IF_POSSIBLE), {"name": "nic", "firstAvailable": []}),
            "spec.devices.requests[0]: needs the field exactly",
        ),
        (api_object("ConfigMap", "c", data={"config.json": '{"cores" ["1"]}'}), "data[config.json]: is not JSON"),
        (api_object("ConfigMap", "c", data={"config.json": '{"cores": ["x"]}'}), 'data[config.json].cores[0]: "x" is'),
        (
            claim(parameters("16", ALONE), exactly("nic", "nic")),
            "spec.devices.config[0].opaque.parameters.cores: become 32 devices, a claim can hold 32 and has 1",
        ),
        (
            claim(parameters("32", PAIRS, memory=BIND)),
            "spec.devices.config[0].opaque.parameters.cores: become 33 constraints, a claim can hold 32",
        ),
        (
            claim(parameters("1-32"), exactly("nic", "nic")),
            "spec.devices.config[0].opaque.parameters.cores: become 32 devices, a claim can hold 32 and has 1",
        ),
    ],
)
def test_object_that_can_not_be_read_is_a_problem_of_its_file(obj: Object, problem: str) -> None:
    with pytest.raises(InvalidObjectError):
        with_cores(obj)
    (told,) = load_objects([obj], "objects").problems
    assert told.startswith(f"objects: {obj['kind']} c: {problem}")


# --- the law ------------------------------------------------------------------------------------------------

contents = st.builds(
    lambda cores, siblings, memory, device: parameters(cores, *siblings, memory=memory, device=device),
    st.sampled_from(["2", "4", "6", "2-4"]),
    st.sampled_from([(), (PAIRS,), (PAIRS_IF_POSSIBLE,), (ALONE,)]),
    st.sampled_from(["NO-MEM-AFFINITY", BIND, BIND_IF_POSSIBLE, SPREAD_IF_POSSIBLE]),
    st.sampled_from(["NO-DEVICE-AFFINITY", NEAR, NEAR_IF_POSSIBLE]),
)
machines = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), min_size=2, max_size=2)


def fits(free: Sequence[Sequence[int]], content: Object, zone_of_nic: int) -> bool:
    """Whether the required attributes can be met: a count by hand, which knows nothing of claims."""
    least = int(content["cores"][0].partition("-")[0])
    words, memory, device = content["cpu attributes"][0], content["mem attributes"][0], content["device attributes"][0]
    of_pairs = [2 * sum(core == 2 for core in zone) for zone in free]
    usable = [
        pair if PAIRS in words else pair // 2 if ALONE in words else sum(zone)
        for zone, pair in zip(free, of_pairs, strict=True)
    ]
    if device == NEAR:
        return usable[zone_of_nic] >= least
    return max(usable) >= least if memory == BIND else sum(usable) >= least


@settings(max_examples=EXAMPLES)
@given(machines, contents, st.integers(0, 1))
def test_pod_gets_its_cores_exactly_if_what_is_required_can_be_met(
    free: list[list[int]], content: Object, zone_of_nic: int
) -> None:
    made = with_cores(claim(content, exactly("nic", "nic")))
    assert not validate(made, lambda _: None)
    found = placed(machine(dict(enumerate(free)), nics=(zone_of_nic,)), content, exactly("nic", "nic"))
    assert isinstance(found, list) == fits(free, content, zone_of_nic), found
    if isinstance(found, list):
        words, own = content["cpu attributes"][0], Counter(cores_of(found))
        assert not {PAIRS, ALONE} & {*words} or set(own.values()) == {2}
        assert content["device attributes"][0] != NEAR or zones(found) == {zone_of_nic}
        assert content["mem attributes"][0] != BIND or len(zones(found)) == 1


# The CPU of nodes and pods, as kube-scheduler counts it.


def with_resources(**resources: Any) -> Object:
    return {"resources": resources}


def container(cpu: str | int, **more: Any) -> Object:
    return with_resources(requests={"cpu": cpu}) | more


SPECS: dict[str, tuple[object, int]] = {
    "no containers": ({}, 0),
    "no requests": ({"containers": [{}]}, 0),
    "requests are summed": ({"containers": [container("1"), container("250m")]}, 1250),
    "parts of a thousandth count as one": ({"containers": [container("1u")]}, 1),
    "a number": ({"containers": [container(2)]}, 2000),
    "a limit without a request": ({"containers": [with_resources(limits={"cpu": "2"})]}, 2000),
    "a limit above a request": ({"containers": [with_resources(limits={"cpu": "2"}, requests={"cpu": "1"})]}, 1000),
    "an init container that needs more": ({"initContainers": [container("4")], "containers": [container("1")]}, 4000),
    "a sidecar": (
        {"initContainers": [container("1", restartPolicy="Always"), container("1")], "containers": [container("2")]},
        3000,
    ),
    "requests of the whole pod": (with_resources(requests={"cpu": "3"}) | {"containers": [container("1")]}, 3000),
    "overhead": ({"containers": [container("1")], "overhead": {"cpu": "100m"}}, 1100),
    "an amount that is none": ({"containers": [container("much"), container("-1"), container("1")]}, 1000),
    "fields of another type": ({"containers": "c", "initContainers": [1], "resources": [], "overhead": 3}, 0),
    "no spec": (None, 0),
}


@pytest.mark.parametrize(("spec", "expected"), SPECS.values(), ids=SPECS)
def test_pod_requests_the_cpu_that_a_scheduler_reserves(spec: object, expected: int) -> None:
    assert cpu_request(spec) == expected


@pytest.mark.parametrize(
    ("amounts", "expected"), [({"cpu": "8"}, 8000), ({"cpu": "x"}, None), ({}, None), (None, None)]
)
def test_amount_of_cpu_is_in_thousandths(amounts: object, expected: int | None) -> None:
    assert cpu_of(amounts) == expected


def counting(*objects: Object, counts_cpu: bool = True, of_all_pods: bool = True) -> ClusterState:
    state = ClusterState(counts_cpu=counts_cpu, cpu_of_all_pods=of_all_pods)
    for each in objects:
        state.apply(Event(EventType.ADDED, RESOURCES[each["kind"]], each))
    return state


NODE = node("n", allocatable={"cpu": "4"})
PLAIN = pod("plain", on="n", resources={"cpu": "1"})
WITH_DEVICES = pod("p", "claim", on="n", resources={"cpu": "500m"})


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        pytest.param([NODE], 4000, id="no pods"),
        pytest.param([NODE, PLAIN], 3000, id="a pod without devices"),
        pytest.param([NODE, PLAIN, WITH_DEVICES], 2500, id="a pod with devices"),
        pytest.param([NODE, PLAIN, PLAIN], 3000, id="a pod that is told twice"),
        pytest.param([NODE, pod("plain", resources={"cpu": "1"})], 4000, id="a pod that waits for a node"),
        pytest.param([NODE, {**PLAIN, "status": {"phase": "Succeeded"}}], 4000, id="a pod that has ended"),
        pytest.param([PLAIN], None, id="a node that is not known"),
        pytest.param([node("n")], None, id="a node that does not tell its CPU"),
    ],
)
def test_node_has_left_what_no_pod_requests(objects: list[Object], expected: int | None) -> None:
    assert counting(*objects).snapshot.cpu_left("n") == expected


def test_cpu_of_a_pod_is_free_when_the_pod_ends_moves_or_is_gone() -> None:
    state = counting(NODE, PLAIN, WITH_DEVICES)
    state.apply(Event(EventType.MODIFIED, PODS, {**PLAIN, "status": {"phase": "Failed"}}))
    assert state.snapshot.cpu_left("n") == 3500
    state.apply(Event(EventType.DELETED, PODS, WITH_DEVICES))
    assert state.snapshot.cpu_left("n") == 4000
    assert not state.snapshot.requested
    assert not state.snapshot.others


def test_pod_that_a_list_lacks_requests_nothing_any_more() -> None:
    state = counting(NODE, PLAIN)
    state.replace(PODS, [], 5)
    assert state.snapshot.cpu_left("n") == 4000


def test_fork_without_a_pod_has_its_cpu_left() -> None:
    snapshot = counting(NODE, PLAIN, WITH_DEVICES).snapshot
    assert snapshot.without_pod(ObjectKey("ns", "p")).cpu_left("n") == 3000
    assert snapshot.cpu_left("n") == 2500


@pytest.mark.parametrize("of_all_pods", [False, True])
def test_who_counts_no_cpu_keeps_no_pods_without_devices(of_all_pods: bool) -> None:
    state = counting(NODE, PLAIN, WITH_DEVICES, counts_cpu=False, of_all_pods=of_all_pods)
    snapshot = state.snapshot
    assert (snapshot.requested, snapshot.others, snapshot.cpu_left("n")) == (None, None, None)
    assert not state.reads_all_pods


def test_who_counts_pods_with_devices_keeps_no_others() -> None:
    state = counting(NODE, PLAIN, WITH_DEVICES, of_all_pods=False)
    assert (state.snapshot.others, state.snapshot.cpu_left("n")) == (None, 3500)
    assert not state.reads_all_pods
    state.apply(Event(EventType.DELETED, PODS, PLAIN))
    state.apply(Event(EventType.DELETED, PODS, WITH_DEVICES))
    assert state.snapshot.cpu_left("n") == 4000


def test_change_of_cpu_names_the_node() -> None:
    state = counting(NODE)
    version = state.snapshot.version
    state.apply(Event(EventType.ADDED, PODS, PLAIN))
    state.apply(Event(EventType.MODIFIED, PODS, {**PLAIN, "status": {"phase": "Running", "message": "well"}}))
    assert state.since(version).changed == {Topic.CPU: {"n"}}
    state.apply(Event(EventType.MODIFIED, NODES, node("n", allocatable={"cpu": "8"})))
    assert state.snapshot.cpu_left("n") == 7000
