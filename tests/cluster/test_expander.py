"""The gRPC expander, called by a Go program as Cluster Autoscaler calls it: gRPC, TLS and marshaling are Go's own."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from extender.config.settings import Settings
from extender.faces.grpc.opening import open_grpc
from extender.framework.metrics import Metrics
from extender.tools.intake import Budget
from tests.extender.autoscaler.scenes import autoscaler_over, machine, node_template, pod_of
from tests.kit.certificates import Authority
from tests.kit.clusters import GPU, claim_template, state_of
from tests.kit.controlplane.binaries import BinariesError, find_expander_client
from tests.kit.process import free_port

GROUPS = {"big": 4, "small": 1}
PODS = [pod_of(f"p{index}", "gpu", priority=3) for index in range(6)]
COUNTS = {name: 6 // devices + 1 for name, devices in GROUPS.items()}
ASKED = {
    "options": [{"id": name, "count": count, "pods": PODS} for name, count in COUNTS.items()],
    "nodes": {name: machine("template", name, cpu="8", memory="8Gi", pods="110") for name in GROUPS},
}


@pytest.fixture(scope="module")
def client() -> Path:
    try:
        return find_expander_client(os.environ)
    except BinariesError as error:
        pytest.skip(str(error))


@asynccontextmanager
async def serving(folder: Path, authority: Authority) -> AsyncIterator[str]:
    certificate, key = authority.server("127.0.0.1").write(folder)
    (folder / "ca.crt").write_bytes(authority.pem)
    port = free_port()
    grpc = {"host": "127.0.0.1", "port": port, "certificate": str(certificate), "key": str(key)}
    templates = [node_template(name, devices) for name, devices in GROUPS.items()]
    async with open_grpc(Settings.model_validate({"grpc": grpc}), Budget()) as start:
        await start(autoscaler_over(state_of([GPU, claim_template()]), *templates), Metrics(CollectorRegistry()))
        yield f"127.0.0.1:{port}"


async def called(client: Path, *arguments: str) -> Any:
    running = await asyncio.create_subprocess_exec(
        client, *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await running.communicate(json.dumps(ASKED).encode())
    assert running.returncode == 0
    return json.loads(output)


@pytest.mark.parametrize("release", [(), ("--old",)], ids=["now", "up to 1.34.1"])
async def test_the_best_group_is_answered(client: Path, tmp_path: Path, release: tuple[str, ...]) -> None:
    async with serving(tmp_path, Authority()) as address:
        answer = await called(client, f"--url={address}", f"--ca={tmp_path / 'ca.crt'}", *release)
    [option] = answer["options"]
    assert option["debug"].startswith("pods that get a place: 6 of 6;")
    assert option["count"] == COUNTS[option["id"]]


async def test_a_server_of_another_authority_is_not_trusted(client: Path, tmp_path: Path) -> None:
    async with serving(tmp_path, Authority()) as address:
        (tmp_path / "ca.crt").write_bytes(Authority("other").pem)
        answer = await called(client, f"--url={address}", f"--ca={tmp_path / 'ca.crt'}")
    assert answer["code"] == "Unavailable"
    assert "certificate" in answer["message"]
