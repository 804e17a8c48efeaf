"""Callers in another network namespace, over TLS, with rights that a real API server gives and checks."""

import asyncio
import secrets
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
import pytest_asyncio
import yaml

from extender.client import AutoscalerClient, AutoscalerError
from extender.kube.api import ObjectKey
from extender.kube.certificates import SECONDS_BETWEEN_LOOKS
from extender.kube.resources import CLASSES, TEMPLATES, Resource
from tests.kit.certificates import Authority, Pair
from tests.kit.controlplane.client import NAMESPACES, Client, connect, key_of
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.service import API_RIGHTS, extender_with, grant_rights
from tests.kit.network import Network, NetworkError, other_network
from tests.kit.objects.manifests import namespace as a_namespace
from tests.kit.places import ROOT
from tests.kit.process import free_port
from tests.kit.waiting import wait_for_answer

(SERVICE,) = yaml.safe_load_all((ROOT / "deploy" / "api" / "service.yaml").read_text())
(PATCH,) = yaml.safe_load_all((ROOT / "deploy" / "api" / "deployment.yaml").read_text())
SCALE_UP = ("-m", "loadtest.autoscaler", "config/scale-up")
AUDIENCE = "dra-extender"
_T = TypeVar("_T")
BINDINGS = Resource("ClusterRoleBinding", "clusterrolebindings", "rbac.authorization.k8s.io", ("v1",), namespaced=False)
ACCOUNTS = Resource("ServiceAccount", "serviceaccounts", "", ("v1",), namespaced=True)
EXAMPLE: Mapping[str, Resource] = {
    "DeviceClass": CLASSES,
    "ResourceClaimTemplate": TEMPLATES,
}

pytestmark = pytest.mark.asyncio(loop_scope="module")


def service_port() -> int:
    """The port of the Service, which is that of the pod: nothing here translates ports as kube-proxy does."""
    (port,) = SERVICE["spec"]["ports"]
    _, container = PATCH["spec"]["template"]["spec"]["initContainers"]
    (target,) = (each["containerPort"] for each in container["ports"] if each["name"] == port["targetPort"])
    assert port["port"] == target
    return int(target)


