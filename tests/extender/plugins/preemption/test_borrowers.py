"""Borrowed devices are the first to be preempted: those that a namespace uses beyond its own DeviceQuota."""

from collections.abc import Sequence
from typing import Any, Final

import pytest

from extender.answers.explain.explainer import Explainer
from extender.framework.victims import Victims
from extender.plugins.preemption.choice import choose
from extender.plugins.preemption.plugin import choose_victims
from tests.extender.plugins.preemption.scenes import runs
from tests.kit.clusters import GPU, Object, budget, claim, local_slice, node, parsed, pod, request, snapshot_of, solver
from tests.kit.objects.quotas import limited, quota


def of(namespace: str, *objects: Object) -> list[Object]:
    """Objects of a namespace."""
    return [{**each, "metadata": {**each["metadata"], "namespace": namespace}} for each in objects]


def borrowing(namespace: str, devices: int, **spec: Any) -> Object:
    """A quota that may borrow from its cohort."""
    spec = {"cohort": "research", "borrowing": True} | spec
    return quota(limited(devices=devices), name=f"of-{namespace}", namespace=namespace, **spec)


def entitled(name: str, *devices: str, on: str, priority: int, **more: Any) -> list[Object]:
    """A pod of a namespace without quota."""
    return of("entitled", *runs(name, *devices, on=on, priority=priority, **more))


def borrower(name: str, *devices: str, on: str, priority: int, **more: Any) -> list[Object]:
    """A pod of a namespace that may borrow."""
    return of("borrower", *runs(name, *devices, on=on, priority=priority, **more))


def world(devices: int, *objects: Object, wants: int = 1, nodes: str = "a") -> list[Object]:
    """A pod of priority 100 waits for devices of nodes."""
    mine = [pod("p", "c", priority=100), claim("c", request(count=wants))]
    return [GPU, *mine, *(each for name in nodes for each in (node(name), local_slice(name, devices))), *objects]


CASES: Final[dict[str, tuple[list[Object], list[str]]]] = {
    "a borrower goes before an entitled pod of lower priority": (
        world(
            2,
            borrowing("borrower", 0),
            *borrower("b", "a/gpu-0", on="a", priority=9),
            *entitled("o", "a/gpu-1", on="a", priority=1),
        ),
        ["b"],
    ),
    "on another node, too": (
        world(
            1,
            borrowing("borrower", 0),
            *borrower("b", "b/gpu-0", on="b", priority=9),
            *entitled("o", "a/gpu-0", on="a", priority=1),
            nodes="ab",
        ),
        ["b"],
    ),
    "two borrowers go before one entitled pod that has enough": (
        world(
            4,
            borrowing("borrower", 0),
            *borrower("b", "a/gpu-0", on="a", priority=9),
            *borrower("c", "a/gpu-1", on="a", priority=9),
            *entitled("o", "a/gpu-2", "a/gpu-3", on="a", priority=1),
            wants=2,
        ),
        ["b", "c"],
    ),
    "a namespace gives back no more than it has borrowed": (
        world(
            4,
            borrowing("borrower", 1),
            *borrower("b", "a/gpu-0", on="a", priority=9),
            *borrower("c", "a/gpu-1", on="a", priority=8),
            *entitled("o", "a/gpu-2", on="a", priority=1),
            *entitled("q", "a/gpu-3", on="a", priority=2),
            wants=2,
        ),
        ["c", "o"],
    ),
    "an entitled pod joins only where the borrowers do not suffice": (
        world(
            3,
            borrowing("borrower", 0),
            *borrower("b", "a/gpu-0", on="a", priority=9),
            *entitled("o", "a/gpu-1", on="a", priority=1),
            *entitled("q", "a/gpu-2", on="a", priority=2),
            wants=2,
        ),
        ["b", "o"],
    ),
    "of two borrowers the one of lower priority goes": (
        world(
            2,
            borrowing("borrower", 0),
            *borrower("b", "a/gpu-0", on="a", priority=9),
            *borrower("c", "a/gpu-1", on="a", priority=8),
        ),
        ["c"],
    ),
    "a borrower of equal priority stays": (
        world(
            2,
            borrowing("borrower", 0),
            *borrower("b", "a/gpu-0", on="a", priority=100),
            *entitled("o", "a/gpu-1", on="a", priority=99),
        ),
        ["o"],
    ),
    "a borrower whose budget allows no eviction stays": (
        world(
            2,
            borrowing("borrower", 0),
            *of("borrower", budget("b", {"app": "b"}, 0)),
            *borrower("b", "a/gpu-0", on="a", priority=1, labels={"app": "b"}),
            *entitled("o", "a/gpu-1", on="a", priority=9),
        ),
        ["o"],
    ),
    "within the own limit nothing is borrowed": (
        world(
            2,
            borrowing("borrower", 1),
            *borrower("b", "a/gpu-0", on="a", priority=9),
            *entitled("o", "a/gpu-1", on="a", priority=1),
        ),
        ["o"],
    ),
    "a quota that was lowered and may not borrow has borrowed nothing": (
        world(
            2,
            borrowing("borrower", 0, borrowing=False),
            *borrower("b", "a/gpu-0", on="a", priority=9),
            *entitled("o", "a/gpu-1", on="a", priority=1),
        ),
        ["o"],
    ),
    "in a namespace, the pods of the lowest priority have borrowed": (
        world(
            3,
            borrowing("borrower", 1),
            *of(
                "borrower",
                claim("s", allocated=["a/gpu-0"], at="a", users=["b", "c"]),
                pod("b", "s", on="a", priority=9),
                pod("c", "s", on="a", priority=9),
            ),
            *borrower("d", "a/gpu-1", on="a", priority=99),
            *entitled("o", "a/gpu-2", on="a", priority=1),
        ),
        ["b", "c"],
    ),
}


@pytest.mark.parametrize(("objects", "victims"), CASES.values(), ids=CASES)
def test_device_preemption_and_the_preempt_verb_evict(objects: Sequence[Object], victims: list[str]) -> None:
    snapshot = snapshot_of(*objects)
    asked = parsed(next(each for each in objects if each["metadata"]["name"] == "p"))
    found = choose(asked, sorted(snapshot.nodes), snapshot, solver())
    assert found is not None
    assert sorted(each.name for each in found.victims) == victims
    given = {found.node.name: Victims(("u",))}
    if "b" in victims or "c" in victims:
        assert "with borrowed devices" in str(Explainer.alone(snapshot, solver()).explain(asked))
    added = choose_victims(asked, given, snapshot, solver())[found.node.name].uids
    assert sorted(added) == ["u", *(f"uid-{name}" for name in victims)]
