"""The real API server tells its feature gates to the account that we ship."""

import re
from pathlib import Path

import pytest

from extender.config.settings import Settings
from extender.faces.serving.run import live
from extender.kube.connection.credentials import Origin
from extender.kube.connection.transport import HttpRequest
from extender.kube.remote import RemoteApi
from tests.kit.controlplane.access import EXTENDER
from tests.kit.controlplane.binaries import Binaries
from tests.kit.controlplane.client import Client, connect
from tests.kit.controlplane.components import ControlPlane, Options, control_plane
from tests.kit.controlplane.service import grant_rights

LISTED = re.findall(r"`(\w+)`", Path("docs/reference/versions.md").read_text())

GATES = {"DRADeviceTaints": False, "DRADeviceTaintRules": False, "DRAListTypeAttributes": True}
"""The opposite of their defaults."""


@pytest.mark.every_version
async def test_gates_are_as_the_api_server_has_them(binaries: Binaries, logs: Path, tmp_path: Path) -> None:
    folder = logs / "told"
    folder.mkdir()
    options = Options(feature_gates=GATES, controllers=False)
    with control_plane(binaries, tmp_path, folder, options) as plane:
        async with connect(plane.access()) as admin:
            await grant_rights(admin)
        async with live(Origin(str(plane.kubeconfig(EXTENDER))), Settings()) as cluster:
            features = Settings().over(cluster.gates).features
    assert cluster.gates
    assert (features.device_taints, features.list_type_attributes) == (False, True)
    assert (features.admin_access, features.partitionable_devices) == (True, True)
    assert (features.fractional_capacity_range, features.derived_attributes) == (False, False)


async def test_the_list_of_features_has_every_gate_for_devices(client: Client, plane: ControlPlane) -> None:
    await grant_rights(client)
    async with live(Origin(str(plane.kubeconfig(EXTENDER))), Settings()) as cluster:
        assert isinstance(cluster.api, RemoteApi)
        async with cluster.api.transport.stream(HttpRequest("GET", "/metrics")) as answer:
            text = b"".join([chunk async for chunk in answer.chunks()]).decode()
    told = set(re.findall(r'^kubernetes_feature_enabled\{name="([^"]+)"', text, re.MULTILINE))
    of_devices = {gate for gate in told if re.match("DRA|Dynamic", gate)}
    assert "DRAPrioritizedList" in of_devices
    assert of_devices - set(LISTED) == set()
