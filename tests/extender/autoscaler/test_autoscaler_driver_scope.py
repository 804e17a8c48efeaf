"""Sessions that judge some drivers: each vendor's service judges its own, and a client asks all of them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.autoscaler.readiness import node_readiness
from extender.autoscaler.simulated_cluster import Scope, World
from extender.client import (
    AsyncAutoscalerClient,
    AsyncJointSession,
    AutoscalerClient,
    AutoscalerError,
    Filtered,
    JointSession,
    Readiness,
)
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import No
from tests.extender.autoscaler.http_scenes import app_of
from tests.extender.autoscaler.scenes import (
    BIG,
    GROUP,
    added,
    autoscaler_over,
    expectations,
    failed,
    group_of,
    machine,
    made_up,
    node_template,
    planned,
    pod_of,
    pods,
    world_of,
)
from tests.kit.clusters import (
    DRIVER,
    GPU,
    Cluster,
    Object,
    claim,
    claim_template,
    client_of,
    device_class,
    local_slice,
    parsed,
    pod,
    request,
    solver,
)

NIC_DRIVER = "nic.example.com"
NIC = device_class(
    "nic", selectors=[f'device.driver == "{NIC_DRIVER}" && device.attributes["{NIC_DRIVER}"].gbit >= 100']
)
PLAIN = device_class("plain", selectors=[f'"model" in device.attributes["{DRIVER}"]'], extended="example.com/plain")
ANY = device_class("any")

GPU_REQUEST, NIC_REQUEST = request("gpu"), request("nic", device_class="nic")
BOTH = claim_template("both", GPU_REQUEST, NIC_REQUEST)
FAST: dict[str, Any] = {"attributes": {"gbit": {"int": 100}}}


def scoped(world: World, *drivers: str) -> World:
    return World(world.snapshot, world.supply, Scope(frozenset(drivers), world.supply))


def refusal(world: World, raw: Object, node: Object) -> str:
    """Why the pod can't be on the node; empty if it can."""
    sent = made_up(node)
    found = world.with_nodes(sent).filter(parsed(raw), [sent[0].name], Decider(solver(), None), sent=sent)
    return found.unresolvable.in_words().get(sent[0].name, "")


# --- whose a request is -------------------------------------------------------------------------------------

