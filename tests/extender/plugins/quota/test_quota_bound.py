"""Filter compares the devices of a node with a quota only if some devices could exceed it; the answer is the same."""

import os
from dataclasses import replace
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from allocator import Allocation
from extender.framework.cycle import Cycle, open_cycle
from extender.framework.decisions.solver import Memories
from extender.framework.filter import filter_nodes
from extender.kube.api import ObjectKey
from extender.plugins.quota.pod_quota import PodQuota, is_counted
from extender.plugins.quota.totals import Largest
from tests.kit.clusters import DRIVER, GPU, Object, claim, local_slice, node, pod, request, snapshot_of, solver
from tests.kit.objects.parts import api_object

EXAMPLES: Final = int(os.environ.get("QUOTA_EXAMPLES", "60"))
BIG: Final = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'
SIZES: Final = ("10Gi", "40Gi", "80Gi")


def published(name: str, sizes: list[str]) -> Object:
    """The devices of a node, with their memory."""
    raw = local_slice(name, len(sizes))
    for device, memory in zip(raw["spec"]["devices"], sizes, strict=True):
        device["capacity"] = {"memory": {"value": memory}}
    return raw


CAPACITIES: Final = st.dictionaries(
    st.sampled_from(("memory", f"{DRIVER}/memory")), st.sampled_from(("20Gi", "90Gi", "1Ti")), min_size=1
)
AMOUNTS: Final = st.one_of(
    st.fixed_dictionaries({"devices": st.integers(0, 3)}, optional={"capacity": CAPACITIES}),
    st.fixed_dictionaries({"capacity": CAPACITIES}),
)
OF: Final = st.one_of(
    st.fixed_dictionaries({"deviceClassName": st.sampled_from(("gpu", "other"))}),
    st.just({"selectors": [{"cel": {"expression": BIG}}]}),
    st.just({"deviceClassName": "gpu", "selectors": [{"cel": {"expression": BIG}}]}),
)
LIMITS: Final = st.builds(lambda of, amounts: {**of, **amounts}, OF, AMOUNTS)
REQUESTS: Final = st.one_of(
    st.builds(request, count=st.integers(1, 2)),
    st.just({"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}),
    st.just(
        {
            "name": "r",
            "firstAvailable": [
                {"name": "two", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2},
                {"name": "one", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
            ],
        }
    ),
)


@settings(max_examples=EXAMPLES)
@given(
    st.lists(st.lists(st.sampled_from(SIZES), min_size=1, max_size=3), min_size=1, max_size=2),
    st.lists(LIMITS, min_size=1, max_size=2),
    st.lists(REQUESTS, min_size=1, max_size=2),
    st.booleans(),
)
def test_filter_lets_pass_exactly_the_nodes_whose_devices_are_within_quota(
    sizes: list[list[str]], limits: list[dict[str, Any]], requests: list[Object], is_held: bool
) -> None:
    names = ["a", "b"][: len(sizes)]
    nodes = [each for name, own in zip(names, sizes, strict=True) for each in (node(name), published(name, own))]
    named = [{**limit, "name": f"l{number}"} for number, limit in enumerate(limits)]
    quota = api_object("DeviceQuota", "gold", namespace="ns", spec={"limits": named})
    held = [claim("h", allocated=["a/gpu-0"], at="a", users=["u"])] if is_held else []
    asked = [{**each, "name": f"r{number}"} for number, each in enumerate(requests)]
    snapshot = snapshot_of(GPU, *nodes, quota, *held, pod("p", "w"), claim("w", *asked))
    judge, waiting = replace(solver(), memories=Memories()), snapshot.pods[ObjectKey("ns", "p")]
    compared, cycle = PodQuota.of(waiting, snapshot, judge), open_cycle(waiting, snapshot, judge)
    assert isinstance(cycle, Cycle)
    assert compared is not None

    def is_within(name: str) -> bool:
        found = cycle.at(snapshot.nodes[name])
        return isinstance(found, Allocation) and compared.refusal_of(cycle.claims.pending, found, ()) is None

    within = [] if compared.refusal(cycle.claims) else [name for name in names if is_within(name)]
    assert list(filter_nodes(waiting, names, snapshot, judge).passed) == within


def test_the_largest_capacities_follow_the_pools() -> None:
    largest = Largest()
    assert not largest.is_known
    for sizes, wanted in ((["10Gi"], 20), (["10Gi", "80Gi"], 80), (["40Gi"], 40)):
        snapshot = snapshot_of(node("a"), published("a", sizes), published("b", ["20Gi"]))
        assert largest.of(snapshot.inventory) == {f"{DRIVER}/memory": wanted * 2**30 * 10**9}
    assert largest.is_known


def test_the_first_count_is_not_remembered_yet() -> None:
    limits = [{"name": "gpu", "deviceClassName": "gpu", "capacity": {"memory": "1Ti"}}]
    quota = api_object("DeviceQuota", "gold", namespace="ns", spec={"limits": limits})
    snapshot = snapshot_of(GPU, node("a"), published("a", ["10Gi"]), quota, pod("p", "w"), claim("w"))
    judge, waiting = replace(solver(), memories=Memories()), snapshot.pods[ObjectKey("ns", "p")]
    assert not is_counted(waiting, snapshot, judge)
    assert filter_nodes(waiting, ["a"], snapshot, judge).passed == ("a",)
    assert is_counted(waiting, snapshot, judge)
    assert is_counted(replace(waiting, namespace="free"), snapshot, replace(judge, memories=Memories()))
