"""The controllers of a cluster in memory: one pass at a time, on request.

Source: the resource claim controller of kube-controller-manager (Kubernetes 1.36).
"""

import contextlib
import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from extender.fakekube.backlog import Backlog, owner_of
from extender.faults import Faults
from extender.kube.api import CLAIMS, EVENTS, PODS, TEMPLATES, Api, ApiError, ObjectKey, RawObject
from extender.kube.claim_rules import CREATION_FAILED, FINALIZER
from extender.kube.raw import key_of
from extender.state.objects import POD_CLAIM_NAME

"""Annotation of a claim from a template: its name in ``spec.resourceClaims`` of the pod."""


@dataclass(frozen=True, slots=True)
class Controller:
    """Creates claims from templates; releases and deletes claims of pods that are finished or gone."""

    api: Api
    faults: Faults = field(default_factory=Faults)

    async def reconcile(self) -> None:
        """Do all that is to be done now. Raises ApiError: something was refused; all else has been done."""
        backlog = Backlog()
        for resource in (PODS, CLAIMS):
            listing = await self.api.list(resource)
            backlog.replace(resource, listing.items, listing.revision)
        await self.work_off(backlog)

    async def work_off(self, backlog: Backlog) -> None:
        """Do what a backlog holds. Raises ApiError: something was refused; all else has been done."""
        refused: list[ApiError] = []
        pods, claims = backlog.take()
        for pod in pods:
            with self.faults.of(f"pod {key_of(pod)}"):
                try:
                    await self._make_claims(pod, backlog.claims_of(pod))
                except ApiError as error:
                    refused.append(error)
        for claim in claims:
            with self.faults.of(f"claim {key_of(claim)}"):
                try:
                    await self._release(claim, backlog.running)
                except ApiError as error:
                    refused.append(error)
        if refused:
            raise refused[0]

    async def _make_claims(self, pod: RawObject, claims: Iterable[RawObject]) -> None:
        """Create the missing claims of a pod from templates, and name them in its status."""
        owned = {_annotation(claim): claim for claim in claims if owner_of(claim) == pod["metadata"]["uid"]}
        known = list(pod.get("status", {}).get("resourceClaimStatuses") or [])
        names = {entry["name"] for entry in known}
        added = []
        for reference in pod["spec"].get("resourceClaims") or []:
            if reference["name"] in names or "resourceClaimTemplateName" not in reference:
                continue
            claim = owned.get(reference["name"]) or await self._make(pod, reference)
            if claim is not None:
                added.append({"name": reference["name"], "resourceClaimName": claim["metadata"]["name"]})
        if added:
            statuses = sorted((*known, *added), key=lambda entry: entry["name"])
            await self.api.patch_status(PODS, key_of(pod), {"status": {"resourceClaimStatuses": statuses}})

    async def _make(self, pod: RawObject, reference: RawObject) -> RawObject | None:
        """The claim for an entry of a pod; None without its template. A refusal becomes an Event on the pod."""
        key = ObjectKey(pod["metadata"]["namespace"], reference["resourceClaimTemplateName"])
        try:
            template = await self.api.get(TEMPLATES, key)
        except ApiError as error:
            if error.is_missing:
                return None
            raise
        try:
            return await self.api.create(CLAIMS, claim_from(template, pod, reference["name"]))
        except ApiError as error:
            with contextlib.suppress(ApiError):  # The Event of an earlier try exists.
                await self.api.create(EVENTS, _event(pod, reference["name"], error))
            raise

    async def _release(self, claim: RawObject, running: Collection[str]) -> None:
        """Remove consumers that no longer run; without any, deallocate; without its pod, delete the claim.

        Only the owner of a consumer that is no pod knows when it ends.
        """
        consumers = claim.get("status", {}).get("reservedFor") or []
        left = [consumer for consumer in consumers if not _is_pod(consumer) or consumer["uid"] in running]
        if len(left) < len(consumers) or (not left and "deletionTimestamp" in claim["metadata"]):
            claim = await self._drop(claim, left)
        owner = owner_of(claim)
        if owner and owner not in running and not left and "deletionTimestamp" not in claim["metadata"]:
            await self.api.delete(CLAIMS, key_of(claim), uid=claim["metadata"]["uid"])

    async def _drop(self, claim: RawObject, left: list[RawObject]) -> RawObject:
        """Keep only some consumers. With the last one, an allocation by a scheduler (it has the finalizer) ends."""
        frees = not left and FINALIZER in claim["metadata"].get("finalizers", [])
        dropped = {"allocation", "devices"} if frees else set()
        kept = {name: value for name, value in claim.get("status", {}).items() if name not in dropped}
        claim = await self.api.update_status(CLAIMS, {**claim, "status": {**kept, "reservedFor": left}})
        return await self._unprotect(claim) if frees else claim

    async def _unprotect(self, claim: RawObject) -> RawObject:
        metadata = claim["metadata"]
        others = [name for name in metadata.get("finalizers", []) if name != FINALIZER]
        return await self.api.update(CLAIMS, {**claim, "metadata": {**metadata, "finalizers": others}})


def claim_from(template: RawObject, pod: RawObject, name: str) -> RawObject:
    """The claim to create for an entry of a pod's ``spec.resourceClaims``."""
    of_pod, spec = pod["metadata"], template["spec"]
    wanted = spec.get("metadata") or {}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": of_pod["name"], "uid": of_pod["uid"]}
    return {
        "apiVersion": template["apiVersion"],
        "kind": CLAIMS.kind,
        "metadata": {
            "generateName": f"{of_pod['name']}-{name}-",
            "namespace": of_pod["namespace"],
            "labels": wanted.get("labels") or {},
            "annotations": {**(wanted.get("annotations") or {}), POD_CLAIM_NAME: name},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": spec["spec"],
    }


def _event(pod: RawObject, entry: str, error: ApiError) -> RawObject:
    """The Event on a pod with a claim that is refused."""
    of_pod = pod["metadata"]
    identity = hashlib.sha256(f"{of_pod['uid']} {entry}".encode()).hexdigest()[:16]
    regarding = {"apiVersion": "v1", "kind": "Pod", **{name: of_pod[name] for name in ("namespace", "name", "uid")}}
    return {
        "apiVersion": EVENTS.api_versions()[0],
        "kind": EVENTS.kind,
        "metadata": {"namespace": of_pod["namespace"], "name": f"{of_pod['name']}.{identity}"},
        "type": "Warning",
        "reason": CREATION_FAILED,
        "regarding": regarding,
        "note": f"PodResourceClaim {entry}: create ResourceClaim: {error}",
    }


def _is_pod(consumer: RawObject) -> bool:
    return not consumer.get("apiGroup") and consumer["resource"] == PODS.plural


def _annotation(claim: RawObject) -> str:
    annotations: Mapping[str, str] = claim["metadata"].get("annotations") or {}
    return annotations.get(POD_CLAIM_NAME, "")