CLASSES = (NIC, PLAIN, ANY)
EITHER = {
    "name": "either",
    "firstAvailable": [{"name": each, "deviceClassName": each} for each in ("gpu", "nic")],
}
MATCH = {"requests": ["gpu", "nic"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
REQUESTS: dict[str, tuple[Object, str, str]] = {
    "of the driver that its class names": (claim_template("t", GPU_REQUEST), "no device for request gpu", ""),
    "of another driver that its class names": (claim_template("t", NIC_REQUEST), "", "no device for request nic"),
    "of one driver each": (BOTH, "no device for request gpu", "no device for request nic"),
    "by a selector of its own": (
        claim_template("t", request("x", device_class="any", selectors=[f'device.driver == "{NIC_DRIVER}"'])),
        "",
        "no device for request x",
    ),
    "by the devices that match": (
        claim_template("t", request("x", device_class="plain")),
        "no device for request x",
        "",
    ),
    "of nobody who is known": (
        claim_template("t", request("x", device_class="any", selectors=["false"])),
        "no device for request x",
        "no device for request x",
    ),
    "of one or the other": (claim_template("t", EITHER), "", ""),
    "of a class that does not exist": (
        claim_template("t", request("x", device_class="lost")),
        "device class lost does not exist",
        "device class lost does not exist",
    ),
}


@pytest.mark.parametrize(("template", "by_gpu", "by_nic"), REQUESTS.values(), ids=REQUESTS)
def test_a_session_judges_the_requests_of_its_drivers(template: Object, by_gpu: str, by_nic: str) -> None:
    there = local_slice("real", attributes={"model": {"string": "a"}})
    world = world_of((*CLASSES, template, machine("real"), there))
    asked = pod_of("p", template["metadata"]["name"])
    assert refusal(scoped(world, DRIVER), asked, machine("new")) == by_gpu
    assert refusal(scoped(world, NIC_DRIVER), asked, machine("new")) == by_nic


def test_a_constraint_with_requests_of_others_holds_between_the_rest() -> None:
    template = claim_template("t", GPU_REQUEST, NIC_REQUEST)
    template["spec"]["spec"]["devices"]["constraints"] = [MATCH]
    root: dict[str, Any] = {"attributes": {"resource.kubernetes.io/pcieRoot": {"string": "pci0"}}}
    world = world_of((*CLASSES, template), node_template("g", **root))
    assert refusal(scoped(world, DRIVER), pod_of("p", "t"), machine("new", "g")) == ""


def test_extended_resources_are_of_the_drivers_of_their_class() -> None:
    by_class = device_class("gpu-limit", selectors=[f'device.driver == "{DRIVER}"'], extended="example.com/gpu")
    world, asked = world_of((by_class,)), pod("p", resources={"example.com/gpu": "1"})
    assert refusal(scoped(world, DRIVER), asked, machine("new")).startswith("no device for")
    assert refusal(scoped(world, NIC_DRIVER), asked, machine("new")) == ""


def test_an_allocated_claim_restricts_the_nodes_in_each_session() -> None:
    held = claim("held", NIC_REQUEST, allocated=["a/nic-0"], at="a")
    world = world_of((*CLASSES, machine("a"), held))
    assert refusal(scoped(world, DRIVER), pod("p", "held"), machine("new")) == "claim held is allocated for other nodes"


def test_a_booked_pod_holds_what_the_session_judges() -> None:
    world = scoped(world_of((*CLASSES, BOTH), node_template("g", 1)), DRIVER)
    (node,) = made_up(machine("new", "g"))
    booked = world.with_nodes((node,)).with_pod(parsed(pod_of("p", "both")), node, solver())
    assert not isinstance(booked, No)
    assert refusal(booked, pod_of("q", "both"), machine("new", "g")) == "no free device for request gpu"


def test_a_plan_counts_what_the_session_judges() -> None:
    world = world_of((*CLASSES, BOTH), node_template("g", 2))
    asked = [pod_of(f"p{index}", "both") for index in range(3)]
    assert added(planned(scoped(world, DRIVER), asked, group_of("g"))) == {"g": [["p0", "p1"], ["p2"]]}
    assert failed(planned(world, asked, group_of("g"))) == dict.fromkeys(
        ("p0", "p1", "p2"), "1 no device matches request nic"
    )


def test_a_node_is_ready_when_the_drivers_that_are_judged_have_published() -> None:
    nic = node_template("g", driver=NIC_DRIVER)
    world = world_of((machine("n", "g"), local_slice("n")), node_template("g"), {**nic, "name": "nic"})
    assert node_readiness("n", scoped(world, DRIVER), expectations()).ready
    assert not node_readiness("n", scoped(world, NIC_DRIVER), expectations()).ready


# --- together they judge all --------------------------------------------------------------------------------

OF_NICS = [f'device.driver == "{NIC_DRIVER}"']
WISHES = (
    GPU_REQUEST,
    NIC_REQUEST,
    request("gpus", count=2),
    request("picked", device_class="any", selectors=OF_NICS),
)
SITES = tuple((gpus, nics) for gpus in range(3) for nics in range(3))
"""How many GPUs and NICs a node of a group brings; the group is named by its place."""

_of_site = st.lists(st.sampled_from(WISHES), min_size=1, max_size=2, unique_by=lambda each: each["name"])


@given(st.lists(_of_site, min_size=1, max_size=3))
@settings(max_examples=15)
def test_sessions_of_all_drivers_take_together_what_one_session_takes(asked: list[list[Object]]) -> None:
    templates = [
        template
        for index, (gpus, nics) in enumerate(SITES)
        for template in (
            node_template(str(index), gpus),
            {**node_template(str(index), nics, driver=NIC_DRIVER, **FAST), "name": f"nics-{index}"},
        )
    ]
    claims = [claim_template(f"t{index}", *wishes) for index, wishes in enumerate(asked)]
    whole = world_of((*CLASSES, *claims), *templates)
    parts = [scoped(whole, DRIVER), scoped(whole, NIC_DRIVER)]
    nodes = [machine(f"n{index}", str(index)) for index in range(len(SITES))]
    for index in range(len(asked)):
        raw = pod_of(f"p{index}", f"t{index}")
        suiting = [node for node in nodes if not refusal(whole, raw, node)]
        assert suiting == [node for node in nodes if not any(refusal(part, raw, node) for part in parts)]
        if suiting:
            whole = booked(whole, raw, suiting[0])
            parts = [booked(part, raw, suiting[0]) for part in parts]


def booked(world: World, raw: Object, node: Object) -> World:
    """The world with the pod on the node."""
    (there,) = made_up(node)
    found = world.with_nodes((there,)).with_pod(parsed(raw), there, solver())
    assert not isinstance(found, No)
    return found


# --- two services -------------------------------------------------------------------------------------------

OBJECTS = (GPU, NIC, BOTH, claim_template(), machine("new-2", "gpu-and-nic"), local_slice("new-2"))
GPU_TEMPLATES = (node_template("gpu-only"), node_template("gpu-and-nic"))
NIC_TEMPLATES = (node_template("gpu-and-nic", driver=NIC_DRIVER, **FAST),)
NODES = [machine("x", "gpu-only"), machine("y", "gpu-and-nic"), machine("z", "none")]


@pytest.fixture
async def joint(cluster: Cluster) -> AsyncIterator[AsyncJointSession]:
    """Sessions at the services of two vendors, each of which knows only what its own driver brings."""
    async with AsyncExitStack() as stack:
        sessions = []
        for driver, templates in ((DRIVER, GPU_TEMPLATES), (NIC_DRIVER, NIC_TEMPLATES)):
            app = app_of(cluster, autoscaler_over(cluster.state, *templates))
            client = await stack.enter_async_context(AsyncAutoscalerClient(client_of(app)))
            sessions.append(await client.start(drivers=[driver]))
        yield AsyncJointSession(sessions)


async def test_a_node_has_to_suit_the_services_of_all_vendors(joint: AsyncJointSession) -> None:
    found = await joint.filter(pod_of("p", "both"), NODES)
    assert found == Filtered(("y",), {"x": "no device for request nic", "z": "no device for request gpu"})
    assert (await joint.filter(pod_of("p", "gpu"), NODES)).passed == ("x", "y")
    assert set(await joint.prioritize(pod_of("p", "both"), NODES)) == {"x", "y", "z"}


async def test_a_pod_is_booked_at_all_services_or_at_none(joint: AsyncJointSession) -> None:
    with pytest.raises(AutoscalerError, match="pod p can't be booked on node x: no device for request nic"):
        await joint.book(pod_of("p", "both"), NODES[0])
    await joint.book(pod_of("q", "both"), NODES[1])
    found = await joint.filter(pod_of("r", "both"), NODES)
    assert found.failed["y"] == "no free device for request gpu"
    assert (await joint.filter(pod_of("r", "gpu"), NODES)).passed == ("x",), "the refused pod holds nothing"


async def test_a_node_is_ready_when_all_services_say_so(joint: AsyncJointSession) -> None:
    missing = f"driver {NIC_DRIVER} has published nothing for the node yet (template gpu-and-nic)"
    assert await joint.node_ready("new-2") == Readiness(ready=False, reason=missing)


def test_the_client_without_asyncio_merges_in_the_same_way() -> None:
    def answer(passes: str) -> httpx.Client:
        def reply(call: httpx.Request) -> httpx.Response:
            verb = call.url.path.rpartition("/")[2]
            nodes = {"Nodes": {"items": [machine(passes)]}, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}}
            replies = {"filter": nodes, "prioritize": [{"Host": "y", "Score": 3}], "NodeReady": {"Ready": True}}
            return httpx.Response(200, json=replies.get(verb, {}))

        return httpx.Client(transport=httpx.MockTransport(reply), base_url="http://localhost")

    with AutoscalerClient(answer("y")) as one, AutoscalerClient(answer("y")) as other:
        session = JointSession([one.latest, other.latest])
        assert session.filter(pod_of("p"), NODES).passed == ("y",)
        assert session.prioritize(pod_of("p"), NODES) == {"y": 6}
        assert session.node_ready("y").ready
        session.book(pod_of("p"), NODES[1])


# What the scheduler looks at besides devices counts for plans as well.


# --- what the scheduler looks at ----------------------------------------------------------------------------


def with_spec(raw: Object, **fields: Any) -> Object:
    return {**raw, "spec": {**raw["spec"], **fields}}


def of_node(**spec: Any) -> Object:
    return {**machine("template", "big"), "spec": spec}


TAINT = {"key": "gpu", "value": "only", "effect": "NoSchedule"}
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": GROUP, "operator": "NotIn", "values": ["big"]}]}]
        }
    }
}
SCHEDULER: dict[str, tuple[Object, Object, str]] = {
    "a node selector": (
        with_spec(pod_of("p", "gpu"), nodeSelector={GROUP: "other"}),
        of_node(),
        f"node does not match spec.nodeSelector {GROUP}=other",
    ),
    "an affinity": (
        with_spec(pod_of("p", "gpu"), affinity=AFFINITY),
        of_node(),
        "node does not match the required node affinity",
    ),
    "a taint": (pod_of("p", "gpu"), of_node(taints=[TAINT]), "untolerated taint gpu=only:NoSchedule of the node"),
    "a tolerated taint": (
        with_spec(pod_of("p", "gpu"), tolerations=[{"key": "gpu", "operator": "Exists"}]),
        of_node(taints=[TAINT]),
        "",
    ),
    "a taint that only prefers": (pod_of("p", "gpu"), of_node(taints=[{**TAINT, "effect": "PreferNoSchedule"}]), ""),
    "an unschedulable template": (
        pod_of("p", "gpu"),
        of_node(unschedulable=True),
        "node is unschedulable",
    ),
    "cpu": (pod_of("p", "gpu", resources={"cpu": "9"}), machine("t", "big", cpu="8"), "insufficient cpu"),
    "memory": (
        pod_of("p", "gpu", resources={"memory": "1Gi"}),
        machine("t", "big", memory="1G"),
        "insufficient memory",
    ),
    "a plugin's resource": (
        pod_of("p", resources={"example.com/fpga": "1"}),
        machine("t", "big", cpu="8"),
        "insufficient example.com/fpga",
    ),
}


