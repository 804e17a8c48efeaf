"""Explains a claim: what it holds; or where it can be allocated, or why nowhere and what would change that.

A claim without an allocation is explained as the claim of a stand-in.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from allocator import Claim, LeftOut
from allocator.model.optional import not_served
from allocator.tools import did_you_mean, nearest
from extender.answers.explain.explain_pod import Explainer
from extender.answers.explain.explanation import Conclusion, Explanation, FittingNode, OfferedDevice
from extender.cluster.objects.claims import ClaimObject, is_immediate, mode_problem, priority_of
from extender.framework.pods.stand_in import is_open, stand_in
from extender.kube.api import ObjectKey

_SUBJECT = "claim"


def unknown_claim(key: ObjectKey, known: Iterable[ObjectKey]) -> str:
    """A claim does not exist; names the one that was probably meant."""
    near = nearest(str(key), map(str, known))
    return f"claim {key} does not exist{did_you_mean(near)}"


def explain_claim(claim: ClaimObject, explainer: Explainer, names: Sequence[str] | None = None) -> Explanation:
    """Explain a claim.

    Args:
        claim: of the explainer's snapshot.
        explainer: explains stand-ins.
        names: the nodes where it may be allocated; None: all.
    """
    if claim.claim.allocation is not None:
        return _allocated(claim)
    problem = mode_problem(claim.claim.annotations)
    if problem:
        return _told(claim, Conclusion.BLOCKED, f"is not allocated: {problem}", cause=problem)
    nodes = explainer.snapshot.nodes
    asked = sorted(nodes) if names is None else names
    left = [name for name in asked if name not in nodes or is_open(nodes[name])]
    if asked and not left:
        return _told(
            claim, Conclusion.BLOCKED, "is not allocated: every node is cordoned", cause="every node is cordoned"
        )
    found = replace(explainer, schedulers=(), preempts=False).explain(stand_in(claim.claim), left)
    cordoned = len(asked) - len(left)
    passed_over = (f"cordoned nodes are passed over: {cordoned}",) if cordoned else ()
    return _of_claim(replace(found, notes=(_when(claim.claim), *passed_over, *found.notes)), claim)


def _when(claim: Claim) -> str:
    if is_immediate(claim):
        return f"the claim is allocated as soon as there are devices, with priority {priority_of(claim)}"
    return "the claim is allocated with its first pod, which decides about the node, too"


def _allocated(found: ClaimObject) -> Explanation:
    claim, allocation = found.claim, found.claim.allocation
    if allocation is None:
        raise ValueError(f"claim {claim} is not allocated")
    users = ", ".join(map(str, claim.reserved_for)) or "nobody"
    terms = allocation.node_selector.terms if allocation.node_selector is not None else ()
    bound = [value for term in terms for each in term.match_fields for value in each.values]
    where = f"node {', '.join(bound)}" if bound else "some nodes" if terms else "every node"
    devices = tuple(
        OfferedDevice(str(found.key), each.request, each.device, each.consumed_capacity) for each in allocation.results
    )
    left_out = tuple(LeftOut(str(found.key), name, "") for name in not_served(claim))
    places = (FittingNode(", ".join(bound) or where, None, devices, "", left_out),)
    summary = f"is allocated for {where}, and reserved for {users}"
    return replace(_told(found, Conclusion.ALLOCATED, summary), places=places)


def _told(claim: ClaimObject, verdict: Conclusion, text: str, *, cause: str = "") -> Explanation:
    return Explanation(str(claim.key), verdict, f"claim {claim.key} {text}", cause, subject=_SUBJECT)


def _of_claim(found: Explanation, claim: ClaimObject) -> Explanation:
    """The explanation of a stand-in, told of its claim."""
    summary = found.summary.replace(f"pod {claim.key} ", f"claim {claim.key} ", 1)
    return replace(found, summary=summary, subject=_SUBJECT)
