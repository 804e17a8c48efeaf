"""What is said of evictions, each in a cluster of its own; in the order of explanations.txt."""

from collections.abc import Mapping

from tests.extender.answers.explain.scenes import Case, gpus, held, pool, reserved_for_experiment, two_gpus, wants
from tests.kit.clusters import Object, budget, claim, node, pod, request


def important(*objects: Object, never: bool = False) -> tuple[Object, ...]:
    """The pod of `asking`, with a high priority."""
    *others, mine = objects
    mine["spec"] |= {"priority": 100} | ({"preemptionPolicy": "Never"} if never else {})
    return (*others, mine)


def with_labels(running: tuple[Object, Object], **labels: str) -> tuple[Object, Object]:
    running[0]["metadata"]["labels"] = labels
    return running


def terminating(running: tuple[Object, Object]) -> tuple[Object, Object]:
    running[0]["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    return running


EVICTIONS: Mapping[str, Case] = {
    "an eviction of the pod that matters least": Case(
        (
            *important(*wants()),
            *two_gpus("a"),
            *held("x", "a/gpu-0", priority=5),
            *held("y", "a/gpu-1", priority=1),
            node("b"),
            pool("b", *gpus(1)),
            *held("boss", "b/gpu-0", at="b", priority=1000),
        )
    ),
    "an eviction of two pods": Case(
        (
            *important(*wants(request(count=2))),
            *two_gpus("a"),
            *held("x", "a/gpu-0", priority=5),
            *held("y", "a/gpu-1", priority=1),
        )
    ),
    "an eviction that a budget moves elsewhere": Case(
        (
            *important(*wants()),
            *two_gpus("a"),
            *with_labels(held("x", "a/gpu-0"), app="db"),
            *held("y", "a/gpu-1", priority=1),
            budget("db", {"app": "db"}, 0),
        )
    ),
    "an eviction that breaks a budget": Case(
        (
            *important(*wants()),
            node("a"),
            pool("a", *gpus(1)),
            *with_labels(held("x", "a/gpu-0"), app="db"),
            budget("db", {"app": "db"}, 0),
        )
    ),
    "no eviction for a pod that never preempts": Case(
        (*important(*wants(), never=True), node("a"), pool("a", *gpus(1)), *held("x", "a/gpu-0"))
    ),
    "no eviction of what is as important, being bound, or no pod": Case(
        (
            *important(*wants()),
            node("a"),
            pool("a", *gpus(3)),
            *held("x", "a/gpu-0", priority=100),
            claim("y-gpu", allocated=["a/gpu-1"], at="a", users=["y"]),
            pod("y", "y-gpu"),
            reserved_for_experiment("a/gpu-2"),
        )
    ),
    "no eviction for a part of a shared claim": Case(
        (
            *important(*wants()),
            node("a"),
            pool("a", *gpus(1)),
            claim("both", allocated=["a/gpu-0"], at="a", users=["x", "boss"]),
            pod("x", "both", on="a"),
            pod("boss", "both", on="a", priority=1000),
        )
    ),
    "no eviction that does not help": Case(
        (*important(*wants(request(count=2))), node("a"), pool("a", *gpus(1)), *held("x", "a/gpu-0"))
    ),
    "no eviction while a pod terminates": Case(
        (
            *important(*wants()),
            *two_gpus("a"),
            *terminating(held("x", "a/gpu-0")),
            *held("y", "a/gpu-1"),
        )
    ),
}
