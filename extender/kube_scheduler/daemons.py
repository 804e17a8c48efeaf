"""The taints of nodes that each pod of a DaemonSet tolerates.

Source: the daemon controller of kube-controller-manager, Kubernetes 1.36.
"""

from typing import Any, Final

_TOLERATED: Final = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
"""Taints of nodes (``node.kubernetes.io/...``)."""

_ON_HOST_NETWORK: Final = ("network-unavailable", "NoSchedule")


def tolerating(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec of a pod, with the tolerations that the daemon controller adds."""
    taints = (*_TOLERATED, _ON_HOST_NETWORK) if spec.get("hostNetwork") else _TOLERATED
    added = [{"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": effect} for name, effect in taints]
    return {**spec, "tolerations": [*(spec.get("tolerations") or []), *added]}
