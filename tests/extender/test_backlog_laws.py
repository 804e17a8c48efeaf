"""Controllers that look only at what a change concerns do what controllers that look at everything do."""

from contextlib import suppress
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from extender.fakekube.api import MemoryApi
from extender.fakekube.backlog import Backlog
from extender.fakekube.controllers import Controller
from extender.kube.api import CLAIMS, PODS, TEMPLATES, ApiError, ObjectKey, RawObject
from extender.kube.claim_rules import FINALIZER
from tests.kit.clusters import claim, claim_template, pod
from tests.kit.servers.memory import memory_api

NAMES: Final = ("a", "b")


def using(name: str, kind: str) -> RawObject:
    raw = pod(name)
    del raw["metadata"]["uid"]
    source = {"resourceClaimName": "shared"} if kind == "by name" else {"resourceClaimTemplateName": "gpu"}
    raw["spec"]["resourceClaims"] = [{"name": "gpu", **source}]
    return raw


class History:
    """What users and schedulers do; each step may be refused."""

    def __init__(self, api: MemoryApi) -> None:
        self.api = api

    async def create_pod(self, name: str, kind: str) -> None:
        await self.api.create(PODS, using(name, kind))

    async def create_template(self, _name: str, _kind: str) -> None:
        await self.api.create(TEMPLATES, claim_template())

    async def delete_template(self, _name: str, _kind: str) -> None:
        await self.api.delete(TEMPLATES, ObjectKey("ns", "gpu"))

    async def finish_pod(self, name: str, _kind: str) -> None:
        await self.api.patch_status(PODS, ObjectKey("ns", name), {"status": {"phase": "Succeeded"}})

    async def delete_pod(self, name: str, _kind: str) -> None:
        await self.api.delete(PODS, ObjectKey("ns", name))

    async def forget_claims(self, name: str, _kind: str) -> None:
        patch: RawObject = {"status": {"resourceClaimStatuses": None}}
        await self.api.patch_status(PODS, ObjectKey("ns", name), patch)

    async def reserve(self, name: str, kind: str) -> None:
        found = await self.api.get(PODS, ObjectKey("ns", name))
        key = ObjectKey("ns", await self._claim_of(found, kind))
        allocation = claim("x", allocated=["n/gpu-0"])["status"]["allocation"]
        made = await self.api.get(CLAIMS, key)
        made = await self.api.update(CLAIMS, {**made, "metadata": {**made["metadata"], "finalizers": [FINALIZER]}})
        consumers = [*made.get("status", {}).get("reservedFor", []), _consumer(found)]
        await self.api.update_status(CLAIMS, {**made, "status": {"allocation": allocation, "reservedFor": consumers}})

    async def delete_claim(self, name: str, kind: str) -> None:
        found = await self.api.get(PODS, ObjectKey("ns", name))
        await self.api.delete(CLAIMS, ObjectKey("ns", await self._claim_of(found, kind)))

    async def _claim_of(self, found: RawObject, kind: str) -> str:
        if kind == "by name":
            return "shared"
        statuses = found["status"].get("resourceClaimStatuses") or [{}]
        return str(statuses[0].get("resourceClaimName", ""))


def _consumer(found: RawObject) -> RawObject:
    return {"resource": "pods", "name": found["metadata"]["name"], "uid": found["metadata"]["uid"]}


STEPS: Final = (
    History.create_pod,
    History.create_template,
    History.delete_template,
    History.finish_pod,
    History.delete_pod,
    History.forget_claims,
    History.reserve,
    History.delete_claim,
)
MOVES = st.tuples(st.sampled_from(STEPS), st.sampled_from(NAMES), st.sampled_from(("by name", "from a template")))


async def everything(api: MemoryApi) -> list[Any]:
    return [(await api.list(resource)).items for resource in (PODS, CLAIMS)]


@given(moves=st.lists(st.tuples(MOVES, st.booleans()), min_size=5, max_size=30))
async def test_after_the_backlog_is_worked_off_a_look_at_everything_changes_nothing(moves: list[Any]) -> None:
    api = memory_api(claim("shared"))
    backlog, history = Backlog(), History(api)
    api.follow(backlog)
    for (step, name, kind), is_settled in [*moves, ((History.create_template, "a", ""), True)]:
        with suppress(ApiError):
            await step(history, name, kind)
        if is_settled:
            while backlog.waiting.is_set():
                await Controller(api).work_off(backlog)
            before = await everything(api)
            await Controller(api).reconcile()
            assert await everything(api) == before
