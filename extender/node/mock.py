"""A driver for devices that do not exist: it shows a container which devices it has been given.

Each device becomes a variable in the container's environment: ``DEVICE_GPU_0=gpu.example.com/node-1/gpu-0``, with the
driver, the pool and the device. The parameters for its request become ``DEVICE_PARAMETERS_GPU``, a list in JSON: first
those of the class, then those of the claim.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from allocator import Node, parse_node
from extender.kube.api import ConnectError
from extender.kube.connection.credentials import Origin
from extender.node.cdi import CdiFolder
from extender.node.driver import AllocatedClaim, AllocatedDevice, PreparedDevice
from extender.node.running import PublishedDriver, open_api, read_node, run
from extender.planning.templates import NodeTemplate, of_node

_NOT_IN_NAMES: Final = re.compile(r"[^A-Z0-9]")


@dataclass(frozen=True, slots=True)
class MockDriver:
    """Implements `extender.node.driver.Driver`."""

    cdi: CdiFolder

    @property
    def name(self) -> str:
        """The driver's name, as in the ResourceSlices."""
        return self.cdi.driver

    async def prepare(self, claim: AllocatedClaim) -> Sequence[PreparedDevice]:
        """Write the CDI file of the claim."""
        return self.cdi.write(claim, [self._edits(claim, each) for each in claim.devices])

    async def unprepare(self, uid: str) -> None:
        """Remove the CDI file of the claim."""
        self.cdi.remove(uid)

    def _edits(self, claim: AllocatedClaim, device: AllocatedDevice) -> Mapping[str, Any]:
        share = f"/{device.share_id}" if device.share_id else ""
        variables = {_variable(device.device): f"{self.name}/{device.pool}/{device.device}{share}"}
        request = device.request.partition("/")[0]
        names = {request, device.request}
        parameters = [each.value for each in claim.parameters if not each.requests or names.intersection(each.requests)]
        if parameters:
            variables[_variable(f"parameters-{request}")] = json.dumps(parameters)
        return {"env": [f"{name}={value}" for name, value in variables.items()]}


def _variable(name: str) -> str:
    return f"DEVICE_{_NOT_IN_NAMES.sub('_', name.upper())}"


async def run_mocks(origin: Origin, templates: Sequence[NodeTemplate], node: str, kubelet: Path, cdi: Path) -> None:
    """Run a mock driver for each driver of the templates that a node matches, until a signal comes.

    Args:
        origin: of the API server.
        templates: what nodes publish, by their labels.
        node: name of the node.
        kubelet: its root directory.
        cdi: folder for CDI files.

    Raises:
        ConnectError: there is no API server to work with, or the node matches no template.
        SocketError: the kubelet cannot be served.
    """
    async with open_api(origin) as api:
        labels = parse_node(await read_node(api, node))
        specs = [spec for each in templates if each.matches(labels) for spec in of_node(each.specs, node)]
        if not specs:
            raise ConnectError(no_template(labels, templates))
        drivers = [
            PublishedDriver(MockDriver(CdiFolder(cdi, name)), [each for each in specs if each["driver"] == name])
            for name in dict.fromkeys(each["driver"] for each in specs)
        ]
        await run(api, node, drivers, kubelet)


def no_template(node: Node, templates: Sequence[NodeTemplate]) -> str:
    """Why a node gets no devices: for each template, the labels that the node lacks."""
    lacking = (
        f"template {each.name} has no slices"
        if each.matches(node)
        else f"template {each.name} is for "
        + ", ".join(f"{key}={value}" for key, value in each.labels.items() if node.labels.get(key) != value)
        for each in templates
    )
    return f"node {node.name}: its labels match no template with slices: {'; '.join(lacking) or 'there is no template'}"
