"""Binders of pods over an API server of a test."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from extender.cluster.cluster_state import ClusterState
from extender.cluster.double_allocations import DoubleAllocations
from extender.cluster.objects.pods import Pod
from extender.cluster.writes.claims import ClaimWrites
from extender.cluster.writes.events import Note
from extender.cluster.writes.writer import Writer
from extender.framework.bind.bind import Binder
from extender.framework.bind.plan import BindTimes, Reports
from extender.framework.bind_errors import BindError
from extender.framework.decisions.solver import Solver
from extender.framework.plugin import WaitingPlugin
from extender.kube.api import Api, ObjectKey
from extender.plugins.negotiation.allocating import Allocating
from extender.plugins.negotiation.negotiation import Negotiation
from extender.tools.offload import Offload, at_once
from tests.kit.clusters import solver
from tests.kit.servers.memory import NOW

DEADLINE = 4.0
BINDING_TIMEOUT = timedelta(seconds=600)


def unheard() -> DoubleAllocations:
    """Double allocations that nobody is told of."""
    return DoubleAllocations(count=lambda: None, tell=lambda _pod, _note: None)


def binder_over(
    api: Api,
    state: ClusterState,
    *,
    now: Callable[[], datetime] = lambda: NOW,
    by: Solver | None = None,
    deadline: float = DEADLINE,
    double_allocations: DoubleAllocations | None = None,
    allocated: Callable[[Pod], None] = lambda _: None,
    tell: Callable[[Pod, Note], None] = lambda _pod, _note: None,
    off_loop: Offload = at_once,
    worked: Callable[[], float] = lambda: 0.0,
    plugins: Sequence[WaitingPlugin] | None = None,
) -> Binder:
    """A binder that searches first-fit, in virtual time; without other plugins, it knows no controllers."""
    writer = Writer(api, state, now)
    reports = Reports(double_allocations or unheard(), allocated, tell)
    negotiation = Negotiation(state, Allocating({}, ClaimWrites(api, state), now), lambda: 0.0)
    waiting = (negotiation,) if plugins is None else plugins
    times = BindTimes(deadline, BINDING_TIMEOUT, worked)
    return Binder(state, writer, by or solver(), reports, plugins=waiting, times=times, off_loop=off_loop)


def held(state: ClusterState) -> set[str]:
    """The devices in use, as pool/device."""
    return {f"{pool.pool}/{device}" for pool, devices in state.snapshot.usage.pools.items() for device in devices}


def devices_of(claim: dict[str, Any]) -> list[str]:
    """The devices that a raw claim is allocated, as pool/device."""
    allocation = claim.get("status", {}).get("allocation") or {"devices": {"results": []}}
    return [f"{result['pool']}/{result['device']}" for result in allocation["devices"]["results"]]


async def bind_error(binder: Binder, name: str, on: str, **more: Any) -> str:
    """Bind a pod of namespace "ns" to a node; the error, empty for a success."""
    try:
        await binder.bind(ObjectKey("ns", name), more.pop("uid", f"uid-{name}"), on, **more)
    except BindError as error:
        return str(error)
    return ""
