"""The model of kube-scheduler's default filters says what a kube-scheduler says; `make test-filters` tries more."""

import secrets

from tests.cluster.filters import differences, filtering_scheduler
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.components import ControlPlane

_CLUSTERS = 30


async def test_the_model_of_the_filters_agrees_with_a_scheduler(client: Client, plane: ControlPlane) -> None:
    first = secrets.randbelow(10**6)
    async with filtering_scheduler(plane, client) as recorder:
        found = await differences(client, recorder, range(first, first + _CLUSTERS), lambda _: None)
    assert not found, "\n".join(map(str, found))
