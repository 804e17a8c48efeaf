"""What is wrong in the end: with the workloads still there, and after all of them are gone."""

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path

import httpx

from extender.answers.audit import audit_snapshot
from extender.faces.commands.audit import listed
from extender.kube.resources import CLAIMS, PODS
from tests.kit.controlplane.aftermath import is_allocated, losses
from tests.kit.controlplane.client import Client, key_of
from tests.kit.waiting import WaitError, wait_for_answer
from tests.soak.pods import Pods
from tests.soak.site import Site
from tests.soak.workloads import Workloads

SETTLE_SECONDS = 300.0
"""From the last happening until all pods run."""


async def wrong_at_rest(client: Client, site: Site, pods: Pods, workloads: Workloads) -> list[str]:
    """What is wrong once nothing happens any more: each finding names its object."""

    async def left() -> list[str]:
        waiting = [f"pod {key} has no node" for key in pods.waiting]
        jobs = [f"job {name} has not ended" for name in await workloads.jobs_left()]
        nodes = [f"node {name} is not ready" for name in await site.not_ready()]
        return [*waiting, *jobs, *nodes] or await _findings(client, workloads.namespace)

    return await _lasting(left)


async def wrong_when_empty(client: Client, url: str, workloads: Workloads) -> list[str]:
    """What is still held after all workloads are deleted: by the API server's objects, and by the extender's own view.

    Args:
        url: of the extender.
    """
    await workloads.clear()

    async def left() -> list[str]:
        held = [
            f"claim {key_of(each)} is allocated" for each in (await client.list(CLAIMS)).items if is_allocated(each)
        ]
        there = [f"pod {key_of(each)} is there" for each in (await client.list(PODS, workloads.namespace)).items]
        return [*held, *there] or _counted(await metrics(url))

    return await _lasting(left)


def faults(log: Path) -> list[str]:
    """The unexpected errors in the extender's log, each by its line."""
    return [line for line in log.read_text().splitlines() if '"event": "fault"' in line]


async def metrics(url: str) -> dict[str, float]:
    """The extender's metrics, by name with labels."""
    async with httpx.AsyncClient(trust_env=False) as http:
        text = (await http.get(f"{url}/metrics")).raise_for_status().text
    return {name: float(value) for name, value in re.findall(r"^(dra_extender\S+) (\S+)$", text, re.MULTILINE)}


def _counted(found: Mapping[str, float]) -> list[str]:
    """What the extender should count none of, in an empty cluster."""
    taken = [name for name in found if name.startswith("dra_extender_devices{") and '"free"' not in name]
    never = ["dra_extender_clashes_total", "dra_extender_lost_claims_total", "dra_extender_allocations_in_flight"]
    return [f"{name} is {found[name]:g}" for name in (*taken, *never) if found[name]]


async def _findings(client: Client, namespace: str) -> list[str]:
    snapshot = await listed(client)
    return [*map(str, audit_snapshot(snapshot)), *await losses(client, namespace)]


async def _lasting(left: Callable[[], Awaitable[list[str]]]) -> list[str]:
    """What is left when it has had its time."""
    with suppress(WaitError):
        return await wait_for_answer(
            left, lambda found: not found, "nothing is wrong", within=SETTLE_SECONDS, every=1.0
        )
    return await left()
