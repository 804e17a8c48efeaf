"""A connection that is dead without a word: noticed, and not taken for a cluster in which nothing happens."""

from http import HTTPStatus

import httpx

from extender.kube.resources import PODS
from tests.kit.controlplane.client import WAIT_SECONDS, Client, key_of
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.fleet import fleet
from tests.kit.controlplane.hurried import HURRIED
from tests.kit.controlplane.pair import pair
from tests.kit.controlplane.proxy import WATCH
from tests.kit.controlplane.scenario import add_pod, bound, findings, rejection
from tests.kit.objects.manifests import is_bound, pod
from tests.kit.waiting import wait_for_answer


async def readiness(url: str, status: HTTPStatus) -> str:
    """What /readyz says, once it has this status."""
    async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
        answer = await wait_for_answer(
            lambda: http.get("/readyz"), lambda answer: answer.status_code == status, "/readyz", within=WAIT_SECONDS
        )
    return answer.text


async def test_watches_fall_silent(client: Client, plane: ControlPlane, namespace: str) -> None:
    async with fleet(client, nodes=1, devices=2), pair(client, plane, serve=HURRIED) as ours:
        await bound(client, key_of(await add_pod(client, namespace, "before")))
        async with ours.proxy.silence(WATCH):
            assert "nothing heard for more than" in await readiness(ours.extender.url, HTTPStatus.SERVICE_UNAVAILABLE)
            late = await add_pod(client, namespace, "late")
            plain = await client.create(PODS, pod(namespace, "plain"))
            assert await rejection(client, key_of(late), about="not ready: ")
            assert await bound(client, key_of(plain))
            assert not is_bound(await client.get(PODS, key_of(late)))
        await bound(client, key_of(late))
        assert await readiness(ours.extender.url, HTTPStatus.OK) == "ok\n"
        assert await findings(client, namespace) == []
