"""Callers off the node: they ask each replica over TLS, with a token of their service account."""

import asyncio
import base64
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
import orjson

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import Resource
from tests.installed.site import ACCOUNTS, NAMESPACE, WORKLOAD, Site
from tests.kit.certificates import Authority
from tests.kit.waiting import pause

SECRET: Final = "dra-extender-api"  # noqa: S105 - its name
EXPANDER_SECRET: Final = "dra-extender-grpc"  # noqa: S105 - its name
SECRETS: Final = Resource("Secret", "secrets", "", ("v1",), namespaced=True)
BINDINGS: Final = Resource(
    "ClusterRoleBinding", "clusterrolebindings", "rbac.authorization.k8s.io", ("v1",), namespaced=False
)
TOKENS: Final = Resource("TokenRequest", "serviceaccounts/caller/token", "", ("v1",), namespaced=True)
_PORT: Final = 8443
_EXPANDER_PORT: Final = 8890
_PAUSE_SECONDS: Final = 0.2


def server_name(secret: str) -> str:
    """Whom the certificate in a Secret is for: the Service of this name."""
    return f"{secret}.{NAMESPACE}.svc"


def certificate(authority: Authority, name: str = SECRET) -> RawObject:
    """A Secret as values of the chart name it, with a certificate of an authority."""
    pair = authority.server(server_name(name))
    files = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authority.pem}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": {file: base64.b64encode(content).decode() for file, content in files.items()},
    }


@dataclass(slots=True)
class Callers:
    """A service account with the role of viewers, and what it has been answered.

    Attributes:
        answers: how many there were of each.
    """

    site: Site
    token: str
    answers: Counter[str] = field(default_factory=Counter)

    async def ask(self, pod: RawObject, *trusted: Authority, path: str = "/devices") -> str:
        """One request to a replica, on a connection of its own; the status, or what the connection failed with."""
        context = ssl.create_default_context(cadata="".join(each.pem.decode() for each in trusted))
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        host = server_name(SECRET)
        headers = {"Authorization": f"Bearer {self.token}", "Host": host}
        async with httpx.AsyncClient(verify=context, trust_env=False, timeout=10) as http:
            url = f"https://{pod['status']['podIP']}:{_PORT}{path}"
            try:
                answer = await http.get(url, headers=headers, extensions={"sni_hostname": host})
            except httpx.TransportError as error:
                return type(error).__name__
        return str(answer.status_code)

    @asynccontextmanager
    async def calling(self, pods: Sequence[RawObject], *trusted: Authority) -> AsyncIterator[None]:
        """Within, some replicas are asked again and again. A request that is cut would leave its socket open."""
        is_over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for pod in pods:
                group.create_task(self._ask_again(pod, is_over, *trusted))
            yield
            is_over.set()

    async def _ask_again(self, pod: RawObject, is_over: asyncio.Event, *trusted: Authority) -> None:
        while not is_over.is_set():
            self.answers[await self.ask(pod, *trusted)] += 1
            await pause(_PAUSE_SECONDS)


async def callers(site: Site) -> Callers:
    """A new service account, which the role that we ship lets look at everything."""
    account = {"name": "caller", "namespace": WORKLOAD}
    await site.client.create(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "caller"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "dra-extender-viewer"},
        "subjects": [{"kind": "ServiceAccount", **account}],
    }
    await site.client.create(BINDINGS, binding)
    wanted = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {"namespace": WORKLOAD},
        "spec": {},
    }
    return Callers(site, (await site.client.create(TOKENS, wanted))["status"]["token"])


async def expand(program: Path, folder: Path, pod: RawObject, authority: Authority, asked: RawObject) -> RawObject:
    """What a replica answers a Cluster Autoscaler, which shows no certificate."""
    (folder / "ca.crt").write_bytes(authority.pem)
    running = await asyncio.create_subprocess_exec(
        program,
        f"--url={pod['status']['podIP']}:{_EXPANDER_PORT}",
        f"--ca={folder / 'ca.crt'}",
        f"--name={server_name(EXPANDER_SECRET)}",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await running.communicate(orjson.dumps(asked))
    assert running.returncode == 0
    answer: RawObject = orjson.loads(output)
    return answer


async def rotate(site: Site, authority: Authority) -> None:
    """Replace the certificate in the Secret."""
    data = certificate(authority)["data"]
    await site.client.patch(SECRETS, ObjectKey(NAMESPACE, SECRET), {"data": data})
