"""Two extenders bind pods of one cluster, over transports that fail and watches that lag: what holds anyway."""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster.cluster_state import ClusterState
from extender.framework.bind.bind import Binder
from extender.kube.api import ApiError, Event, RawObject
from extender.kube.resources import CLAIMS, PODS, Resource
from extender.lab.api import MemoryApi
from tests.extender.framework.bind.worlds import CLAIMS_OF, check, cluster, everything
from tests.kit import virtualtime
from tests.kit.binders import bind_error, binder_over
from tests.kit.servers.memory import Fault, Transport
from tests.kit.virtualtime import in_virtual_time

TURN = {"p": 0, "q": 0, "r": 1, "s": 1, "t": 0}
"""Which of the two binds a pod: only one scheduler at a time has it."""

CALLS = (
    "update resourceclaims",
    "update_status resourceclaims",
    "get resourceclaims",
    "bind pods",
    "get pods",
    "patch_status pods",
)
FAULTS = (
    Fault(),
    Fault(seconds=1),
    Fault(lost=True),
    Fault(late=3),
    Fault(late=7),
    Fault(reply_lost=True, seconds=0.5),
    Fault(refused=ApiError(409, "Conflict", "changed")),
    Fault(refused=ApiError(403, "Forbidden", "no")),
    Fault(seconds=9),
)


class LateWatch:
    """Tells everything in order, but later."""

    def __init__(self, state: ClusterState, random: Random) -> None:
        self._state = state
        self._random = random
        self._last = 0.0
        self._waiting: deque[Event] = deque()

    def apply(self, event: Event) -> None:
        loop = asyncio.get_running_loop()
        self._last = max(self._last, loop.time() + self._random.choice([0, 0, 0.3, 2]))
        self._waiting.append(event)
        loop.call_at(self._last, self._tell)

    def _tell(self) -> None:
        self._state.apply(self._waiting.popleft())

    def replace(self, resource: Resource, objects: Iterable[RawObject], at: int) -> bool:
        return self._state.replace(resource, objects, at)


@dataclass
class Extender:
    """One of the two."""

    state: ClusterState
    transport: Transport
    binder: Binder

    @classmethod
    def over(cls, api: MemoryApi, random: Random) -> "Extender":
        state, transport = ClusterState(), Transport(api)
        api.follow(LateWatch(state, random))
        return cls(state, transport, binder_over(transport, state))

    async def bind(self, name: str, node_name: str, *, after: float = 0) -> str:
        await virtualtime.elapse(after)
        return await bind_error(self.binder, name, node_name)


async def bind_amid_faults(api: MemoryApi, extenders: list[Extender], plan: list[tuple[str, str, int]]) -> None:
    """Carry out a plan: pods, the nodes they are bound to, and seconds before each bind. `check` holds all the time."""
    calls = [extenders[TURN[name]].bind(name, on, after=after) for name, on, after in plan]
    running = asyncio.gather(*calls)
    while not running.done():
        await asyncio.wait({running}, timeout=0.25)
        await check(api)
    await virtualtime.elapse(100)
    await check(api)


async def bind_in_calm(api: MemoryApi, extenders: list[Extender]) -> None:
    """Nothing fails any more, and every pod is tried three times on every node."""
    for extender in extenders:
        extender.transport.faults.clear()
    for name, on in 3 * [(name, on) for name in CLAIMS_OF for on in ("n", "m")]:
        await extenders[TURN[name]].bind(name, on)
        await virtualtime.elapse(10)
    await check(api)


async def assumed_and_written(api: MemoryApi, extenders: list[Extender]) -> set[str]:
    """The uids of allocated claims with an allocation that an extender still assumes."""
    claims = await everything(api, CLAIMS)
    held = {f"uid-{name}" for name, raw in claims.items() if raw.get("status", {}).get("allocation")}
    return {uid for extender in extenders for uid in extender.state.snapshot.assumed if uid in held}


async def errors_of_waiting_pods(api: MemoryApi, extenders: list[Extender]) -> list[str]:
    """The answers to one more bind of each pod without a node, on each node."""
    pods = await everything(api, PODS)
    waiting = [name for name, raw in pods.items() if not raw["spec"].get("nodeName")]
    return [await extenders[TURN[name]].bind(name, on) for name in waiting for on in ("n", "m")]


PLANS = st.lists(
    st.tuples(st.sampled_from(sorted(CLAIMS_OF)), st.sampled_from(["n", "m"]), st.integers(0, 9)),
    min_size=1,
    max_size=12,
)
SCRIPTS = st.lists(st.tuples(st.integers(0, 1), st.sampled_from(CALLS), st.sampled_from(FAULTS)), max_size=20)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**16), PLANS, SCRIPTS)
@in_virtual_time
async def test_no_bound_pod_shares_what_is_not_to_be_shared(
    seed: int, plan: list[tuple[str, str, int]], faults: list[tuple[int, str, Any]]
) -> None:
    """In the end no allocation is assumed, and no pod waits though there is room.

    A double allocation may be left if the write that should undo it failed. Then its pod fits nowhere, and no bind
    checks it: filter has such a claim deallocated.
    """
    api, random = cluster(), Random(seed)  # noqa: S311 - lags need no secrets
    extenders = [Extender.over(api, random), Extender.over(api, random)]
    for which, call, fault in faults:
        extenders[which].transport.script(call, fault)
    await bind_amid_faults(api, extenders, plan)
    await bind_in_calm(api, extenders)
    assert await assumed_and_written(api, extenders) == set()
    assert all(await errors_of_waiting_pods(api, extenders))
