"""Controllers of negotiated claims as processes, the device classes that name them, and what they hold in the end."""

import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

import yaml

from extender.config.settings import Transport
from extender.kube.api import RawObject
from extender.kube.resources import CLAIMS, CLASSES
from tests.kit.controlplane.access import ADMIN
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.components import START_SECONDS, ControlPlane
from tests.kit.controlplane.definitions import CONTEXT, defined
from tests.kit.controlplane.service import SERVE, SETTINGS
from tests.kit.licensing import taken
from tests.kit.objects.manifests import claim, request, requests
from tests.kit.objects.parts import api_object
from tests.kit.process import Process, free_port, running

ENTRY: Final = "license"
"""The name of a pod's entry for its negotiated claim, and of the request in the claim."""


@dataclass(frozen=True, slots=True)
class Licensing:
    """A running controller with some licenses.

    Attributes:
        name: of the controller, and of its device class.
        address: how it is reached, as the settings of an extender say it.
        folder: with a file for each license that is taken.
    """

    name: str
    address: Mapping[str, str]
    folder: Path
    process: Process

    def claim(self, namespace: str, name: str) -> RawObject:
        """A claim of one license."""
        return claim(namespace, name, requests(request(ENTRY, self.name)))


def entry(claim_name: str) -> RawObject:
    """A pod's entry for its negotiated claim."""
    return {"name": ENTRY, "resourceClaimName": claim_name}


@asynccontextmanager
async def licensing(
    plane: ControlPlane,
    client: Client,
    transports: Sequence[Transport],
    licenses: int,
    delay: float = 0.0,
    flags: Sequence[str] = (),
) -> AsyncIterator[Sequence[Licensing]]:
    """A controller for each transport, with its device class, and with that many licenses.

    An extender that asks by PodSchedulingContexts has to start within the context: the kind is defined here.

    Args:
        delay: seconds that each answer about nodes takes.
        flags: more of the program.
    """
    async with AsyncExitStack() as stack:
        if "PodSchedulingContext" in transports:
            await stack.enter_async_context(defined(client, CONTEXT))
        found = []
        for number, transport in enumerate(transports):
            name = f"licenses-{number}.example.com"
            metadata = {"annotations": {"dra-extender.dev/controller": name}}
            made = await client.create(CLASSES, api_object("DeviceClass", name, metadata=metadata, spec={}))
            stack.push_async_callback(client.delete, CLASSES, key_of(made))
            found.append(
                await stack.enter_async_context(_one(plane, name, transport, licenses, ("--delay", str(delay), *flags)))
            )
        yield found


@asynccontextmanager
async def _one(
    plane: ControlPlane, name: str, transport: Transport, licenses: int, flags: Sequence[str]
) -> AsyncIterator[Licensing]:
    folder = Path(mkdtemp(prefix="licenses-", dir=plane.folder))
    log = plane.logs / f"{folder.name}.log"
    command = [sys.executable, "-m", "tests.kit.licensing", "--folder", str(folder), "--licenses", str(licenses)]
    command += flags
    address: dict[str, str] = {"transport": transport}
    ready: Callable[[], bool] = log.exists  # contexts wait until it reads them
    if transport == "Http":
        port = free_port()
        command += ["--port", str(port)]
        ready, address["url"] = partial(_listens, port), f"http://127.0.0.1:{port}"
    else:
        command += ["--contexts-for", name, "--kubeconfig", str(plane.kubeconfig(ADMIN))]
    process = Process(f"controller {name}", command, ready, log)
    async with running(process, within=START_SECONDS):
        yield Licensing(name, address, folder / "taken", process)


def serving_with(plane: ControlPlane, controllers: Sequence[Licensing], **more: Any) -> Sequence[str]:
    """The command line of an extender with the settings that we ship, and with controllers.

    Args:
        more: settings of each controller, beside name and address.
    """
    if not controllers:
        return SERVE
    named = [{"name": each.name, **each.address, **more} for each in controllers]
    settings = {**yaml.safe_load(SETTINGS.read_text()), "controllers": named}
    file = Path(mkdtemp(prefix="extender-", dir=plane.folder)) / "extender.yaml"
    file.write_text(yaml.safe_dump(settings))
    return (*SERVE[:-1], str(file))


async def license_findings(client: Client, namespace: str, controllers: Sequence[Licensing]) -> list[str]:
    """What is wrong with licenses: claims that share one, and licenses that nobody has and that are taken."""
    claims = (await client.list(CLAIMS, namespace)).items
    return [text for each in controllers for text in _findings(each, claims)]


def _findings(controller: Licensing, claims: Sequence[RawObject]) -> Iterator[str]:
    outside, known = taken(controller.folder), _allocated(controller.name, claims)
    for uid, number in known.items():
        if outside.get(number) != uid:
            yield f"{controller.name}: claim {uid} has license {number}, which is taken by {outside.get(number)}"
    for number, uid in outside.items():
        if uid not in known:
            yield f"{controller.name}: license {number} is taken by {uid}, which is not allocated"


def _allocated(name: str, claims: Sequence[RawObject]) -> Mapping[str, str]:
    """The license of each allocated claim of a controller, by uid."""
    found = {}
    for each in claims:
        classes = {asked["exactly"]["deviceClassName"] for asked in each["spec"]["devices"]["requests"]}
        allocation = each.get("status", {}).get("allocation")
        if name in classes and allocation:
            config: list[Any] = allocation["devices"]["config"]
            found[each["metadata"]["uid"]] = str(config[0]["opaque"]["parameters"]["license"])
    return found


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
