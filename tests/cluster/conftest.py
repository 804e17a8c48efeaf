"""The control plane, once per run; a namespace and a client of its own for each test."""

import os
import secrets
import shutil
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import pytest_asyncio

from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, CLASSES, NODES, PODS, SLICES
from tests.cluster.claim_rules import FINALIZER
from tests.kit.controlplane.access import SCHEDULER
from tests.kit.controlplane.binaries import (
    Binaries,
    BinariesError,
    find_binaries,
    find_helm,
    find_kubectl,
    find_renderer,
)
from tests.kit.controlplane.client import NAMESPACES, PRIORITIES, Client, connect, key_of
from tests.kit.controlplane.components import ControlPlane, control_plane, usual_options
from tests.kit.controlplane.driver import Driver, driver
from tests.kit.controlplane.pair import Pair, pair
from tests.kit.controlplane.scenario import GPUS, NODE_NAMES, SITE
from tests.kit.controlplane.scheduler import SHIPPED, localize, scheduler, shipped_flags
from tests.kit.controlplane.service import Extender, grant_rights, running_extender
from tests.kit.controlplane.verbs import Verbs, connect_verbs
from tests.kit.objects.manifests import DEVICE_CLASS, add_node, device_class, priority_class, resource_slice
from tests.kit.objects.manifests import namespace as a_namespace

_LOGS = pytest.StashKey[Path]()
_FIGURES = pytest.StashKey[dict[str, float]]()
_KEPT_RUNS = 5


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    try:
        return find_binaries(os.environ)
    except BinariesError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def helm() -> Path:
    try:
        return find_helm(os.environ)
    except BinariesError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kubectl() -> Path:
    try:
        return find_kubectl(os.environ)
    except BinariesError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def renderer() -> Path:
    """The program that renders kustomizations."""
    try:
        return find_renderer(os.environ)
    except BinariesError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def logs(pytestconfig: pytest.Config) -> Path:
    """Where this run's log files are; removed when all tests have passed."""
    folder = Path(__file__).parent / ".logs" / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    folder.mkdir(parents=True)
    for old in sorted(folder.parent.iterdir())[:-_KEPT_RUNS]:
        shutil.rmtree(old)
    pytestconfig.stash[_LOGS] = folder
    return folder


@pytest.fixture(scope="session")
def plane(binaries: Binaries, logs: Path, pytestconfig: pytest.Config) -> Iterator[ControlPlane]:
    """The control plane that the tests share."""
    with (
        TemporaryDirectory(prefix="dra-extender-") as folder,
        control_plane(binaries, Path(folder), logs, usual_options(os.environ)) as running,
    ):
        pytestconfig.stash[_FIGURES] = running.seconds
        yield running


@pytest.fixture
async def client(plane: ControlPlane) -> AsyncIterator[Client]:
    """An administrator."""
    async with connect(plane.access()) as connected:
        yield connected


@pytest.fixture
async def kubernetes(client: Client) -> str:
    """The minor version of the control plane, such as ``1.37``."""
    version = await client.read("/version")
    return f"{version['major']}.{version['minor']}"


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    """A namespace of the test's own; what is in it goes with it."""
    async with _namespace(client) as name:
        yield name


@pytest.fixture
async def neighbor(client: Client) -> AsyncIterator[str]:
    """A second one."""
    async with _namespace(client) as name:
        yield name


@asynccontextmanager
async def _namespace(client: Client) -> AsyncIterator[str]:
    name = f"test-{secrets.token_hex(4)}"
    await client.create(NAMESPACES, a_namespace(name))
    yield name
    # The namespace controller leaves bound pods to their kubelets, which are not there, and finalizers to their owners.
    for pod in (await client.list(PODS, name)).items:
        await client.delete(PODS, key_of(pod))
    for claim in (await client.list(CLAIMS, name)).items:
        if FINALIZER in claim["metadata"].get("finalizers", ()):
            await client.patch(CLAIMS, key_of(claim), {"metadata": {"finalizers": None}})
    await client.delete(NAMESPACES, key_of(a_namespace(name)))


@pytest.fixture
async def nodes(client: Client) -> AsyncIterator[list[str]]:
    """Two nodes with two GPUs each."""
    await client.create(CLASSES, device_class())
    for name in NODE_NAMES:
        await add_node(client, name)
        await client.create(SLICES, resource_slice(name, name, GPUS))
    yield NODE_NAMES
    for name in NODE_NAMES:
        await client.delete(SLICES, ObjectKey("", name))
        await client.delete(NODES, ObjectKey("", name))
    await client.delete(CLASSES, ObjectKey("", DEVICE_CLASS))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(plane: ControlPlane) -> AsyncIterator[Extender]:
    """Three nodes in two zones, an extender and a scheduler, for all tests of a module: devices are the tests' own."""
    async with connect(plane.access()) as admin, AsyncExitStack() as stack:
        for name, zone in SITE.items():
            await add_node(admin, name)
            labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}
            await admin.patch(NODES, ObjectKey("", name), {"metadata": {"labels": labels}})
            stack.push_async_callback(admin.delete, NODES, ObjectKey("", name))
        yield await stack.enter_async_context(_asked_by_a_scheduler(admin, plane))


@pytest.fixture
async def verbs(site: Extender) -> AsyncIterator[Verbs]:
    """The site's extender, to be called by hand."""
    async with connect_verbs(site.url) as connected:
        yield connected


@pytest.fixture
async def gpu(client: Client, verbs: Verbs, namespace: str) -> AsyncIterator[Driver]:
    """A driver of the test's own."""
    async with driver(client, verbs, f"gpu.{namespace}.example.com") as running:
        yield running


@pytest.fixture
async def nic(client: Client, verbs: Verbs, namespace: str) -> AsyncIterator[Driver]:
    """A second one."""
    async with driver(client, verbs, f"nic.{namespace}.example.com") as running:
        yield running


@pytest.fixture
async def important(client: Client, namespace: str) -> AsyncIterator[str]:
    """A priority class above that of other pods."""
    await client.create(PRIORITIES, priority_class(namespace, 1000))
    yield namespace
    await client.delete(PRIORITIES, ObjectKey("", namespace))


@asynccontextmanager
async def _asked_by_a_scheduler(client: Client, plane: ControlPlane) -> AsyncIterator[Extender]:
    await grant_rights(client)
    text = SHIPPED.read_text()
    async with running_extender(plane) as running:
        config = localize(text, running.url, plane.kubeconfig(SCHEDULER))
        async with scheduler(plane, config, shipped_flags(text)):
            yield running


def pytest_configure() -> None:
    """A run that is told to end stops what it has started, as it does for Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    folder = session.config.stash.get(_LOGS, None)
    if folder is not None and exitstatus == pytest.ExitCode.OK:
        shutil.rmtree(folder)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    figures = config.stash.get(_FIGURES, {})
    if figures:
        shown = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in figures.items())
        terminalreporter.write_line(f"control plane ready after: {shown}")
    folder = config.stash.get(_LOGS, None)
    if folder is not None and exitstatus != pytest.ExitCode.OK:
        terminalreporter.write_line(f"logs of the control plane: {folder}")


@pytest.fixture
async def ours(client: Client, plane: ControlPlane, nodes: list[str]) -> AsyncIterator[Pair]:
    """An extender behind a proxy, with a scheduler of its own."""
    assert nodes, "a scheduler without nodes asks nobody"
    async with pair(client, plane) as running:
        yield running
