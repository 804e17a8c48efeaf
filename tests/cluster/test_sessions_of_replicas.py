"""Sessions of an autoscaler at two replicas: each replica answers, until the one that has the session is killed."""

import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import pytest
import yaml

from extender.client import AsyncAutoscalerClient, AsyncSession, UnknownSessionError
from extender.kube.api import ObjectKey
from extender.kube.resources import PODS, Resource
from tests.kit.certificates import Authority, trusting
from tests.kit.controlplane.access import ADMIN, EXTENDER
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.service import Extender, grant_rights, running_extender
from tests.kit.objects.manifests import pod
from tests.kit.process import free_port

NAMESPACE: Final = "kube-system"
SERVICE: Final = "dra-extender-api.kube-system.svc"
REPLICAS: Final = {"replica-one": "127.0.0.2", "replica-two": "127.0.0.3"}
RBAC: Final = "rbac.authorization.k8s.io"
ROLES: Final = Resource("ClusterRole", "clusterroles", RBAC, ("v1",), namespaced=False)
BINDINGS: Final = Resource("ClusterRoleBinding", "clusterrolebindings", RBAC, ("v1",), namespaced=False)
RIGHTS: Final = (
    {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
    {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    {"nonResourceURLs": ["/autoscaler/*"], "verbs": ["post"]},
)
NODE: Final = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "made-up"}}


@dataclass(frozen=True, slots=True)
class Replica:
    """A process, and a client of its listener for callers off the node."""

    extender: Extender
    http: httpx.AsyncClient

    def session(self, session_id: str | None) -> AsyncSession:
        """The session, asked about here."""
        return AsyncSession(self.http, session_id)


@asynccontextmanager
async def _rights(client: Client) -> AsyncIterator[None]:
    """Replicas may review tokens, and call each other."""
    await grant_rights(client)
    name = "sessions-of-replicas"
    await client.create(ROLES, {"metadata": {"name": name}, "rules": list(RIGHTS)})
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
    subjects = [{"apiGroup": RBAC, "kind": "User", "name": EXTENDER}]
    await client.create(BINDINGS, {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects})
    yield
    await client.delete(BINDINGS, ObjectKey("", name))
    await client.delete(ROLES, ObjectKey("", name))


@pytest.fixture
async def replicas(client: Client, plane: ControlPlane, tmp_path: Path) -> AsyncIterator[list[Replica]]:
    """Two processes of the service, each with a pod that says where it is."""
    authority, port = Authority(), free_port()
    certificate, key = authority.server(SERVICE, *REPLICAS.values()).write(tmp_path)
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    (tmp_path / "token").write_text(plane.tokens[EXTENDER])
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(_rights(client))
        found = []
        for name, address in REPLICAS.items():
            await stack.enter_async_context(_pod(client, name, address))
            settings = {
                "api": {"host": address, "port": port, "certificate": str(certificate), "key": str(key)},
                "peers": {
                    "pod": f"{NAMESPACE}/{name}",
                    "serverName": SERVICE,
                    "ca": str(tmp_path / "ca.crt"),
                    "token": str(tmp_path / "token"),
                },
            }
            file = tmp_path / f"{name}.yaml"
            file.write_text(yaml.safe_dump(settings))
            serve = (sys.executable, "-m", "extender", "serve", "--config", str(file))
            extender = await stack.enter_async_context(running_extender(plane, serve=serve))
            http = httpx.AsyncClient(
                base_url=f"https://{address}:{port}",
                headers={"Authorization": f"Bearer {plane.tokens[ADMIN]}"},
                verify=trusting(authority),
                timeout=30.0,
            )
            found.append(Replica(extender, await stack.enter_async_context(http)))
        yield found
        for each in found:
            # How they end when they are asked to is not what this is about.
            each.extender.process.kill()


@asynccontextmanager
async def _pod(client: Client, name: str, address: str) -> AsyncIterator[None]:
    obj = pod(NAMESPACE, name, scheduler="nobody")
    obj["spec"]["serviceAccountName"] = "dra-extender"
    key = ObjectKey(NAMESPACE, name)
    await client.create(PODS, obj)
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    await client.patch_status(PODS, key, {"status": status})
    yield
    await client.delete(PODS, key)


async def test_each_replica_answers_until_the_one_that_has_the_session_is_killed(replicas: list[Replica]) -> None:
    one, two = replicas
    session = await AsyncAutoscalerClient(one.http).start()
    assert session.id is not None
    assert session.id.endswith("@replica-one")
    asked = pod("default", "plain")
    there = two.session(session.id)
    assert (await there.filter(asked, [NODE])).passed == ("made-up",)
    # The other replica's session has seen the node, and a call without the session has not.
    assert (await there.node_ready("made-up")).reason == "the node does not exist: it was made up in this session"
    assert (await two.session(None).node_ready("made-up")).reason == "node not yet known"

    one.extender.process.kill()
    began = time.monotonic()
    with pytest.raises(UnknownSessionError, match='replica "replica-one", which had it, does not answer'):
        await there.node_ready("made-up")
    assert time.monotonic() - began < 4, "a refused connection is not waited for"
    again = await AsyncAutoscalerClient(two.http).start()
    assert (await again.filter(asked, [NODE])).passed == ("made-up",)


async def test_a_pod_that_is_no_replica_gets_no_call(client: Client, replicas: list[Replica]) -> None:
    stranger = pod(NAMESPACE, "stranger", scheduler="nobody")
    stranger["spec"]["serviceAccountName"] = "another"
    await client.create(PODS, stranger)
    with pytest.raises(UnknownSessionError, match='replica "stranger", which had it, is gone'):
        await replicas[0].session("secret@stranger").node_ready("made-up")
    await client.delete(PODS, ObjectKey(NAMESPACE, "stranger"))
