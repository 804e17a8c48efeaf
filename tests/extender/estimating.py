"""Plans of an autoscaler, in few words."""

from collections.abc import Sequence
from typing import Any

from extender.autoscaler.scale_up.estimate import estimate
from extender.autoscaler.scale_up.plan import EXPANDERS, NodeGroup, ScaleUpPlan
from extender.autoscaler.simulated_cluster import World
from extender.framework.decisions.solver import Solver
from tests.extender.autoscaling import (
    node_template,
    pending,
    pod_of,
)
from tests.kit.clusters import (
    Object,
    solver,
)


def planned(
    world: World,
    pods: Sequence[Object],
    *groups: NodeGroup,
    expander: str = "least-waste",
    by: Solver | None = None,
) -> ScaleUpPlan:
    return estimate(world, pending(*pods), groups, EXPANDERS[expander], by or solver())


def added(plan: ScaleUpPlan) -> dict[str, list[list[str]]]:
    """Group to the names of the pods on each new node; groups that get none are left out."""
    return {group.name: [[pod.name for pod in node] for node in group.nodes] for group in plan.groups if group.nodes}


def failed(plan: ScaleUpPlan) -> dict[str, str]:
    return {pod.name: reason for pod, reason in plan.failed}


def pods(number: int, *templates: str, **options: Any) -> list[Object]:
    return [pod_of(f"p{index}", *templates, **options) for index in range(number)]


BIG = node_template("big", 4)
SMALL = node_template("small", 1)
