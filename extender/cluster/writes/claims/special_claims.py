"""Writes of special claims (KEP-5004): each is created once, and named in the pod's status until its bind is undone.

The name of a special claim depends on the pod and the requests only. So after a POST with unknown outcome, a second
POST finds the claim of the first.
"""

from dataclasses import dataclass, replace

from allocator import InvalidObjectError
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.claims import ClaimObject, parse_claim_object
from extender.cluster.objects.pods import ExtendedClaim, Pod
from extender.cluster.writes.claims.claim_json import Reservation
from extender.cluster.writes.pods.patches import ATTEMPTS, patch_status, pod_of
from extender.kube.api import Api, RawObject
from extender.kube.encoding import loads
from extender.kube.errors import ApiError, OutcomeUnknownError, OverQuotaError, WriteRefusedError
from extender.kube.resources import CLAIMS, PODS


@dataclass(frozen=True, slots=True)
class SpecialClaims:
    """Creates special claims, and tells the state for which uid their allocation is assumed."""

    api: Api
    state: ClusterState

    async def make(self, reservation: Reservation) -> Reservation:
        """Create the claim of a reservation, unless it exists.

        Returns:
            The reservation with the claim of the API server; the allocation is assumed for the claim's uid.

        Raises:
            WriteRefusedError: it is not created, or the name is taken; the allocation is no longer assumed.
            OverQuotaError: it is not created because of a quota; likewise.
        """
        wanted = reservation.claim
        try:
            made = await self._made(wanted)
        except WriteRefusedError:
            self.state.forget(reservation.uid)
            raise
        self.state.assume(made.claim.uid, reservation.allocation, reservation.pod.uid, made.claim.spec)
        self.state.forget(reservation.uid)
        return replace(reservation, claim=made)

    async def withdraw(self, reservation: Reservation) -> None:
        """Remove the special claim from the status of its pod, if the pod is not bound and names this claim.

        An API server since Kubernetes 1.37 keeps the name. The next bind of the pod makes a claim of this name again.

        Raises:
            WriteRefusedError, OutcomeUnknownError: the pod may still name it.
        """
        pod, name = reservation.pod, reservation.claim.claim.name

        def patch(_raw: RawObject, now: Pod) -> RawObject | None:
            is_named = now.extended_claim is not None and now.extended_claim.claim_name == name
            if now.uid != pod.uid or now.node_name or not is_named:
                return None
            return _status_patch(now, None, now.resource_version)

        await patch_status(self.api, pod.key, patch)

    async def tell(self, pod: Pod, status: ExtendedClaim | None) -> Pod:
        """Write a pod's special claim into its status (None: no claim); returns the pod after the write.

        Raises:
            WriteRefusedError: it is not written, or the API server has dropped the field, or keeps it: since Kubernetes
                1.37, the field can be replaced and not be removed.
            OutcomeUnknownError: it may be written.
        """
        try:
            told = pod_of(await self.api.patch_status(PODS, pod.key, _status_patch(pod, status)))
        except ApiError as error:
            raise WriteRefusedError(f"pod {pod.key}: {error}") from error
        if status is None and told.extended_claim is not None:
            keeps = f"the API server keeps status.extendedResourceClaimStatus of pod {pod.key}"
            claim = told.extended_claim.claim_name
            raise WriteRefusedError(f"{keeps}: kubelet would look for claim {claim}; make the pod again")
        if told.extended_claim != status:
            dropped = "status.extendedResourceClaimStatus (feature gate DRAExtendedResource)"
            raise WriteRefusedError(f"the API server dropped {dropped} of pod {pod.key}")
        return told

    async def _made(self, wanted: ClaimObject) -> ClaimObject:
        obj = _versioned(loads(wanted.raw), self.api.api_version(CLAIMS))
        unknown: Exception | None = None
        for _ in range(ATTEMPTS):
            try:
                return parse_claim_object(await self.api.create(CLAIMS, obj))
            except (OutcomeUnknownError, InvalidObjectError) as error:
                unknown = error
            except ApiError as error:
                if error.is_over_quota:
                    raise OverQuotaError(f"claim {wanted.key} is not made: {error}") from error
                if error.reason != "AlreadyExists":
                    raise WriteRefusedError(f"claim {wanted.key}: {error}") from error
                return await self._found(wanted)
        # A claim that appears later has no allocation: the pod's next bind uses it, or orphan collection deletes it.
        raise WriteRefusedError(f"claim {wanted.key} is not made: {unknown}")

    async def _found(self, wanted: ClaimObject) -> ClaimObject:
        """The existing claim of that name, if it is ours."""
        try:
            found = parse_claim_object(await self.api.get(CLAIMS, wanted.key))
        except (ApiError, OutcomeUnknownError, InvalidObjectError) as error:
            raise WriteRefusedError(f"claim {wanted.key}: {error}") from error
        if found.special_of != wanted.special_of or found.claim.spec != wanted.claim.spec:
            raise WriteRefusedError(f"claim {wanted.key} exists, and is not for the pod's extended resources")
        if found.claim.deleting:
            raise WriteRefusedError(f"claim {wanted.key} is being deleted")
        return found


def _status_patch(pod: Pod, status: ExtendedClaim | None, version: str = "") -> RawObject:
    """A patch of the pod's status; with a version, it is refused if the pod has changed."""
    field = None if status is None else status.as_json()
    preconditions = {"uid": pod.uid} | ({"resourceVersion": version} if version else {})
    return {"metadata": preconditions, "status": {"extendedResourceClaimStatus": field}}


def _versioned(obj: RawObject, api_version: str) -> RawObject:
    """A claim of v1 in another version: v1beta1 has the fields of ``exactly`` in the request itself."""
    spec = obj["spec"]
    if api_version.endswith("/v1beta1"):
        requests = [{"name": each["name"], **each["exactly"]} for each in spec["devices"]["requests"]]
        spec = {"devices": {"requests": requests}}
    return {"apiVersion": api_version, "kind": CLAIMS.kind, **obj, "spec": spec}
