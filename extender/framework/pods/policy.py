"""The policy of a pod: its annotation names it, or the policy for all pods counts."""

from typing import Final

from allocator import Reason
from allocator.policies import POLICIES, Policy
from allocator.reason import Cause
from allocator.tools import hint, shown
from extender.cluster.objects.pods import POLICY, Pod

_UNKNOWN: Final = Cause("policy", f"annotation {POLICY} of the pod: {{detail}}")


def policy_of(pod: Pod, default: Policy) -> Policy | None:
    """The policy that decides a pod; None if the annotation of the pod names an unknown policy."""
    return default if pod.policy is None else POLICIES.get(pod.policy)


def unknown_policy(pod: Pod) -> Reason:
    """The reason for a pod whose annotation names an unknown policy: it can run on no node."""
    return Reason(_UNKNOWN, detail=policy_problem(pod.policy or ""))


def policy_problem(name: str) -> str:
    """What is wrong with the name of a policy; empty if there is a policy of this name."""
    if name in POLICIES:
        return ""
    similar = hint(name, POLICIES) or f"; there are {', '.join(sorted(POLICIES))}"
    return f"unknown policy {shown(name)}{similar}"
