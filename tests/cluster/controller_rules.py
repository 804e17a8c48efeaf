"""What the resource claim controller and the garbage collector do: for the real ones and for ours in memory."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from extender.kube.api import Api, ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS, TEMPLATES, Resource
from tests.kit.controlplane.client import Condition, key_of
from tests.kit.objects.manifests import allocation, claim, claim_spec, consumer, pod, template

PROTECTION: Final = "resource.kubernetes.io/delete-protection"

_FROM_TEMPLATE: Final = {"name": "gpu", "resourceClaimTemplateName": "template"}
_BY_NAME: Final = {"name": "gpu", "resourceClaimName": "claim"}
_OTHERS: Final = "none"
"""A scheduler that does not run: nobody else touches these pods."""


@dataclass(frozen=True, slots=True)
class World:
    """An API server with controllers.

    Attributes:
        settle: lets the controllers work until the condition holds of an object; the object then.
    """

    api: Api
    namespace: str
    settle: Callable[[Resource, ObjectKey, Condition], Awaitable[RawObject | None]]

    async def gone(self, obj: RawObject) -> None:
        """Let the controllers work until the claim is no more."""
        await self.settle(CLAIMS, key_of(obj), lambda found: found is None)

    async def claim(self, name: str, *finalizers: str, **status: Any) -> RawObject:
        """A claim made by a user, with a status."""
        new = claim(self.namespace, name)
        new["metadata"]["finalizers"] = list(finalizers)
        made = await self.api.create(CLAIMS, new)
        return await self.api.update_status(CLAIMS, {**made, "status": status}) if status else made

    async def pod(self, *claims: RawObject) -> RawObject:
        """A pending pod."""
        return await self.api.create(PODS, pod(self.namespace, "pod", claims=claims, scheduler=_OTHERS))

    async def pod_with_claim(self, *finalizers: str, others: Sequence[RawObject] = ()) -> tuple[RawObject, RawObject]:
        """A bound pod, and its claim as a scheduler leaves it: allocated and reserved, perhaps for others as well."""
        using = await self.pod(_BY_NAME)
        uid = using["metadata"]["uid"]
        reserved = [{"resource": "pods", "name": "pod", "uid": uid}, *others]
        held = await self.claim("claim", *finalizers, allocation=allocation("gpu-0"), reservedFor=reserved)
        await self.api.bind_pod(key_of(using), "node-0", uid=uid)
        return using, held

    async def generated(self, of_pod: RawObject) -> ObjectKey:
        """The claim that the controllers make from a template, as the pod's status names it."""

        def statuses(found: RawObject | None) -> Any:
            return (found or {}).get("status", {}).get("resourceClaimStatuses")

        [entry] = statuses(await self.settle(PODS, key_of(of_pod), statuses))
        assert entry["name"] == "gpu"
        return ObjectKey(self.namespace, entry["resourceClaimName"])


Scenario = Callable[[World], Awaitable[None]]


