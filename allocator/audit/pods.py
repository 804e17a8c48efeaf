"""The audit of pods that have a node: kubelet starts a pod only if its claims are allocated and reserved for it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from allocator.audit.rules import Finding, Rule
from allocator.model.claims import Claim
from allocator.model.nodes import Node
from allocator.node_selectors import selector_matches


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod that has a node and is not finished.

    Attributes:
        name: namespace and name, with a slash.
        node: name of its node.
        claims: the claims that it uses, each as namespace and name, with a slash.
        unmade: entries of ``spec.resourceClaims`` whose claims are not made from their templates.
        pod_group: the name of its PodGroup; empty if it is in none.
    """

    name: str
    uid: str
    node: str
    claims: tuple[str, ...] = ()
    unmade: tuple[str, ...] = ()
    pod_group: str = ""


def pod_findings(pods: Iterable[BoundPod], claims: Mapping[str, Claim], nodes: Mapping[str, Node]) -> Iterator[Finding]:
    """The broken rules over pods that have a node.

    Args:
        pods: to judge.
        claims: those that exist, by namespace and name, with a slash.
        nodes: by name; the node selector of an allocation is not judged for an unknown node.
    """
    for pod in pods:
        where = f"pod {pod.name} on node {pod.node}"
        for entry in pod.unmade:
            yield Finding(Rule.ALLOCATION, (), None, f"{where}: the claim for entry {entry} is not made")
        for name in pod.claims:
            found = _broken(pod, claims.get(name), nodes.get(pod.node))
            if found is not None:
                rule, text = found
                yield Finding(rule, (name,), None, f"{where}: claim {name} {text}")


def _broken(pod: BoundPod, claim: Claim | None, node: Node | None) -> tuple[Rule, str] | None:
    if claim is None:
        return Rule.ALLOCATION, "does not exist"
    if claim.allocation is None:
        return Rule.ALLOCATION, "is not allocated"
    selector = claim.allocation.node_selector
    if node is not None and selector is not None and not selector_matches(selector, node):
        return Rule.ALLOCATION, "is allocated for other nodes"
    if not claim.is_reserved_for(pod.uid, pod.pod_group):
        return Rule.RESERVATION, "is not reserved for the pod"
    return None
