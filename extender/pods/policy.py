"""The policy of a pod: that of its annotation, or else the policy for all pods."""

from allocator import POLICIES, Policy, hint, printable
from extender.state.objects import POLICY, Pod


def policy_of(pod: Pod, default: Policy) -> Policy | None:
    """The policy that decides a pod; None if its annotation names none that exists."""
    return default if pod.policy is None else POLICIES.get(pod.policy)


def unknown_policy(pod: Pod) -> str:
    """Why a pod whose annotation names no policy can run on no node."""
    name = pod.policy or ""
    similar = hint(name, POLICIES) or f"; there are {', '.join(sorted(POLICIES))}"
    return printable(f'annotation {POLICY} of the pod: unknown policy "{name}"{similar}')
