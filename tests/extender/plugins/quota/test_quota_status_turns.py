"""Statuses of DeviceQuotas: a look has a bound, namespaces take turns, and each quota has its status in the end."""

from dataclasses import replace

from extender.cluster.writes.lease import SharedLease
from extender.kube.api import ObjectKey
from extender.plugins.quota.limit_use import LOOK_SECONDS, QUOTA_STATUS, SOON_SECONDS, QuotaStatus
from extender.tools.offload import at_once
from tests.extender.plugins.quota.test_device_quota import WORLD
from tests.kit.clusters import NOW, Cluster, solver
from tests.kit.objects.quotas import quota
from tests.kit.servers.memory import Transport
from tests.kit.virtualtime import in_virtual_time


class Ticking:
    """A clock that goes on whenever somebody looks at it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.now = 10.0

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now


@in_virtual_time
async def test_many_quotas_of_one_namespace_leave_the_others_their_status() -> None:
    hostile = [quota(name=f"q{number}", namespace="hostile") for number in range(200)]
    cluster, clock = Cluster.of(*WORLD, *hostile, quota()), Ticking(0.01)
    transport, by = Transport(cluster.api), replace(solver(), clock=clock)
    lease = SharedLease(transport, QUOTA_STATUS, "one", lambda: NOW, clock)
    task = QuotaStatus(cluster.state, transport, lease, by, at_once)

    async def looks(most: int, *keys: ObjectKey) -> int:
        """How many looks are made until all of these quotas have their status."""
        for number in range(most):
            if all(cluster.state.snapshot.device_quotas[key].status for key in keys):
                return number
            began = clock.now
            await task.tick()
            assert clock.now - began < LOOK_SECONDS + 1.0 + 200 * 4 * clock.seconds
            clock.now += 2 * SOON_SECONDS
        raise AssertionError("a quota has no status")

    assert await looks(3, ObjectKey("ns", "gold")) <= 3, "two to hold the lease, and one to write"
    await looks(60, *cluster.state.snapshot.device_quotas)
