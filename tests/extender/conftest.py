"""What tests of the application over HTTP share: a cluster of the module's objects, and a client."""

from collections.abc import AsyncIterator

import pytest
from httpx import AsyncClient

from tests.kit.clusters import Cluster, client_of


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """A cluster of the module's ``OBJECTS``."""
    return Cluster.of(*request.module.OBJECTS)


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[AsyncClient]:
    """A client of the application over the cluster."""
    async with client_of(cluster.app()) as found:
        yield found
