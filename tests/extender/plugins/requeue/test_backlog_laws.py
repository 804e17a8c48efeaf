"""Controllers that look only at what a change concerns do what controllers that look at everything do."""

from contextlib import suppress
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.claim_rules import FINALIZER
from extender.kube.resources import CLAIMS, POD_GROUPS, PODS, TEMPLATES
from extender.lab.api import MemoryApi
from extender.lab.cluster import Backlog, ClaimController
from tests.extender.cluster.test_group_claims import team
from tests.kit.clusters import claim, claim_template, pod
from tests.kit.servers.memory import memory_api

NAMES: Final = ("a", "b")


ENTRY: Final = {"name": "gpu", "resourceClaimTemplateName": "gpu"}


def using(name: str, kind: str) -> RawObject:
    raw = pod(name)
    if kind == "of a group":
        raw["spec"]["schedulingGroup"] = {"podGroupName": "team"}
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

    async def create_group(self, _name: str, _kind: str) -> None:
        made = team(ENTRY)
        del made["metadata"]["uid"]
        await self.api.create(POD_GROUPS, made)

    async def delete_group(self, _name: str, _kind: str) -> None:
        await self.api.delete(POD_GROUPS, ObjectKey("ns", "team"))

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
        by = await self.api.get(POD_GROUPS, ObjectKey("ns", "team")) if kind == "of a group" else found
        consumers = [*made.get("status", {}).get("reservedFor", []), _consumer(by)]
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
    resource = (
        {"apiGroup": POD_GROUPS.group, "resource": "podgroups"} if found["kind"] == "PodGroup" else {"resource": "pods"}
    )
    return {**resource, "name": found["metadata"]["name"], "uid": found["metadata"]["uid"]}


STEPS: Final = (
    History.create_pod,
    History.create_group,
    History.delete_group,
    History.create_template,
    History.delete_template,
    History.finish_pod,
    History.delete_pod,
    History.forget_claims,
    History.reserve,
    History.delete_claim,
)
MOVES = st.tuples(
    st.sampled_from(STEPS), st.sampled_from(NAMES), st.sampled_from(("by name", "from a template", "of a group"))
)


async def everything(api: MemoryApi) -> list[Any]:
    return [(await api.list(resource)).items for resource in (PODS, POD_GROUPS, CLAIMS)]


@given(moves=st.lists(st.tuples(MOVES, st.booleans()), min_size=5, max_size=30))
async def test_after_the_backlog_is_worked_off_a_look_at_everything_changes_nothing(moves: list[Any]) -> None:
    api = memory_api(claim("shared"))
    controller = ClaimController(api, has_group_claims=True)
    backlog, history = Backlog(), History(api)
    api.follow(backlog)
    for (step, name, kind), is_settled in [*moves, ((History.create_template, "a", ""), True)]:
        with suppress(ApiError):
            await step(history, name, kind)
        if is_settled:
            while backlog.waiting.is_set():
                await controller.work_off(backlog)
            before = await everything(api)
            await controller.reconcile()
            assert await everything(api) == before
