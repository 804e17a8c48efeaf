"""Whatever befalls the bind of a pod with extended resources: there is one special claim, or none."""

from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest

from extender.cluster.writes.pods import ATTEMPTS
from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLASSES, PODS
from tests.kit.controlplane.client import WAIT_SECONDS, Client, key_of
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.extended import add_pod, box, mapped, special_claims
from tests.kit.controlplane.pair import Pair, pair
from tests.kit.controlplane.proxy import BINDING, CLAIM_STATUS, POD_STATUS, Exchange, Hold, cut_after, refuse
from tests.kit.controlplane.scenario import bound, findings
from tests.kit.waiting import wait_for_answer

ALL_CLAIMS = r".*/resourceclaims"


@pytest.fixture
def resource(namespace: str) -> str:
    """An extended resource of the test's own."""
    return f"{namespace}.example.com/gpu"


@pytest.fixture
async def ours(client: Client, plane: ControlPlane, nodes: list[str], resource: str) -> AsyncIterator[Pair]:
    """An extender behind a proxy; the class of the nodes' devices serves the resource."""
    assert nodes, "a scheduler without nodes asks nobody"
    await client.patch(CLASSES, ObjectKey("", "gpu.example.com"), {"spec": {"extendedResourceName": resource}})
    async with pair(client, plane) as running:
        yield running


class TestOnce:
    """There is one special claim, whatever befalls the bind."""

    @pytest.mark.parametrize(
        ("method", "target"),
        [("POST", ALL_CLAIMS), ("PUT", CLAIM_STATUS), ("PATCH", POD_STATUS), ("POST", BINDING)],
        ids=["made", "allocated", "told", "bound"],
    )
    async def test_killed_after_a_write(
        self, client: Client, namespace: str, ours: Pair, resource: str, method: str, target: str
    ) -> None:
        async def kill(exchange: Exchange) -> None:
            await exchange.forward()
            ours.kill()

        rule = ours.proxy.on(method, target, kill)
        await add_pod(client, namespace, "pod", box("main", **{resource: "1"}))
        await rule.followed()
        await ours.restart()
        await bound(client, ObjectKey(namespace, "pod"))
        made, _ = await mapped(client, ObjectKey(namespace, "pod"))
        assert [key_of(each) for each in await special_claims(client, namespace)] == [key_of(made)]
        assert await findings(client, namespace) == []

    async def test_a_reply_that_is_lost(self, client: Client, namespace: str, ours: Pair, resource: str) -> None:
        rule = ours.proxy.on("POST", ALL_CLAIMS, cut_after)
        await add_pod(client, namespace, "pod", box("main", **{resource: "1"}))
        await rule.followed()
        await bound(client, ObjectKey(namespace, "pod"))
        assert len(await special_claims(client, namespace)) == 1

    @pytest.mark.every_version
    async def test_a_pod_that_does_not_get_there_leaves_none(
        self, client: Client, namespace: str, ours: Pair, resource: str, kubernetes: str
    ) -> None:
        again = Hold()
        ours.proxy.on("POST", ALL_CLAIMS, again, nth=2)
        rule = ours.proxy.on("POST", BINDING, refuse(HTTPStatus.CONFLICT), times=ATTEMPTS)
        made = await add_pod(client, namespace, "pod", box("main", **{resource: "1"}))
        await rule.followed()
        await client.wait_for(PODS, key_of(made), _is_withdrawn if kubernetes == "1.36" else _is_released)
        gone = "the special claim is gone"
        await wait_for_answer(
            lambda: special_claims(client, namespace), lambda left: not left, gone, within=WAIT_SECONDS
        )
        await again.release()
        await bound(client, key_of(made))
        await mapped(client, key_of(made))
        assert await findings(client, namespace) == []


def _is_released(obj: RawObject | None) -> bool:
    """An API server since Kubernetes 1.37 keeps the name of the claim that is gone."""
    conditions = (obj or {}).get("status", {}).get("conditions", [])
    return any(each["type"] == "dra-extender/ClaimsReleased" for each in conditions)


def _is_withdrawn(obj: RawObject | None) -> bool:
    return _is_released(obj) and "extendedResourceClaimStatus" not in (obj or {}).get("status", {})
