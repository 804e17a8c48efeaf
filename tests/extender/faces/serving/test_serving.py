"""What is made before the service serves."""

import asyncio

import pytest

from allocator import Device, DeviceId
from allocator.cel import parse as parsing
from extender.config.settings import Settings
from extender.faces.assembly import make_extender, make_solver
from extender.faces.serving.run import ServedCluster, surroundings_of
from extender.framework.background_runner import PAUSE_SECONDS
from extender.framework.wire import decode_filter
from extender.lab.cluster import EmbeddedCluster
from extender.lab.manifests import load
from extender.planning.templates import Catalog
from extender.tools.offload import at_once
from tests.kit import virtualtime
from tests.kit.places import ROOT
from tests.kit.virtualtime import in_virtual_time


def test_no_pod_pays_for_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer to build, on a busy machine, than a pod may take on a node."""
    parsing._parser.cache_clear()
    solver = make_solver(Settings())
    monkeypatch.delattr(parsing, "Lark")
    device = Device(DeviceId("gpu.example.com", "node", "gpu-0"))
    assert solver.selectors.matches('device.driver == "gpu.example.com"', device)


NOTEBOOK = ROOT / "config" / "requests" / "notebook.json"


@in_virtual_time
async def test_over_manifests_a_question_has_the_same_answer_again_because_no_scheduler_tries_other_pods() -> None:
    """The first question of a newcomer woke the pods of the example, and what they were woken for was kept for 15 s."""
    cluster = EmbeddedCluster(load([ROOT / "config" / "example"]).objects)
    await cluster.settle()
    around = surroundings_of(ServedCluster(cluster.api, cluster.state), Settings(), Catalog())
    by = make_solver(Settings(), asyncio.get_running_loop().time)
    service = make_extender(cluster.api, cluster.state, by, Settings(), around=around, off_loop=at_once).service
    asked = decode_filter(NOTEBOOK.read_bytes())
    first = await service.filter(asked)
    assert len(first.passed) == 3
    version = cluster.state.snapshot.version
    for _ in range(150):
        await virtualtime.elapse(PAUSE_SECONDS)
        await service.background.tick()
    assert (await service.filter(asked)).passed == first.passed
    assert cluster.state.snapshot.version == version, "nothing happens by itself"