async def a_template_gives_a_claim_that_the_pod_names(world: World) -> None:
    await world.api.create(TEMPLATES, template(world.namespace, "template", claim_spec(count=2)))
    made = await world.pod(_FROM_TEMPLATE)
    found = await world.api.get(CLAIMS, await world.generated(made))
    metadata = found["metadata"]
    assert metadata["name"].startswith("pod-gpu-")
    assert metadata["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}
    assert [(owner["uid"], owner["controller"]) for owner in metadata["ownerReferences"]] == [
        (made["metadata"]["uid"], True)
    ]
    assert found["spec"] == claim_spec(count=2)
    assert not found.get("status"), "only schedulers allocate"


async def a_pod_may_come_before_its_template(world: World) -> None:
    made = await world.pod(_FROM_TEMPLATE)
    await world.api.create(TEMPLATES, template(world.namespace, "template"))
    assert await world.generated(made)


async def a_generated_claim_goes_with_its_pod(world: World) -> None:
    await world.api.create(TEMPLATES, template(world.namespace, "template"))
    made = await world.pod(_FROM_TEMPLATE)
    generated = await world.api.get(CLAIMS, await world.generated(made))
    await world.api.delete(PODS, key_of(made))
    await world.gone(generated)


async def a_claim_in_use_outlives_its_deletion(world: World) -> None:
    using, held = await world.pod_with_claim(PROTECTION)
    await world.api.delete(CLAIMS, key_of(held))
    marked = await world.settle(CLAIMS, key_of(held), lambda found: found and found["metadata"]["deletionTimestamp"])
    assert marked
    assert marked["status"] == held["status"]
    await world.api.delete(PODS, key_of(using))
    await world.gone(held)


async def a_claim_is_freed_when_its_last_pod_is_gone(world: World) -> None:
    using, held = await world.pod_with_claim(PROTECTION)
    await world.api.delete(PODS, key_of(using))
    freed = await world.settle(CLAIMS, key_of(held), lambda found: found and not found["metadata"].get("finalizers"))
    assert freed, "made by a user, it stays"
    assert not _in_use(freed)


async def a_claim_is_freed_when_its_last_pod_has_ended(world: World) -> None:
    using, held = await world.pod_with_claim(PROTECTION)
    await world.api.patch_status(PODS, key_of(using), {"status": {"phase": "Succeeded"}})
    assert await world.settle(CLAIMS, key_of(held), lambda found: found and not _in_use(found))


async def a_consumer_that_is_no_pod_keeps_the_claim(world: World) -> None:
    using, held = await world.pod_with_claim(PROTECTION, others=[consumer("experiment")])
    await world.api.delete(PODS, key_of(using))
    left = await world.settle(
        CLAIMS, key_of(held), lambda found: found and len(found["status"].get("reservedFor", ())) == 1
    )
    assert left
    assert left["status"] == {**held["status"], "reservedFor": [consumer("experiment")]}


async def a_claim_without_the_finalizer_loses_its_consumer_only(world: World) -> None:
    """The finalizer says that the allocation is a scheduler's: without it the controller clears no allocation."""
    using, held = await world.pod_with_claim()
    await world.api.delete(PODS, key_of(using))
    left = await world.settle(
        CLAIMS, key_of(held), lambda found: found and not found.get("status", {}).get("reservedFor")
    )
    assert left
    assert left["status"]["allocation"] == held["status"]["allocation"]


async def a_deleted_claim_without_consumers_is_freed_and_goes(world: World) -> None:
    held = await world.claim("claim", PROTECTION, allocation=allocation("gpu-0"))
    await world.api.delete(CLAIMS, key_of(held))
    await world.gone(held)


async def an_allocation_without_consumers_is_left_alone(world: World) -> None:
    """Nobody would ever free it: who takes a reservation back has to clear the allocation as well."""
    kept = await world.claim("kept", PROTECTION, allocation=allocation("gpu-1"))
    # What came before is settled once the controller has dealt with what came after.
    await a_claim_is_freed_when_its_last_pod_is_gone(world)
    assert await world.api.get(CLAIMS, key_of(kept)) == kept


SCENARIOS: Final[tuple[Scenario, ...]] = (
    a_template_gives_a_claim_that_the_pod_names,
    a_pod_may_come_before_its_template,
    a_generated_claim_goes_with_its_pod,
    a_claim_in_use_outlives_its_deletion,
    a_claim_is_freed_when_its_last_pod_is_gone,
    a_claim_is_freed_when_its_last_pod_has_ended,
    a_consumer_that_is_no_pod_keeps_the_claim,
    a_claim_without_the_finalizer_loses_its_consumer_only,
    a_deleted_claim_without_consumers_is_freed_and_goes,
    an_allocation_without_consumers_is_left_alone,
)


def _in_use(obj: RawObject) -> bool:
    status = obj.get("status") or {}
    return bool(status.get("allocation") or status.get("reservedFor"))
