"""KWOK: one program in place of the kubelets of many nodes. It renews leases, and lets pods run and end by stages."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.kit.controlplane.access import ADMIN
from tests.kit.controlplane.binaries import CACHE, built
from tests.kit.controlplane.components import START_SECONDS, ControlPlane
from tests.kit.process import Process, answers, free_port, running

KUBELET: Final = ("example.com/kubelet", "runs")
"""The label of nodes whose kubelet runs. KWOK leaves all other nodes and their pods alone."""

LEASE_SECONDS: Final = 40
"""As kubelets have it. A lease is renewed after a quarter of this time."""

_SOURCE: Final = Path(__file__).parents[1] / "kwok"
_STAGES: Final = _SOURCE / "stages.yaml"
_FLAGS: Final = ("-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w")


def find_kwok(environ: Mapping[str, str], cache: Path = CACHE) -> Path:
    """The program, built now if it has not been yet.

    Raises:
        BinariesError: there is no Go, or the build failed.
    """
    return built("kwok", _SOURCE, _FLAGS, environ, cache, package="sigs.k8s.io/kwok/cmd/kwok")


@asynccontextmanager
async def kwok(plane: ControlPlane, program: Path) -> AsyncIterator[Process]:
    """Within the context, KWOK takes care of all nodes with the label `KUBELET`."""
    port = free_port()
    command = (
        str(program),
        f"--config={_STAGES}",
        f"--kubeconfig={plane.kubeconfig(ADMIN)}",
        f"--manage-nodes-with-label-selector={'='.join(KUBELET)}",
        f"--node-lease-duration-seconds={LEASE_SECONDS}",
        f"--server-address=127.0.0.1:{port}",
    )
    process = Process("kwok", command, answers(f"http://127.0.0.1:{port}/readyz"), plane.logs / "kwok.log")
    async with running(process, within=START_SECONDS):
        yield process
