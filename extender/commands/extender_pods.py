"""The pods of dra-extender, and which of them leads: only this one knows why pods wait."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from extender.kube.api import ObjectKey, RawObject
from extender.kube.connection.transport import decoded
from extender.kube.errors import ApiError
from extender.kube.permissions import Permission, denied
from extender.kube.raw import key_of
from extender.kube.remote import RemoteApi
from extender.kube.resources import LEASES, PODS

_LABEL: Final = "app.kubernetes.io/name=dra-extender"
_LEASE: Final = "dra-scheduler"
"""The lease of the schedulers beside dra-extender (config/scheduler.yaml)."""


class NoServiceError(Exception):
    """There is no pod of dra-extender that this user can ask; the text says why."""


@dataclass(frozen=True, slots=True)
class ServicePod:
    """A pod of dra-extender.

    Attributes:
        warning: why its answers may be less than those of the leader; empty: it leads.
    """

    key: ObjectKey
    warning: str = ""


async def find_pod(api: RemoteApi, namespace: str) -> ServicePod:
    """The pod whose scheduler leads; else one that is ready.

    Raises:
        NoServiceError: there is none, or a right is missing.
        ApiError, OutcomeUnknownError: the API server does not tell.
    """
    needed = (
        Permission("list", PODS, namespace=namespace),
        Permission("get", PODS, "portforward", namespace),
        Permission("create", PODS, "portforward", namespace),
    )
    if lacking := await denied(api.transport, needed):
        raise NoServiceError(f"you may not: {', '.join(map(str, lacking))}")
    path = api.served.path(PODS, ObjectKey(namespace, ""))
    found = await api.read_page(path, {"labelSelector": _LABEL}, decoded)
    ready = sorted(key_of(pod) for pod in found.get("items") or () if _is_ready(pod))
    if not ready:
        seen = f"{len(found['items'])} with the label, none of them ready" if found.get("items") else "none"
        raise NoServiceError(f"no ready pod with the label {_LABEL} in namespace {namespace} ({seen})")
    holder, problem = await _holder(api, namespace)
    for key in ready:
        if holder.rpartition("_")[0] == key.name:
            return ServicePod(key)
    why = problem or f"the leader {holder.rpartition('_')[0]} is not among the ready pods"
    return ServicePod(
        ready[0], f"{ready[0]} answers, which may not lead: {why}; reasons of waiting pods may be missing"
    )


async def _holder(api: RemoteApi, namespace: str) -> tuple[str, str]:
    """Who holds the lease of the schedulers, or why that is not known."""
    try:
        lease = await api.get(LEASES, ObjectKey(namespace, _LEASE))
    except ApiError as error:
        return "", f"lease {namespace}/{_LEASE}: {error}"
    holder: Any = (lease.get("spec") or {}).get("holderIdentity")
    return (holder, "") if holder else ("", f"nobody holds the lease {namespace}/{_LEASE}")


def _is_ready(pod: RawObject) -> bool:
    conditions: Iterable[RawObject] = (pod.get("status") or {}).get("conditions") or ()
    is_ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    return is_ready and not pod["metadata"].get("deletionTimestamp")
