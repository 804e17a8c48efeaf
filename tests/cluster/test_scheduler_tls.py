"""kube-scheduler and the extender with TLS between them, each with a certificate."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from extender.kube.api import ObjectKey
from extender.kube.resources import PODS
from tests.kit.certificates import Authority, Pair
from tests.kit.controlplane.access import SCHEDULER
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.pair import SHIPPED_NAME
from tests.kit.controlplane.scenario import NODE_NAMES, add_pod, bound
from tests.kit.controlplane.scheduler import SHIPPED, localize, scheduler, shipped_flags
from tests.kit.controlplane.service import extender_with, grant_rights
from tests.kit.objects.manifests import is_bound
from tests.kit.process import free_port
from tests.kit.waiting import wait_for_answer

SECONDS = 30.0

pytestmark = pytest.mark.usefixtures("nodes")


@dataclass(frozen=True, slots=True)
class Both:
    """What runs.

    Attributes:
        name: of the scheduler, in pods.
        extender: the extender's log.
        scheduler: the scheduler's log.
    """

    name: str
    extender: Path
    scheduler: Path


@asynccontextmanager
async def both(
    plane: ControlPlane, client: Client, folder: Path, certificate: Pair, authority: Authority
) -> AsyncIterator[Both]:
    """An extender that asks for certificates of an authority, and a scheduler that shows one."""
    name, port = f"tls-{secrets.token_hex(3)}", free_port()
    files = [str(each) for each in authority.server("127.0.0.1").write(folder)]
    client_files = [str(each) for each in certificate.write(folder, "client")]
    (folder / "ca.crt").write_bytes(authority.pem)
    ca = str(folder / "ca.crt")
    settings = {"server": {"port": port, "certificate": files[0], "key": files[1], "clientCa": ca}}
    await grant_rights(client)
    async with extender_with(plane, settings) as extender:
        config = localize(
            SHIPPED.read_text().replace(SHIPPED_NAME, name), f"https://127.0.0.1:{port}", plane.kubeconfig(SCHEDULER)
        )
        (entry,) = config["extenders"]
        entry["enableHTTPS"] = True
        entry["tlsConfig"] = {"caFile": ca, "certFile": client_files[0], "keyFile": client_files[1]}
        async with scheduler(plane, config, shipped_flags(SHIPPED.read_text())) as process:
            yield Both(name, extender.process.log, process.log)


async def test_a_scheduler_with_a_certificate_binds_pods(
    plane: ControlPlane, client: Client, namespace: str, tmp_path: Path
) -> None:
    authority = Authority("scheduler's")
    async with both(plane, client, tmp_path, authority.client("kube-scheduler"), authority) as running:
        await add_pod(client, namespace, "pod", scheduler=running.name)
        assert await bound(client, ObjectKey(namespace, "pod")) in NODE_NAMES


async def test_a_scheduler_with_a_wrong_certificate_is_refused_and_both_logs_say_so(
    plane: ControlPlane, client: Client, namespace: str, tmp_path: Path
) -> None:
    wrong = Authority("another").client("kube-scheduler")
    async with both(plane, client, tmp_path, wrong, Authority("scheduler's")) as running:
        await add_pod(client, namespace, "pod", scheduler=running.name)

        async def logged() -> tuple[str, str]:
            return running.extender.read_text(), running.scheduler.read_text()

        def is_said(texts: tuple[str, str]) -> bool:
            ours, theirs = texts
            return (
                "client certificate is not accepted: unable to get local issuer" in ours
                and "remote error: tls" in theirs
            )

        await wait_for_answer(logged, is_said, "both logs say it", within=SECONDS)
        assert not is_bound(await client.get(PODS, ObjectKey(namespace, "pod")))
