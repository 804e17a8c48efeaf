"""What open pages of the console cost the service: 50 pages, 50 decisions a second.

``python -m loadtest.console_bench`` (Linux). The service is in this process and makes the same decisions and
allocations with pages and without; the difference is what the pages cost. The pages are streams that another process
reads.
"""

import argparse
import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Final

import httpx

from extender.autoscaler.autoscaler import make_autoscaler
from extender.autoscaler.negotiating import Negotiating
from extender.cluster.cluster_state import ClusterState
from extender.config.settings import Settings
from extender.faces.assembly import Extender, make_extender, make_solver
from extender.faces.http.app import create_app
from extender.faces.http.connections import VERBS
from extender.faces.serving.listeners import FurtherServer, server_config
from extender.kube.api import Event, EventType, ObjectKey
from extender.kube.resources import CLAIMS, CLASSES, NODES, RESOURCES, SLICES
from extender.lab.api import MemoryApi
from extender.planning.templates import read_catalog
from extender.tools import logs
from extender.tools.logs import LogSettings
from tests.kit.measure import MEGABYTE, resident
from tests.kit.objects import synthetic
from tests.kit.process import printing

_PAGES: Final = 50
_RATE: Final = 50
"""Decisions a second, each with an allocation."""

_MOST_CORE: Final = 0.05
_MOST_MEMORY: Final = 30.0
"""Megabytes."""


def main() -> int:
    """Measure, or be the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each of the two parts")
    parser.add_argument("--nodes", type=int, default=5000, help="with 8 devices each")
    parser.add_argument("--pages-of", metavar="URL", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.pages_of:
        asyncio.run(_read_pages(arguments.pages_of))
        return 0
    logs.configure(LogSettings(level="error"))
    return asyncio.run(_measure(arguments.seconds, arguments.nodes))


async def _read_pages(url: str) -> None:
    """Read all streams until this process is ended, as browsers do: the fleet first."""

    async def read(client: httpx.AsyncClient) -> None:
        after = (await client.get("/console/fleet")).json()["position"]
        while True:
            async with client.stream("GET", f"/console/changes?after={after}") as stream:
                async for line in stream.aiter_lines():
                    after = int(line.removeprefix("id: ")) if line.startswith("id: ") else after

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits, trust_env=False) as client:  # noqa: S113
        print("reading", flush=True)
        await asyncio.gather(*(read(client) for _ in range(_PAGES)))


async def _measure(seconds: float, nodes: int) -> int:
    state = _state(nodes)
    settings = Settings()
    api = MemoryApi(now=lambda: datetime.now(UTC), new_uid=lambda: "uid")
    extender = make_extender(api, state, make_solver(settings), settings)
    negotiating = Negotiating(extender.negotiation.controllers, extender.overview.api)
    autoscaler = make_autoscaler(extender.service, negotiating, make_solver(settings), settings, read_catalog(settings))
    async with _serving(create_app(extender, autoscaler, settings), settings) as url:
        async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
            began = time.perf_counter()
            document = (await client.get("/console/fleet")).content
            print(f"first fleet: {time.perf_counter() - began:.2f} s, {len(document) / 1e6:.2f} MB")
            began = time.perf_counter()
            await client.get("/console/fleet")
            print(f"next fleet: {time.perf_counter() - began:.3f} s")
        alone = await _busy(extender, state, seconds, first=0)
        before = resident()
        async with printing([sys.executable, "-m", "loadtest.console_bench", "--pages-of", url]) as (_, lines):
            await lines.readline()
            await asyncio.sleep(5)
            shared = await _busy(extender, state, seconds, first=_RATE * 1000)
            memory = (resident() - before) / MEGABYTE
            extender.service.stop()
    print(
        f"of a core: {alone:.3f} without pages, {shared:.3f} with {_PAGES}: {shared - alone:.3f} (most: {_MOST_CORE})"
    )
    print(f"memory of {_PAGES} pages: {memory:+.1f} MB (most: {_MOST_MEMORY})")
    return int(shared - alone > _MOST_CORE or memory > _MOST_MEMORY)


def _state(nodes: int) -> ClusterState:
    state = ClusterState()
    objects = {
        NODES.kind: [synthetic.node(number, number + 1) for number in range(nodes)],
        SLICES.kind: [synthetic.resource_slice(number, number + 1) for number in range(nodes)],
        CLASSES.kind: [synthetic.device_class(0, 1)],
    }
    for resource in RESOURCES.values():
        state.replace(resource, objects.get(resource.kind, ()), nodes)
    return state


@contextlib.asynccontextmanager
async def _serving(app: object, settings: Settings) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = FurtherServer(server_config(app, settings, VERBS))  # type: ignore[arg-type]  # an ASGI application
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


async def _busy(extender: Extender, state: ClusterState, seconds: float, first: int) -> float:
    """The share of a core that this process takes while decisions and allocations come."""
    log, loop = extender.overview.decision_log, asyncio.get_running_loop()
    due, used, began = loop.time(), time.process_time(), loop.time()
    for number in range(int(seconds * _RATE)):
        with log.deciding("filter", ObjectKey("default", f"pod-{number}"), f"uid-{number}", share="default") as draft:
            draft.nodes(1, {"no free device for request gpu": 100})
        devices = len(state.snapshot.nodes) * synthetic.DEVICES_PER_NODE
        held = synthetic.claim((first + number * 7) % devices, devices + first + number)
        state.apply(Event(EventType.ADDED, CLAIMS, held))
        due += 1 / _RATE
        await asyncio.sleep(max(0.0, due - loop.time()))
    return (time.process_time() - used) / (loop.time() - began)


if __name__ == "__main__":
    sys.exit(main())
