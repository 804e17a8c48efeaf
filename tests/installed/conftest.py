"""The cluster, once per run, with pods that come and go from the first installation to the last test."""

import os
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import pytest_asyncio

from tests.installed.load import Load
from tests.installed.replicas import Monitor
from tests.installed.site import IMAGES, Site, running_site
from tests.kit.controlplane.binaries import BinariesError, find_helm
from tests.kit.node.binaries import find_node_binaries
from tests.kit.node.sandbox import LOGS_INSIDE

FIGURES = pytest.StashKey[dict[str, str]]()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site() -> AsyncIterator[Site]:
    """The cluster that the tests share; they run in the order of their file."""
    if not (LOGS_INSIDE.is_dir() and IMAGES.is_dir()):
        pytest.fail("these tests run in a sandbox only: make test-installed", pytrace=False)
    try:
        binaries, helm = find_node_binaries(os.environ), find_helm(os.environ)
    except BinariesError as error:
        pytest.fail(str(error), pytrace=False)
    with TemporaryDirectory(prefix="dra-extender-") as folder:
        async with running_site(binaries, helm, Path(folder)) as found:
            yield found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def load(site: Site) -> AsyncIterator[Load]:
    """Pods that come and go, once dra-extender is installed."""
    await site.apply()
    found = Load(site.client)
    async with found.running():
        yield found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def monitor(site: Site) -> AsyncIterator[Monitor]:
    """The metrics of all replicas that there were."""
    found = Monitor(site)
    async with found.running():
        yield found


@pytest.fixture
def figures(pytestconfig: pytest.Config) -> dict[str, str]:
    """What a run has measured, by its name; it is shown at the end."""
    return pytestconfig.stash.setdefault(FIGURES, {})


def counted(found: Counter[str]) -> str:
    """Texts with their numbers, the most frequent first."""
    return "".join(f"\n    {number:5} {text}" for text, number in found.most_common())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for name, value in config.stash.get(FIGURES, {}).items():
        terminalreporter.write_line(f"{name}: {value}")
