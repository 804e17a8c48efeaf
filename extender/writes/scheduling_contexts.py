"""Writes of PodSchedulingContexts: their spec for a pod, and their status for a controller."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from extender.kube.api import CONTEXTS, PODS, Api, ApiError, ObjectKey, RawObject
from extender.state.scheduling_contexts import SchedulingContext, parse_scheduling_context


@dataclass(frozen=True, slots=True)
class ContextWrites:
    """Writes contexts. All methods raise `ApiError` and `OutcomeUnknownError`, as the API does."""

    api: Api

    async def create(self, key: ObjectKey, pod_uid: str, spec: RawObject) -> RawObject:
        """The context of a pod with this spec. A context of an earlier pod of that name is deleted first."""
        try:
            return await self.api.create(CONTEXTS, self._new(key, pod_uid, spec))
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
        found = parse_scheduling_context(await self.api.get(CONTEXTS, key))
        if found.pod_uid == pod_uid:
            return await self.merge(key, spec)
        await self.remove(found)
        return await self.api.create(CONTEXTS, self._new(key, pod_uid, spec))

    async def merge(self, key: ObjectKey, spec: Mapping[str, object]) -> RawObject:
        """Change fields of the spec; None removes one."""
        return await self.api.patch(CONTEXTS, key, {"spec": dict(spec)})

    async def remove(self, context: SchedulingContext) -> None:
        """Delete a context; refused if it has changed since it was read."""
        await self.api.delete(CONTEXTS, context.key, resource_version=str(context.revision))

    async def tell(self, context: SchedulingContext, unsuitable: Mapping[str, Sequence[str]]) -> None:
        """Write the answers of a controller, by the names of claims in the pod, beside those of other controllers."""
        raw = await self.api.get(CONTEXTS, context.key)
        if parse_scheduling_context(raw).pod_uid != context.pod_uid:
            return
        entries = {each["name"]: each for each in (raw.get("status") or {}).get("resourceClaims") or ()}
        entries |= {name: {"name": name, "unsuitableNodes": [*nodes]} for name, nodes in unsuitable.items()}
        await self.api.update_status(CONTEXTS, {**raw, "status": {"resourceClaims": list(entries.values())}})

    def _new(self, key: ObjectKey, pod_uid: str, spec: RawObject) -> RawObject:
        owner = {"apiVersion": "v1", "kind": PODS.kind, "name": key.name, "uid": pod_uid}
        metadata = {"name": key.name, "namespace": key.namespace, "ownerReferences": [owner]}
        version = self.api.api_version(CONTEXTS)
        return {"apiVersion": version, "kind": CONTEXTS.kind, "metadata": metadata, "spec": spec}
