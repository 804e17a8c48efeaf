"""What namespaces are allocated of a limit, remembered: the same as counted anew, and only changes are measured."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.solver import Memories
from extender.framework.filter import filter_nodes
from extender.kube.api import Event, EventType, ObjectKey
from extender.kube.resources import RESOURCES
from extender.plugins.quota.pod_quota import total_of
from extender.plugins.quota.totals import Total
from tests.kit.clusters import DRIVER, GPU, Object, claim, local_slice, node, pod, solver, state_of
from tests.kit.objects.parts import api_object

EXAMPLES: Final = int(os.environ.get("QUOTA_EXAMPLES", "60"))
SOLVER: Final = solver()
BIG: Final = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("20Gi")) >= 0'
LIMITS: Final[Sequence[Object]] = (
    {"name": "gpu", "deviceClassName": "gpu", "devices": 100, "capacity": {"memory": "1Ti"}},
    {"name": "big", "selectors": [{"cel": {"expression": BIG}}], "devices": 100},
)
QUOTA: Final = api_object("DeviceQuota", "gold", namespace="ns", spec={"limits": [*LIMITS]})
CLAIMS: Final = tuple(f"c{number}" for number in range(4))


def sized(memory: str) -> Object:
    return local_slice("a", 4, capacity={"memory": {"value": memory}})


def totals(snapshot: Snapshot, known: Memories) -> list[Total]:
    """Of each limit."""
    [quota] = snapshot.device_quotas.values()
    return [total_of(quota, limit, snapshot, replace(SOLVER, memories=known)) for limit in quota.limits]


def measured(before: Total, after: Total) -> set[str]:
    """The claims that were measured in between, by uid."""
    return {uid for uid, part in after.parts.items() if part is not before.parts.get(uid)}


HELD: Final = st.tuples(st.sampled_from(CLAIMS), st.sets(st.integers(0, 3), max_size=2))
SIZES: Final = st.sampled_from(("10Gi", "40Gi", "40G"))


@settings(max_examples=EXAMPLES)
@given(st.lists(HELD | SIZES, min_size=1, max_size=8))
def test_what_is_remembered_is_what_is_counted_anew(steps: list[tuple[str, set[int]] | str]) -> None:
    state, known = state_of([GPU, node("a"), sized("10Gi"), QUOTA, *map(claim, CLAIMS)]), Memories()
    for step in steps:
        before = totals(state.snapshot, known)
        if isinstance(step, str):
            obj, changed = sized(step), set(state.snapshot.allocated_in.get("ns", ()))
        else:
            name, devices = step
            held = [f"a/gpu-{each}" for each in sorted(devices)]
            obj, changed = claim(name, allocated=held, at="a", users=["u"]) if held else claim(name), {f"uid-{name}"}
        state.apply(Event(EventType.MODIFIED, RESOURCES[obj["kind"]], obj))
        after, anew = totals(state.snapshot, known), totals(state.snapshot, Memories())
        assert [each.amounts for each in after] == [each.amounts for each in anew]
        assert [{uid: part.amounts for uid, part in each.parts.items()} for each in after] == [
            {uid: part.amounts for uid, part in each.parts.items()} for each in anew
        ]
        assert all(measured(*pair) <= changed for pair in zip(before, after, strict=True))


def test_filter_measures_a_claim_once_and_not_for_each_pod() -> None:
    running = [claim(f"h{n}", allocated=[f"a/gpu-{n}"], at="a", users=["u"]) for n in range(30)]
    asking = [each for n in range(10) for each in (pod(f"p{n}", f"w{n}"), claim(f"w{n}"))]
    state = state_of([GPU, node("a"), local_slice("a", 40), QUOTA, *running, *asking])
    judge = replace(SOLVER, memories=Memories())

    def seen(number: int) -> list[Total]:
        """What filter has measured by the end of a call."""
        snapshot = state.snapshot
        assert filter_nodes(snapshot.pods[ObjectKey("ns", f"p{number}")], ["a"], snapshot, judge).passed == ("a",)
        return totals(snapshot, judge.memories)

    before = seen(0)
    for number in range(1, 10):
        after = seen(number)
        assert all(one is other for one, other in zip(before, after, strict=True)), "nothing has changed"
        bound = claim(f"w{number}", allocated=[f"a/gpu-{29 + number}"], at="a", users=[f"p{number}"])
        state.apply(Event(EventType.MODIFIED, RESOURCES["ResourceClaim"], bound))
        before = seen(0)
        new = [measured(*pair) for pair in zip(after, before, strict=True)]
        assert new == [{f"uid-w{number}"}] * len(LIMITS), "one allocation is new"


def test_a_republished_pool_measures_only_the_claims_that_hold_its_devices_again() -> None:
    held = [claim(f"h{name}", allocated=[f"{name}/gpu-0"], at=name, users=["u"]) for name in "ab"]
    state, known = state_of([GPU, node("a"), node("b"), sized("10Gi"), local_slice("b", 1), QUOTA, *held]), Memories()
    before = totals(state.snapshot, known)
    state.apply(Event(EventType.MODIFIED, RESOURCES["ResourceSlice"], sized("40Gi")))
    after = totals(state.snapshot, known)
    assert [measured(*pair) for pair in zip(before, after, strict=True)] == [{"uid-ha"}] * len(LIMITS)
    assert [str(each) for each in after[0].amounts.values()] == ["40Gi", "2"]
