"""What pods may take from each other: too much is found rather than too little."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from extender.plugins.admission_checks.judging import Stakes
from tests.kit.clusters import (
    Object,
    claim,
    device_class,
    local_slice,
    node,
    parsed,
    pod,
    request,
    snapshot_of,
    solver,
)

DRIVERS = st.sampled_from(["x.example.com", "y.example.com"])
MODELS = st.sampled_from(["m", "n"])
RULES = st.tuples(st.none() | DRIVERS, st.none() | MODELS)
POOLS = st.lists(st.tuples(DRIVERS, st.lists(MODELS, max_size=3)), max_size=4)


def pool(place: int, driver: str, models: list[str]) -> Object:
    devices = [{"name": f"d{each}", "attributes": {"model": {"string": name}}} for each, name in enumerate(models)]
    found = local_slice(f"n{place}")
    return {**found, "spec": {**found["spec"], "driver": driver, "devices": devices}}


def class_of(name: str, driver: str | None, model: str | None) -> Object:
    rules = [f'device.driver == "{driver}"'] if driver else []
    rules += [f'device.attributes[device.driver].model == "{model}"'] if model else []
    return device_class(name, selectors=rules)


def in_other(obj: Object) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "namespace": "other"}}


@given(pools=POOLS, one=RULES, two=RULES)
def test_pods_that_may_get_the_same_device_have_something_in_common(
    pools: list[tuple[str, list[str]]],
    one: tuple[str | None, str | None],
    two: tuple[str | None, str | None],
) -> None:
    machines = [
        each for at, (driver, models) in enumerate(pools) for each in (node(f"n{at}"), pool(at, driver, models))
    ]
    classes = class_of("one", *one), class_of("two", *two)
    claims = claim("one", request(device_class="one")), in_other(claim("two", request(device_class="two")))
    stakes = Stakes(snapshot_of(*classes, *claims, *machines), solver())
    mine, others = stakes.of(parsed(pod("p", "one"))), stakes.of(parsed(in_other(pod("q", "two"))))
    shared = [
        (driver, model)
        for driver, models in pools
        for model in models
        if all(rule[0] in (None, driver) and rule[1] in (None, model) for rule in (one, two))
    ]
    assert not (shared and mine.isdisjoint(others))
    if not {driver for driver, models in pools if models}:
        assert mine.isdisjoint(others)


def test_if_the_time_is_up_each_driver_may_have_devices_of_a_class() -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 1
        return now[0]

    driver, machines = "x.example.com", [node("n0"), pool(0, "y.example.com", ["m"] * 3)]
    snapshot = snapshot_of(class_of("one", driver, None), claim("c", request(device_class="one")), *machines)
    asked = parsed(pod("p", "c"))
    assert ("driver", "y.example.com") not in Stakes(snapshot, solver()).of(asked)
    assert ("driver", "y.example.com") in Stakes(snapshot, replace(solver(), clock=clock)).of(asked)
