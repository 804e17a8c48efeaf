"""A scheduler asks while the process starts: pods wait for the first lists, and not for the backoff after an error."""

import asyncio

import pytest

from extender.cluster.cluster_state import ClusterState
from extender.config.settings import Settings
from extender.framework.service import Service
from extender.framework.wire import FilterArgs
from extender.tools.faults import RefusedError
from extender.tools.offload import at_once
from tests.kit import virtualtime
from tests.kit.clusters import GPU, Cluster, claim, local_slice, node, parsed, pod
from tests.kit.virtualtime import in_virtual_time

ASKED = FilterArgs(parsed(pod("p", "c")), ["n"])
LISTS_SECONDS = 1.0
DEADLINE = Settings().scheduling.deadline_seconds


def starting() -> tuple[Service, Cluster]:
    """A service that knows nothing of its cluster yet."""
    there = Cluster.of(GPU, node("n"), local_slice("n"), claim("c"), pod("p", "c"))
    empty = Cluster(ClusterState(), there.api)
    return empty.service(off_loop=at_once), empty


@in_virtual_time
async def test_a_pod_waits_for_the_first_lists() -> None:
    service, cluster = starting()
    asked = asyncio.create_task(service.filter(ASKED))
    await virtualtime.elapse(LISTS_SECONDS)
    assert not asked.done()
    cluster.api.follow(cluster.state)
    await virtualtime.elapse(0.1)
    assert list(asked.result().passed) == ["n"]


@in_virtual_time
async def test_all_pods_together_do_not_wait_longer_than_one_call_may_take() -> None:
    service, _ = starting()
    for _ in range(5):
        with pytest.raises(RefusedError, match="not ready: not synced yet"):
            await service.filter(ASKED)
    assert LISTS_SECONDS < asyncio.get_running_loop().time() < DEADLINE
