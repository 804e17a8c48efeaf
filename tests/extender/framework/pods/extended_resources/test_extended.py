"""Extended resources: the requests that a pod's containers make together, and which container gets which devices."""

from collections.abc import Sequence
from typing import Any

import pytest

from extender.cluster.objects.extended_resources import RequestMapping
from extender.cluster.objects.pods import Pod, parse_pod
from extender.framework.pods.extended_resources import DemandError, demand, wanted
from tests.kit.clusters import pod

GPU, NIC = "example.com/gpu", "example.com/nic"
IMPLICIT = "deviceclass.resource.kubernetes.io/gpu"
CLASSES = {GPU: "gpu-class", NIC: "nic-class", IMPLICIT: "gpu"}

Container = dict[str, Any]


def box(name: str, **amounts: str) -> Container:
    """A container; ``gpu`` and ``nic`` are the extended resources of these names."""
    names = {"gpu": GPU, "nic": NIC, "implicit": IMPLICIT}
    return {"name": name, "resources": {"requests": {names.get(key, key): value for key, value in amounts.items()}}}


def sidecar(name: str, **amounts: str) -> Container:
    return {**box(name, **amounts), "restartPolicy": "Always"}


def pod_of(*containers: Container, init: Sequence[Container] = ()) -> Pod:
    raw = pod()
    raw["spec"] |= {"containers": list(containers), "initContainers": list(init)}
    return parse_pod(raw)


def requests(asked: Pod) -> dict[str, tuple[str, int]]:
    found = demand(asked, CLASSES).spec.requests
    assert [each.name for each in found] == sorted(each.name for each in found)
    return {each.name: (each.alternatives[0].device_class, each.alternatives[0].count) for each in found}


def shares(asked: Pod) -> list[str]:
    """Container, resource and request of each mapping."""
    return [f"{m.container} {m.resource} {m.request}" for m in demand(asked, CLASSES).mappings]


CASES: dict[str, tuple[Pod, dict[str, tuple[str, int]], list[str]]] = {
    "one container": (
        pod_of(box("a", gpu="2")),
        {"container-0-request-0": ("gpu-class", 2)},
        [f"a {GPU} container-0-request-0"],
    ),
    "the second number counts all that the container requests, by name": (
        pod_of(box("a", cpu="1", gpu="1", memory="1Gi", nic="1")),
        {"container-0-request-1": ("gpu-class", 1), "container-0-request-2": ("nic-class", 1)},
        [f"a {GPU} container-0-request-1", f"a {NIC} container-0-request-2"],
    ),
    "the implicit name": (
        pod_of(box("a", implicit="1", gpu="1")),
        {"container-0-request-0": ("gpu", 1), "container-0-request-1": ("gpu-class", 1)},
        [f"a {IMPLICIT} container-0-request-0", f"a {GPU} container-0-request-1"],
    ),
    "each container has its own, those without count as well": (
        pod_of(box("a"), box("b", gpu="1"), box("c", gpu="3")),
        {"container-1-request-0": ("gpu-class", 1), "container-2-request-0": ("gpu-class", 3)},
        [f"b {GPU} container-1-request-0", f"c {GPU} container-2-request-0"],
    ),
    "nothing": (pod_of(box("a", gpu="0", cpu="1")), {}, []),
    "a sidecar runs as long as the others": (
        pod_of(box("main", gpu="1"), init=[sidecar("side", gpu="1")]),
        {"container-0-request-0": ("gpu-class", 1), "container-1-request-0": ("gpu-class", 1)},
        [f"side {GPU} container-0-request-0", f"main {GPU} container-1-request-0"],
    ),
    "an init container uses what others will": (
        pod_of(box("main", gpu="2"), init=[box("init", gpu="1")]),
        {"container-1-request-0": ("gpu-class", 2)},
        [f"main {GPU} container-1-request-0", f"init {GPU} container-1-request-0"],
    ),
    "of several, as many as it takes": (
        pod_of(box("a", gpu="1"), box("b", gpu="2"), box("c", gpu="4"), init=[box("init", gpu="3")]),
        {
            "container-1-request-0": ("gpu-class", 1),
            "container-2-request-0": ("gpu-class", 2),
            "container-3-request-0": ("gpu-class", 4),
        },
        [
            f"a {GPU} container-1-request-0",
            f"b {GPU} container-2-request-0",
            f"c {GPU} container-3-request-0",
            f"init {GPU} container-1-request-0",
            f"init {GPU} container-2-request-0",
        ],
    ),
    "what is missing is requested for it": (
        pod_of(box("main", gpu="1"), init=[box("init", gpu="3")]),
        {"container-0-request-0": ("gpu-class", 2), "container-1-request-0": ("gpu-class", 1)},
        [f"main {GPU} container-1-request-0", f"init {GPU} container-1-request-0", f"init {GPU} container-0-request-0"],
    ),
    "once, as many as the one that misses most": (
        pod_of(box("main", gpu="1"), init=[box("x", gpu="2"), box("y", gpu="4"), box("z", gpu="3")]),
        {"container-1-request-0": ("gpu-class", 3), "container-3-request-0": ("gpu-class", 1)},
        [
            f"main {GPU} container-3-request-0",
            f"x {GPU} container-3-request-0",
            f"x {GPU} container-1-request-0",
            f"y {GPU} container-3-request-0",
            f"y {GPU} container-1-request-0",
            f"z {GPU} container-3-request-0",
            f"z {GPU} container-1-request-0",
        ],
    ),
    "the first wins a tie": (
        pod_of(box("main"), init=[box("x", gpu="2"), box("y", gpu="2")]),
        {"container-0-request-0": ("gpu-class", 2)},
        [f"x {GPU} container-0-request-0", f"y {GPU} container-0-request-0"],
    ),
    "a sidecar that has started before is in use": (
        pod_of(box("main"), init=[sidecar("before", gpu="2"), box("init", gpu="1"), sidecar("after", gpu="1")]),
        {"container-0-request-0": ("gpu-class", 2), "container-2-request-0": ("gpu-class", 1)},
        [
            f"before {GPU} container-0-request-0",
            f"after {GPU} container-2-request-0",
            f"init {GPU} container-2-request-0",
        ],
    ),
    "resources don't mix": (
        pod_of(box("main", gpu="1"), init=[box("init", nic="1")]),
        {"container-0-request-0": ("nic-class", 1), "container-1-request-0": ("gpu-class", 1)},
        [f"main {GPU} container-1-request-0", f"init {NIC} container-0-request-0"],
    ),
    "by name, not by number": (
        pod_of(*(box(f"c{index}", gpu="1") for index in range(11))),
        {f"container-{index}-request-0": ("gpu-class", 1) for index in [0, 1, 10, *range(2, 10)]},
        [f"c{index} {GPU} container-{index}-request-0" for index in range(11)],
    ),
}