@dataclass(frozen=True, slots=True)
class Site:
    """An extender that has a port for callers off the node.

    Attributes:
        loopback: where its scheduler would call it.
        folder: of its certificates, which follow ``authority``.
        log: of the extender.
    """

    client: Client
    network: Network
    loopback: str
    folder: Path
    log: Path
    authority: Authority

    @property
    def url(self) -> str:
        """Where callers off the node find it."""
        return f"https://{self.network.host}:{service_port()}"

    def http(
        self, token: str = "", certificate: Pair | None = None, authority: Authority | None = None
    ) -> httpx.Client:
        """A caller; its sockets are of the thread that uses it."""
        context = ssl.create_default_context(cadata=(authority or self.authority).pem.decode())
        if certificate is not None:
            context.load_cert_chain(*certificate.write(self.folder, f"client-{secrets.token_hex(4)}"))
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, verify=context, headers=headers, trust_env=False, timeout=30)

    async def ask(self, method: str, path: str, **caller: Any) -> httpx.Response:
        """One request from the other network."""
        return await self.there(lambda: self._ask(method, path, **caller))

    async def there(self, work: Callable[[], _T]) -> _T:
        """Do something in the other network."""
        return await asyncio.to_thread(self.network.call, work)

    def _ask(self, method: str, path: str, **caller: Any) -> httpx.Response:
        with self.http(**caller) as http:
            return http.request(method, path)


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    try:
        with other_network() as found:
            yield found
    except NetworkError as error:
        pytest.fail(f"there can be no caller in another network namespace: {error}", pytrace=False)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(plane: ControlPlane, network: Network, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder, authority = tmp_path_factory.mktemp("tls"), Authority("site")
    authority.server(network.host).write(folder)
    (folder / "ca.crt").write_bytes(authority.pem)
    port = free_port()
    api = {
        "host": network.host,
        "port": service_port(),
        "certificate": str(folder / "tls.crt"),
        "key": str(folder / "tls.key"),
        "clientCa": str(folder / "ca.crt"),
        "audience": AUDIENCE,
    }
    settings = {
        "server": {"port": port},
        "api": api,
        "autoscaler": {"nodeTemplates": str(ROOT / "config" / "node-templates.yaml")},
    }
    async with connect(plane.access()) as client, AsyncExitStack() as stack:
        await grant_rights(client)
        await grant_rights(client, API_RIGHTS)
        await stack.enter_async_context(_example(client))
        extender = await stack.enter_async_context(extender_with(plane, settings))
        yield Site(client, network, f"http://127.0.0.1:{port}", folder, extender.process.log, authority)


@asynccontextmanager
async def _example(client: Client) -> AsyncIterator[None]:
    """The classes and the claim templates of the example: its autoscaler asks about new nodes only."""
    await client.create(NAMESPACES, a_namespace("demo"))
    documents = [
        each
        for file in sorted((ROOT / "config" / "example").rglob("*.yaml"))
        for each in yaml.safe_load_all(file.read_text())
        if each
    ]
    made = [each for each in documents if each["kind"] in EXAMPLE and key_of(each).namespace in {"", "demo"}]
    for each in made:
        await client.create(EXAMPLE[each["kind"]], each)
    yield
    for each in made:
        await client.delete(EXAMPLE[each["kind"]], key_of(each))
    await client.delete(NAMESPACES, ObjectKey("", "demo"))


@pytest_asyncio.fixture(loop_scope="module")
async def account(site: Site, namespace: str) -> AsyncIterator[str]:
    """A service account without rights."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "caller", "namespace": namespace}}
    await site.client.create(ACCOUNTS, account)
    yield f"{namespace}/caller"


async def token_of(client: Client, account: str, audience: str = AUDIENCE) -> str:
    namespace, name = account.split("/")
    requests = Resource("TokenRequest", f"serviceaccounts/{name}/token", "", ("v1",), namespaced=True)
    wanted = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {"namespace": namespace},
        "spec": {"audiences": [audience]},
    }
    return str((await client.create(requests, wanted))["status"]["token"])


@asynccontextmanager
async def allowed(client: Client, role: str, subject: Mapping[str, str]) -> AsyncIterator[None]:
    """Within, somebody has one of the roles that we ship."""
    name = f"test-{secrets.token_hex(4)}"
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [dict(subject)],
    }
    await client.create(BINDINGS, binding)
    yield
    await client.delete(BINDINGS, ObjectKey("", name))


def service_account(account: str) -> Mapping[str, str]:
    namespace, name = account.split("/")
    return {"kind": "ServiceAccount", "namespace": namespace, "name": name}


async def run(*command: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    return process.returncode, output.decode()


async def test_a_caller_with_a_token_and_the_role_gets_the_plan_that_loopback_gets(site: Site, account: str) -> None:
    token = site.folder / "token"
    token.write_text(await token_of(site.client, account))
    options = ("--url", site.url, "--ca-file", str(site.folder / "ca.crt"), "--token-file", str(token))
    async with allowed(site.client, "dra-extender-autoscaler", service_account(account)):
        there = await run(*site.network.command(sys.executable, *SCALE_UP, *options))
    here = await run(sys.executable, *SCALE_UP, "--url", site.loopback)
    assert there == here
    status, text = there
    assert (status, "demo/finetune-1    new falcon 1" in text) == (0, True), text


async def test_loopback_is_not_reached_from_there(site: Site) -> None:
    port = int(site.loopback.rpartition(":")[2])

    def refused() -> None:
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"http://{site.network.host}:{port}/", trust_env=False)

    await site.there(refused)


async def test_without_a_token_or_with_a_wrong_one_nobody_comes_in(site: Site, account: str) -> None:
    for token in ("", "nonsense", await token_of(site.client, account, "https://kubernetes.default.svc")):
        reply = await site.ask("POST", "/autoscaler/start", token=token)
        assert (reply.status_code, reply.json()["reason"]) == (401, "Unauthorized"), reply.text


async def test_with_another_role_the_verbs_of_autoscalers_are_forbidden(site: Site, account: str) -> None:
    token = await token_of(site.client, account)
    async with allowed(site.client, "dra-extender-viewer", service_account(account)):
        assert (await site.ask("GET", "/devices", token=token)).status_code == 200
        reply = await site.ask("POST", "/autoscaler/start", token=token)
        user = f"system:serviceaccount:{account.replace('/', ':')}"
        assert (reply.status_code, reply.json()["message"]) == (
            403,
            f'user "{user}" may not post path "/autoscaler/start"',
        )

        def start() -> None:
            with AutoscalerClient(site.http(token)) as client:
                client.start()

        with pytest.raises(AutoscalerError, match="may not post path") as caught:
            await site.there(start)
        assert caught.value.code == "Forbidden"


async def test_a_right_that_is_given_and_taken_counts_within_seconds(site: Site, account: str) -> None:
    token = await token_of(site.client, account)

    async def status() -> int:
        return (await site.ask("GET", "/pools", token=token)).status_code

    assert await status() == 403
    async with allowed(site.client, "dra-extender-viewer", service_account(account)):
        await wait_for_answer(status, lambda found: found == 200, "the right counts", within=10)
    await wait_for_answer(status, lambda found: found == 403, "the right is gone", within=20)


async def test_a_certificate_is_a_user_in_groups(site: Site) -> None:
    ann = site.authority.client("ann", ["dashboards"])
    assert (await site.ask("GET", "/devices", certificate=ann)).status_code == 403
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "dashboards"}
    async with allowed(site.client, "dra-extender-viewer", group):
        other = site.authority.client("bob", ["dashboards"])
        assert (await site.ask("GET", "/devices", certificate=other)).status_code == 200


@pytest.mark.parametrize("kind", ["expired", "of another authority"])
async def test_a_wrong_certificate_is_refused_and_the_log_says_why(site: Site, kind: str) -> None:
    expired = kind == "expired"
    authority = site.authority if expired else Authority("another")
    certificate = authority.client("ann", ["system:masters"], ends=-10.0 if expired else 3600.0)

    async def logged() -> str:
        with pytest.raises(httpx.TransportError):
            await site.ask("GET", "/devices", certificate=certificate)
        return site.log.read_text()

    reason = "certificate has expired" if expired else "unable to get local issuer certificate"
    await wait_for_answer(logged, lambda text: reason in text, "the log says why", within=10)


async def test_a_certificate_is_rotated_without_a_restart_and_connections_stay(site: Site, account: str) -> None:
    """The callers trust only the new authority, or only the old one."""
    token = await token_of(site.client, account)
    new = Authority("new")
    async with allowed(site.client, "dra-extender-viewer", service_account(account)):
        kept = site.http(token)
        assert (await site.there(lambda: kept.get("/devices"))).status_code == 200
        new.server(site.network.host).write(site.folder)

        async def answered() -> bool:
            await site.there(lambda: kept.get("/devices"))  # a connection that rests for 5 s is closed
            try:
                return (await site.ask("GET", "/devices", token=token, authority=new)).status_code == 200
            except httpx.ConnectError:
                return False

        within = 3 * SECONDS_BETWEEN_LOOKS
        await wait_for_answer(answered, bool, "the new certificate is shown", within=within)
        with pytest.raises(httpx.ConnectError):
            await site.ask("GET", "/devices", token=token)
        # This connection was made before: a new one would not be trusted.
        assert (await site.there(lambda: kept.get("/devices"))).status_code == 200
        kept.close()
    site.authority.server(site.network.host).write(site.folder)
