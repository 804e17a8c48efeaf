"""Clusters at random in which conditions of kube-scheduler meet those of devices, with pods that wait."""

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.kit.clusters import (
    DRIVER,
    GPU,
    Object,
    claim,
    claim_template,
    device_class,
    local_slice,
    network_slice,
    node,
    pod,
    request,
)

NODES = ("a", "b", "c")
PLUGIN, SERVED, NOBODYS = "plugin.example.com/nic", "example.com/gpu", "amd.com/gpu"
TAINT = {"key": "team", "value": "ml", "effect": "NoSchedule"}
TOLERATION = {"key": "team", "operator": "Exists"}
OURS = "dra-scheduler"
CLASSES = (GPU, device_class("shared", selectors=[f'device.driver == "{DRIVER}"'], extended=SERVED))


@dataclass(frozen=True)
class World:
    """A cluster's objects, and the pods that wait, the first one first."""

    objects: tuple[Object, ...]
    pods: tuple[str, ...]


def rarely(value: Any) -> st.SearchStrategy[Any]:
    """Mostly None."""
    return st.sampled_from([None, None, None, value])


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Object:
    allocatable = {resource: draw(st.sampled_from("0012")) for resource in (PLUGIN, SERVED)}
    found = node(name, labels={"zone": draw(st.sampled_from("12"))}, allocatable=allocatable)
    found["spec"] = {"taints": [TAINT] if draw(rarely(1)) else [], "unschedulable": bool(draw(rarely(1)))}
    return found


def required_zone(zone: str) -> Object:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


@st.composite
def waiting_pods(draw: st.DrawFn, name: str, number: int) -> Object:
    """A pod with claims by name or from a template, with extended resources, or with nothing of it."""
    names = draw(st.lists(st.sampled_from(["one", "two", "shared"]), unique=True, max_size=2))
    names += draw(st.sampled_from([[]] * 18 + [["no-class"], ["missing"]]))
    wants = draw(st.lists(st.sampled_from([PLUGIN, SERVED, SERVED] * 3 + [NOBODYS]), unique=True, max_size=2))
    found = pod(name, *names, created=f"2026-01-{number + 1:02}T00:00:00Z", resources=dict.fromkeys(wants, "1"))
    if template := draw(st.sampled_from([None, "gpu"] * 9 + ["no-template"])):
        found["spec"]["resourceClaims"] += [{"name": "made", "resourceClaimTemplateName": template}]
    fields = {
        "nodeSelector": draw(rarely({"zone": "1"})),
        "affinity": draw(rarely(required_zone("2"))),
        "tolerations": [TOLERATION] if draw(st.booleans()) else None,
        "schedulingGates": draw(st.sampled_from([None] * 19 + [[{"name": "example.com/quota"}]])),
        "schedulerName": draw(st.sampled_from([OURS] * 19 + ["default-scheduler"])),
    }
    found["spec"] |= {name: value for name, value in fields.items() if value is not None}
    return found


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Some nodes with some devices, claims, a pod that runs, and three pods that wait."""
    names = draw(
        st.lists(st.sampled_from(NODES), unique=True, min_size=draw(st.sampled_from([0] + [1] * 9)), max_size=3)
    )
    slices = [local_slice(name, draw(st.integers(1, 2))) for name in names if not draw(rarely(1))]
    if draw(rarely(1)):
        slices.append(network_slice("net"))
    claims = [
        claim("one"),
        claim("two", request(count=2)),
        claim("shared"),
        claim("no-class", request(device_class="x")),
    ]
    runs_on = draw(st.sampled_from([None, *names]))
    asks = draw(st.sampled_from([PLUGIN, SERVED]))
    running = [pod("runs", on=runs_on, resources={asks: "1"})] if runs_on else []
    pods = tuple(f"p{number}" for number in range(draw(st.integers(1, 3))))
    waiting = [draw(waiting_pods(name, number)) for number, name in enumerate(pods)]
    of_nodes = [draw(nodes(name)) for name in names]
    return World((*CLASSES, *of_nodes, *slices, *claims, claim_template("gpu"), *running, *waiting), pods)
