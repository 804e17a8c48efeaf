"""States of new nodes that are remembered are those that placing the pods one by one leads to."""

import os
import re
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.autoscaler.scale_up.new_nodes import Filling, NewNodes, PodShape
from extender.autoscaler.scale_up.plan import NodeDemand
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.solver import No
from extender.framework.pods.claims import PodClaims, claims_of
from extender.planning.planned_pods import as_planned
from extender.planning.planner import Planner
from tests.extender.autoscaler.scenes import group_of, pod_of, world_of
from tests.kit.clusters import DRIVER, Object, claim_template, network_slice, parsed, request, solver

EXAMPLES = int(os.environ.get("EXPANSION_EXAMPLES", "25"))
SIZE = f"device.attributes['{DRIVER}'].size"
HAS_SIZE = f"'size' in device.attributes['{DRIVER}']"
SELECTORS = {
    "any": (),
    "from-1": (f"{HAS_SIZE} && {SIZE} >= 1",),
    "over-0": (HAS_SIZE, f"{SIZE} > 0"),
    "size-2": (f"{HAS_SIZE} && {SIZE} == 2",),
    "fails": (f"{SIZE} >= 1",),
}
"""Two of them mean the same, and one fails on a device without a size."""

KINDS = [(name, number) for name in SELECTORS for number in (1, 2)]
TEMPLATES = {f"{name}-{number}": request(count=number, selectors=SELECTORS[name]) for name, number in KINDS}
OBJECTS = [claim_template(name, each) for name, each in TEMPLATES.items()]


def brought(sizes: list[int | None]) -> Object:
    """A node template with a device of each size; None: a device without a size."""
    devices = [
        {"name": f"gpu-{index}", "attributes": {} if size is None else {"size": {"int": size}}}
        for index, size in enumerate(sizes)
    ]
    return {
        "name": "new",
        "labels": {"example.com/group": "new"},
        "slices": [{"driver": DRIVER, "devices": devices}],
    }


def shaped(raw: Object, snapshot: Snapshot) -> tuple[Pod, PodShape, Snapshot]:
    """A pod with its claims, and its shape: pods of one template want the same."""
    pod, snapshot = as_planned(parsed(raw), snapshot)
    claims = claims_of(pod, snapshot)
    assert isinstance(claims, PodClaims)
    (template,) = (each.template_name or "" for each in pod.claims)
    specs = tuple(each.claim.spec for each in claims.pending)
    number, form = list(TEMPLATES).index(template), int(template[-1])
    return pod, PodShape(NodeDemand(()), None, number, specs, form, least=0, size=(), is_alone=False), snapshot


def reason(found: Filling | Snapshot | No) -> str:
    """Why a pod is not placed, without its name; empty if it is placed."""
    return re.sub(r"/p\d+/", "/p/", found.reason.in_words()) if isinstance(found, No) else ""


@settings(max_examples=EXAMPLES)
@given(
    st.lists(st.sampled_from([None, 0, 1, 2]), min_size=1, max_size=5),
    st.lists(st.lists(st.sampled_from(sorted(TEMPLATES)), max_size=5), min_size=1, max_size=6),
    st.booleans(),
)
def test_a_remembered_state_is_the_one_that_placing_leads_to(
    sizes: list[int | None], fills: list[list[str]], has_network: bool
) -> None:
    world = world_of([*OBJECTS, *([network_slice("net", 2)] if has_network else [])], brought(sizes))
    new, snapshot, numbers = NewNodes(world, [group_of("new")], solver(), differ=False), world.snapshot, count()
    asked: list[list[tuple[Pod, PodShape]]] = []
    for fill in fills:
        asked.append([])
        for template in fill:
            pod, shape, snapshot = shaped(pod_of(f"p{next(numbers)}", template), snapshot)
            asked[-1].append((pod, shape))
    new.begin(snapshot)
    planner = Planner.remembering(solver())
    for pods in asked:
        filling = new.empty(0, 0, snapshot)
        placed = filling.snapshot
        for pod, shape in pods:
            found, expected = new.filled(filling, shape, pod), planner.place(pod, filling.node, placed)
            assert reason(found) == reason(expected)
            if not (isinstance(found, No) or isinstance(expected, No)):
                filling, placed = found, expected
            assert filling.snapshot.usage == placed.usage


def test_selectors_that_match_the_same_devices_are_solved_once() -> None:
    """A device without a size fails one of them, so that one is not compared."""
    world = world_of(OBJECTS, brought([None, 0, 1, 2]))
    snapshot = world.snapshot
    names = ("from-1-1", "over-0-1", "size-2-1", "fails-1")
    new = NewNodes(world, [group_of("new")], solver(), differ=False)
    asked = []
    for name in names:
        pod, shape, snapshot = shaped(pod_of(f"p-{name}", name), snapshot)
        asked.append((pod, shape))
    new.begin(snapshot)
    empty = new.empty(0, 0, snapshot)
    for pod, shape in asked:
        new.filled(empty, shape, pod)
    assert len(empty.after) == 3