@pytest.mark.parametrize(("asked", "expected", "expected_shares"), CASES.values(), ids=list(CASES))
def test_requests_and_who_shares_them(
    asked: Pod, expected: dict[str, tuple[str, int]], expected_shares: list[str]
) -> None:
    assert requests(asked) == expected
    assert list(requests(asked)) == list(expected)
    assert shares(asked) == expected_shares


def test_only_what_device_classes_are_to_serve() -> None:
    found = demand(pod_of(box("a", gpu="1", nic="1")), {NIC: "nic-class"})
    assert found.mappings == (RequestMapping("a", NIC, "container-0-request-1"),)


def test_limits_count_where_there_are_no_requests() -> None:
    raw = pod()
    raw["spec"]["containers"] = [{"name": "a", "resources": {"limits": {GPU: "1", "cpu": "1"}}}]
    assert requests(parse_pod(raw)) == {"container-0-request-1": ("gpu-class", 1)}


@pytest.mark.parametrize(("text", "count"), [("30", 30), ("3e1", 30), ("30000m", 30), ("0.03k", 30)])
def test_amounts_are_exact(text: str, count: int) -> None:
    assert requests(pod_of(box("a", gpu=text))) == {"container-0-request-0": ("gpu-class", count)}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("1500m", "is not a whole number"),
        ("0.5", "is not a whole number"),
        ("1n", "is not a whole number"),
        ("-1", "is negative"),
        ("-1500m", "is negative"),
    ],
)
def test_only_whole_numbers_from_zero_on(text: str, wrong: str) -> None:
    with pytest.raises(DemandError, match=rf"^container a asks for .* of {GPU}, which {wrong}$"):
        demand(pod_of(box("a", gpu=text)), CLASSES)


@pytest.mark.parametrize(
    ("asked", "total"),
    [
        (pod_of(box("a", gpu="33")), 33),
        (pod_of(box("a", gpu="1k")), 1000),
        (pod_of(box("a", gpu="20", nic="13")), 33),
        (pod_of(box("a", gpu="1"), init=[box("init", gpu="40")]), 40),
    ],
    ids=["one resource", "1k", "together", "an init container"],
)
def test_no_more_than_a_claim_can_hold(asked: Pod, total: int) -> None:
    with pytest.raises(DemandError, match=f"^extended resources need {total} devices, a claim can hold 32$"):
        demand(asked, CLASSES)


def test_as_many_as_a_claim_can_hold() -> None:
    assert requests(pod_of(box("a", gpu="31"), box("b", nic="1"), init=[box("init", gpu="31")]))


def test_what_a_pod_wants() -> None:
    assert wanted(pod_of(box("a", nic="1", cpu="1"), box("b", gpu="1", nic="2"))) == (GPU, NIC)
    assert wanted(pod_of(box("a", gpu="0"))) == ()
