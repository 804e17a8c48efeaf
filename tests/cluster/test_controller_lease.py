"""Several processes of a controller with a lease on a real API server: one serves, whatever becomes of the others."""

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from extender.cluster.writes.lease import LONG
from extender.kube.api import ObjectKey
from extender.kube.resources import LEASES
from tests.kit.controlplane.access import ADMIN
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.components import ControlPlane
from tests.kit.process import Process, free_port
from tests.kit.waiting import wait_until

SECONDS: Final = 3.0 * LONG.lasts


class Replica:
    """A process of the controller of licenses."""

    def __init__(self, plane: ControlPlane, namespace: str, folder: Path, number: int) -> None:
        self.port = free_port()
        command = (sys.executable, "-m", "tests.kit.licensing", "--port", str(self.port), "--folder", str(folder))
        lease = ("--lease", f"{namespace}/licenses", "--kubeconfig", str(plane.kubeconfig(ADMIN)))
        self.log = plane.logs / f"replica-{self.port}.log"
        self.process = Process(
            f"replica {number}", (*command, "--licenses", "1", *lease), partial(self.says, "waiting"), self.log
        )

    def says(self, text: str) -> bool:
        return text in self.log.read_text()

    @property
    def serves(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture(name="replicas")
def _replicas(plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[list[Replica]]:
    with ExitStack() as stack:
        # As on three nodes: no lock of a file keeps one of them waiting.
        found = [Replica(plane, namespace, tmp_path / str(number), number) for number in range(3)]
        for each in found:
            each.process.start(within=SECONDS)
            stack.callback(each.process.kill)
        yield found


def serving(replicas: list[Replica]) -> list[Replica]:
    found = [each for each in replicas if each.serves]
    assert len(found) <= 1
    return found


async def test_one_replica_serves_and_another_one_follows(
    client: Client, namespace: str, replicas: list[Replica]
) -> None:
    wait_until(lambda: bool(serving(replicas)), "a replica serves", within=SECONDS)
    (first,) = serving(replicas)
    lease = await client.get(LEASES, ObjectKey(namespace, "licenses"))
    assert lease["spec"]["leaseDurationSeconds"] == LONG.lasts

    first.process.kill()
    wait_until(lambda: bool(serving(replicas)), "another replica serves", within=SECONDS)
    (second,) = serving(replicas)
    assert second is not first

    holder = (await client.get(LEASES, ObjectKey(namespace, "licenses")))["spec"]["holderIdentity"]
    second.process.stop()
    lease = await client.get(LEASES, ObjectKey(namespace, "licenses"))
    assert lease["spec"]["holderIdentity"] != holder, "a replica that is stopped gives the lease back"
    wait_until(lambda: bool(serving(replicas)), "the last replica serves", within=SECONDS)
    (third,) = serving(replicas)
    assert third not in (first, second)


async def test_replica_that_slept_ends(replicas: list[Replica]) -> None:
    wait_until(lambda: bool(serving(replicas)), "a replica serves", within=SECONDS)
    (first,) = serving(replicas)
    others = [each for each in replicas if each is not first]
    with first.process.paused():
        wait_until(
            lambda: any(each.says("leads\n") and each.serves for each in others), "another serves", within=SECONDS
        )
    wait_until(lambda: not first.process.is_running, "the replica that slept has ended", within=SECONDS)
    assert first.says("another process may lead; this one ends")