@pytest.mark.parametrize(("raw", "node", "reason"), SCHEDULER.values(), ids=SCHEDULER)
def test_what_the_scheduler_would_refuse_is_no_help(raw: Object, node: Object, reason: str) -> None:
    plan = planned(world_of((), BIG), [raw], group_of("big", node=node))
    assert failed(plan) == ({"p": f"1 {reason}"} if reason else {})


def test_resources_bound_the_pods_of_a_node() -> None:
    plan = planned(world_of((), BIG), pods(4, "gpu", resources={"cpu": "3"}), group_of("big", cpu="8"))
    assert added(plan) == {"big": [["p0", "p1"], ["p2", "p3"]]}


def test_the_number_of_pods_is_a_resource() -> None:
    plan = planned(world_of(), pods(3), group_of("g", pods="2"))
    assert added(plan) == {"g": [["p0", "p1"], ["p2"]]}


STARTS: dict[str, tuple[Object, int]] = {
    "a container": ({"containers": [{"name": "a", "resources": {"requests": {"cpu": "2"}}}]}, 2),
    "a limit alone": ({"containers": [{"name": "a", "resources": {"limits": {"cpu": "2"}}}]}, 2),
    "containers": ({"containers": [{"name": n, "resources": {"requests": {"cpu": "2"}}} for n in "ab"]}, 4),
    "an init container that is larger": (
        {
            "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "5"}}}],
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "2"}}}],
        },
        5,
    ),
    "a sidecar before an init container": (
        {
            "initContainers": [
                {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
                {"name": "i", "resources": {"requests": {"cpu": "5"}}},
            ],
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "2"}}}],
        },
        6,
    ),
    "overhead": (
        {"containers": [{"name": "a", "resources": {"requests": {"cpu": "2"}}}], "overhead": {"cpu": "1"}},
        3,
    ),
    "resources of the pod": (
        {
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "2"}}}],
            "resources": {"requests": {"cpu": "7"}},
        },
        7,
    ),
}


@pytest.mark.parametrize(("spec", "cpus"), STARTS.values(), ids=STARTS)
def test_a_pod_needs_what_the_scheduler_counts(spec: Object, cpus: int) -> None:
    raw = with_spec(pod_of("p"), **spec)
    assert added(planned(world_of(), [raw], group_of("g", cpu=str(cpus))))
    assert failed(planned(world_of(), [raw], group_of("g", cpu=f"{cpus * 1000 - 1}m")))
