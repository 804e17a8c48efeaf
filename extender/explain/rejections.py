"""Nodes that kube-scheduler itself rejects: told apart from devices, with what would make it take them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from extender.explain.explanation import Conclusion, Explanation, NodesByReason, Rejections
from extender.kube_scheduler import unmet_requirements
from extender.pods.decision_case import Case


def with_rejections(
    explanation: Explanation, rejected: Mapping[str, str], with_devices: Collection[str], case: Case
) -> Explanation:
    """The explanation with nodes that kube-scheduler rejects.

    Args:
        explanation: of the other nodes.
        rejected: nodes, each with kube-scheduler's reason.
        with_devices: those of the rejected nodes that have the devices that the pod needs.
        case: of the pod.
    """
    if not rejected:
        return explanation
    ways = {name: _remedies(name, case) for name in rejected if name in with_devices}
    found = Rejections(node_groups(rejected), tuple(name for name, way in ways.items() if way))
    fits_nowhere = explanation.verdict is Conclusion.FITS_NOWHERE
    return replace(explanation, rejections=found, advice=_advice(ways) if fits_nowhere else "")


def node_groups(reasons: Mapping[str, str]) -> tuple[NodesByReason, ...]:
    """The nodes by reason, the most frequent first."""
    groups: dict[str, list[str]] = {}
    for node, reason in reasons.items():
        groups.setdefault(reason, []).append(node)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(NodesByReason(reason, tuple(nodes)) for reason, nodes in ordered)


def _remedies(node: str, case: Case) -> tuple[str, ...]:
    """What to do so that a node meets the requirements of the pod; empty if only device plugins lack something."""
    return tuple(each.remedy for each in unmet_requirements(case.pod.requirements, case.snapshot.nodes[node]))


def _advice(ways: Mapping[str, Sequence[str]]) -> str:
    """How kube-scheduler would take a node that has the devices: the node for which least is to be done."""
    name, remedies = min(((name, way) for name, way in ways.items() if way), key=_length, default=("", ()))
    return f"{'; '.join(remedies)}; then the pod fits on {name}" if remedies else ""


def _length(way: tuple[str, Sequence[str]]) -> int:
    return len(way[1])
