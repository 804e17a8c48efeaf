"""The node, once per run; a namespace and a client of its own for each test."""

import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import pytest_asyncio

from extender.kube.resources import CLAIMS
from tests.kit.controlplane.binaries import BinariesError
from tests.kit.controlplane.client import NAMESPACES, Client, connect, key_of
from tests.kit.node.binaries import NodeBinaries, find_node_binaries
from tests.kit.node.driver import GPU_DRIVER, prepared_claims
from tests.kit.node.node import Node, running_node
from tests.kit.node.pods import RUN_SECONDS, end_all_pods
from tests.kit.node.sandbox import LOGS_INSIDE
from tests.kit.objects.manifests import namespace as a_namespace
from tests.kit.waiting import wait_until

_FIGURES = pytest.StashKey[dict[str, float]]()


@pytest.fixture(scope="session")
def binaries() -> NodeBinaries:
    if not LOGS_INSIDE.is_dir():
        pytest.fail("these tests run in a sandbox only: make test-node", pytrace=False)
    try:
        return find_node_binaries(os.environ)
    except BinariesError as error:
        pytest.fail(str(error), pytrace=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def node(binaries: NodeBinaries, pytestconfig: pytest.Config) -> AsyncIterator[Node]:
    """The node that the tests share, with the extender and its scheduler."""
    with TemporaryDirectory(prefix="dra-extender-") as folder:
        async with running_node(binaries, Path(folder)) as ready:
            pytestconfig.stash[_FIGURES] = ready.plane.seconds
            yield ready


@pytest.fixture
async def client(node: Node) -> AsyncIterator[Client]:
    """An administrator."""
    async with connect(node.plane.access()) as connected:
        yield connected


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    """A namespace of the test's own. After it, no pod runs, and no claim of it is prepared or allocated."""
    name = f"test-{secrets.token_hex(4)}"
    await client.create(NAMESPACES, a_namespace(name))
    yield name
    await end_all_pods(client, name)
    claims = (await client.list(CLAIMS, name)).items
    for claim in claims:
        await client.delete(CLAIMS, key_of(claim))
        await client.wait_gone(CLAIMS, key_of(claim))
    uids = {claim["metadata"]["uid"] for claim in claims}
    wait_until(lambda: not uids & prepared_claims(GPU_DRIVER), "the claims are unprepared", within=RUN_SECONDS)
    await client.delete(NAMESPACES, key_of(a_namespace(name)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    figures = config.stash.get(_FIGURES, {})
    if figures:
        shown = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in figures.items())
        terminalreporter.write_line(f"node ready after: {shown}")
