"""Writes what a pod takes of its node by its claims into the pod's status (KEP-5517).

kube-scheduler counts it with what the containers request, and kubelet gives it to the containers. The API server keeps
the field if a patch leaves it out, so an empty list removes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from extender.cluster.objects.pods import Pod
from extender.cluster.resources import ClaimResources
from extender.kube.api import Api, RawObject
from extender.kube.errors import ApiError, WriteRefusedError
from extender.kube.resources import PODS
from extender.writes.pods.patches import patch_status, pod_of

_FIELD = "nodeAllocatableResourceClaimStatuses"


@dataclass(frozen=True, slots=True)
class NodeResources:
    """Writes to one API server."""

    api: Api

    async def tell(self, pod: Pod, resources: Sequence[ClaimResources]) -> Pod:
        """Write what a pod takes by its claims; returns the pod after the write.

        Raises:
            WriteRefusedError: it is not written, or the API server has dropped the field.
            OutcomeUnknownError: it may be written.
        """
        try:
            told = pod_of(await self.api.patch_status(PODS, pod.key, _patch(pod, resources)))
        except ApiError as error:
            raise WriteRefusedError(f"pod {pod.key}: {error}") from error
        if told.resources.claims != tuple(resources):
            dropped = f"status.{_FIELD} (feature gate DRANodeAllocatableResources)"
            raise WriteRefusedError(f"the API server dropped {dropped} of pod {pod.key}")
        return told

    async def withdraw(self, pod: Pod) -> None:
        """Remove what a pod takes by its claims, unless the pod is bound.

        Raises:
            WriteRefusedError, OutcomeUnknownError: it may still be there.
        """

        def patch(_raw: RawObject, now: Pod) -> RawObject | None:
            if now.uid != pod.uid or now.node_name or not now.resources.claims:
                return None
            return _patch(now, (), now.resource_version)

        await patch_status(self.api, pod.key, patch)


def _patch(pod: Pod, resources: Sequence[ClaimResources], version: str = "") -> RawObject:
    """A patch of the pod's status; with a version, it is refused if the pod has changed."""
    preconditions = {"uid": pod.uid} | ({"resourceVersion": version} if version else {})
    return {"metadata": preconditions, "status": {_FIELD: [each.as_json() for each in resources]}}
