"""A controller that answers by PodSchedulingContexts: it follows an API server, and serves what it sees there."""

import asyncio
import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from extender.cluster.cluster_state import ClusterState
from extender.cluster.live.live_cluster import connect
from extender.config.controllers import ParameterKind
from extender.driver.contexts import ContextResponder
from extender.driver.controller import Controller
from extender.driver.leadership import led, responder_of
from extender.driver.responder import Responder
from extender.driver.server import sole_user
from extender.driver.store import Store
from extender.kube.connection.credentials import Origin, find_origin
from extender.kube.resources import CLAIMS, CLASSES, CONTEXTS, NODES, PODS, RESOURCES
from extender.negotiation.parameters import ParameterReader
from extender.tools.offload import in_thread
from extender.writes.claims.claim_writes import ClaimWrites
from extender.writes.scheduling_contexts import ContextWrites

KINDS: Final = (CLASSES, NODES, PODS, CLAIMS, CONTEXTS)
"""The kinds that a controller follows."""

_TURN_SECONDS: Final = 0.05
"""Between two turns."""


def serve_contexts(
    controller: Controller,
    store: Path | str,
    name: str,
    *,
    parameters: Sequence[ParameterKind] = (),
    lease: str = "",
    kubeconfig: Path | None = None,
) -> None:
    """Serve a controller by PodSchedulingContexts until SIGTERM or SIGINT comes. What was begun is finished then.

    Args:
        controller: decides.
        store: the file that remembers what is allocated. One process uses it at a time; another one waits until then.
        name: of the controller, as device classes name it.
        parameters: the kinds of objects that classes and claims may name for it.
        lease: ``NAMESPACE/NAME`` of a Lease: of several processes, the one that has the lease serves. Empty: none.
        kubeconfig: the file of the API server; None: KUBECONFIG, the pod that we run in, or ``~/.kube/config``.

    Raises:
        ConnectError: there is no API server that we can work with.
        OSError, ValueError: the store cannot be read, or the lease has no such name.
    """
    path, origin = Path(store), find_origin(kubeconfig, "", os.environ)
    with led(lease, kubeconfig) as leadership, sole_user(path):
        asyncio.run(_served(responder_of(controller, Store.open(path), leadership), name, parameters, origin))


async def _served(responder: Responder, name: str, parameters: Sequence[ParameterKind], origin: Origin) -> None:
    async with connect(origin, random=random.random, listing=KINDS) as live:
        state = ClusterState()
        for other in RESOURCES.values():
            if other not in KINDS:
                state.trust(other)
        claims, reader = ClaimWrites(live.api, state), ParameterReader(live.api, parameters)
        contexts = ContextResponder(name, responder, ContextWrites(live.api), claims, time.monotonic, in_thread, reader)
        ending = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ending.set)
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(live.run(state, KINDS))
            while not ending.is_set():
                await asyncio.sleep(_TURN_SECONDS)
                if not state.not_ready:
                    await contexts.turn()
            following.cancel()
