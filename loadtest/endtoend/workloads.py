"""What is scheduled: workloads as values, and the objects that each consists of."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, product
from typing import Final

from extender.cluster.api import RawObject
from loadtest.worlds import DRIVER, ROOT, WHOLE_GPUS, Wish, pending_claim
from tests.cluster.harness.objects import pod, template
from tests.cluster.harness.scenario import by_name, by_template

NAMESPACE: Final = "bench"
RESIDENTS: Final = 10
"""Pods that run and report, where there are such."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What dra-extender is to reach; 0: no goal.

    Attributes:
        in_tree: times the in-tree plugin's rate, by number of nodes.
        idle: share of the idle extender's rate.
        undisturbed: share of its own rate with the workload `CLAIMS`.
    """

    in_tree: tuple[tuple[int, float], ...] = ()
    idle: float = 0.0
    undisturbed: float = 0.0


@dataclass(frozen=True, slots=True)
class Workload:
    """Pods, and what goes on beside them.

    Attributes:
        about: what is special about it, in words.
        wishes: each pod has one claim, and its wish is the next of these in turn; none: pods without claims.
        from_templates: claims are made from templates. Such pods come while others are scheduled; all other pods, and
            their claims, are there before the scheduler starts.
        staying: share of the pods that live at a time: for each that gets a node beyond, the oldest one goes. 1: all.
        hopeless: for each pod, another one that fits nowhere.
        updates: status updates of running pods, each second.
    """

    name: str
    about: str
    wishes: tuple[Wish, ...] = (Wish(),)
    from_templates: bool = False
    staying: float = 1.0
    hopeless: bool = False
    updates: int = 0
    goal: Goal = Goal()


@dataclass(frozen=True, slots=True)
class Batch:
    """The objects of a workload, in the order in which they are made.

    Attributes:
        fitting: pods that are to get a node.
        hopeless: pods that will get none. A scheduler that starts takes pods by name, and these are the first.
        residents: pods that have one from the start, and no claims.
    """

    templates: tuple[RawObject, ...]
    claims: tuple[RawObject, ...]
    hopeless: tuple[RawObject, ...]
    fitting: tuple[RawObject, ...]
    residents: tuple[RawObject, ...]


_SELECTORS: Final = (
    WHOLE_GPUS,
    f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0',
    f'device.attributes["{DRIVER}"].driverVersion.isGreaterThan(semver("535.0.0"))',
    f'device.attributes["{DRIVER}"].profile == "whole"',
    f'device.attributes["{DRIVER}"].uuid.startsWith("GPU-")',
)
_FORMS: Final = (Wish((1,)), Wish((2,)), Wish((2,), match=ROOT), Wish((1, 1)))
_NOWHERE: Final = Wish(selector=f'device.attributes["{DRIVER}"].model == "h100"')

CLAIMS: Final = Workload(
    "claims", "one claim with CEL", goal=Goal(in_tree=((500, 2.2), (2000, 4.0), (5000, 6.0)), idle=0.85)
)
_ALL: Final = (
    CLAIMS,
    Workload("none", "no claims", wishes=(), goal=Goal(idle=0.9)),
    Workload("templates", "one claim from a template, pods come while others are scheduled", from_templates=True),
    Workload(
        "mixed",
        "20 shapes in turn",
        wishes=tuple(Wish(form.counts, selector, form.match) for selector, form in product(_SELECTORS, _FORMS)),
    ),
    Workload("churn", "a fifth of the pods live at a time, the others finish", staying=0.2),
    Workload(
        "crowded",
        "beside as many pods that fit nowhere, and 50 status updates a second",
        hopeless=True,
        updates=50,
        goal=Goal(undisturbed=0.8),
    ),
)
WORKLOADS: Final = {each.name: each for each in _ALL}


def batch(workload: Workload, pods: int, nodes: Sequence[str]) -> Batch:
    """All objects of a workload.

    Args:
        workload: what they are for.
        pods: how many are to get a node.
        nodes: the names of all nodes; pods that run already are on the first.
    """
    wishes = workload.wishes
    names = [f"pod-{number:06d}" for number in range(pods)]
    nowhere = [f"nowhere-{number:06d}" for number in range(pods if workload.hopeless else 0)]
    turns = list(zip(names, cycle(range(len(wishes))), strict=False))
    claims = [_claim(_NOWHERE, name) for name in nowhere]
    templates: list[RawObject] = []
    if workload.from_templates:
        templates = [template(NAMESPACE, f"shape-{i}", pending_claim(wish)["spec"]) for i, wish in enumerate(wishes)]
        fitting = [pod(NAMESPACE, name, claims=[by_template(f"shape-{turn}")]) for name, turn in turns]
    elif wishes:
        claims += [_claim(wishes[turn], name) for name, turn in turns]
        fitting = [_pod_with_claim(name) for name in names]
    else:
        fitting = [pod(NAMESPACE, name) for name in names]
    running = nodes[:RESIDENTS] if workload.updates else ()
    return Batch(
        templates=tuple(templates),
        claims=tuple(claims),
        hopeless=tuple(_pod_with_claim(name) for name in nowhere),
        fitting=tuple(fitting),
        residents=tuple(pod(NAMESPACE, f"resident-{i}", nodeName=node) for i, node in enumerate(running)),
    )


def _claim(wish: Wish, name: str) -> RawObject:
    return unmade(pending_claim(wish, name), NAMESPACE)


def _pod_with_claim(name: str) -> RawObject:
    """A pod with the claim of its name."""
    return pod(NAMESPACE, name, claims=[by_name(name)])


def unmade(obj: RawObject, namespace: str = "") -> RawObject:
    """An object without what an API server gives it, to be made in a namespace."""
    metadata = {name: value for name, value in obj["metadata"].items() if name not in {"uid", "resourceVersion"}}
    return obj | {"metadata": metadata | ({"namespace": namespace} if namespace else {})}
