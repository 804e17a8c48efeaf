"""The bound of the packing benchmark: no policy places more pods, and trying everything places as many."""

from collections.abc import Iterator, Sequence
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.policies import POLICIES
from loadtest.packing.own.bound import bound
from loadtest.packing.own.draw import OwnPod, OwnTrace, draw
from loadtest.packing.own.run import run_own
from loadtest.packing.own.scenario import Ask, Class, Device, Machine, PodKind, Scenario
from loadtest.packing.own.scenarios import SCENARIOS

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
