"""The replicas of dra-extender as Prometheus and operators see them: metrics, logs, the lease."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from extender.kube.api import ObjectKey, RawObject
from tests.installed.site import MACHINES, NAMESPACE, Site
from tests.kit.controlplane.client import LEASES
from tests.kit.node.machine import Machine
from tests.kit.waiting import pause

LEASE: Final = ObjectKey(NAMESPACE, "dra-scheduler")
_OPERATIONS_PORT: Final = 8889
_SCRAPE_SECONDS: Final = 2.0
_SAMPLE: Final = re.compile(r"^(dra_extender_\w+(?:\{[^}]*\})?) ([0-9.e+-]+)$", re.MULTILINE)
_EXPECTED: Final = {
    "the machine has no time": "deadline|out of time|timeout|timed out",
    # Once kube-scheduler is told to end, it scores no node, and takes one without a name (RunScorePlugins in its
    # framework.go). The next one to lead takes the pod.
    "a scheduler ends": "Node: empty",
    # Another pod was bound between this one's filter and its bind.
    "the device was taken": "no free device",
}
_LINE: Final = re.compile(r"^\S+ (?:stdout|stderr) [FP] ?")


@dataclass(slots=True)
class Monitor:
    """The latest metrics of each replica that there was, by the pod's name."""

    site: Site
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Within, metrics are read every two seconds."""
        task = asyncio.create_task(self._scrape())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def total(self, pattern: str) -> float:
        """The sum of all samples whose name and labels match, of all replicas."""
        return sum(
            value for found in self.metrics.values() for name, value in found.items() if re.search(pattern, name)
        )

    async def _scrape(self) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=2) as http:
            while True:
                for pod in await self.site.replicas():
                    address = pod.get("status", {}).get("podIP")
                    # A replica that starts or ends does not answer.
                    with suppress(httpx.TransportError):
                        if address:
                            answer = await http.get(f"http://{address}:{_OPERATIONS_PORT}/metrics")
                            samples = {name: float(value) for name, value in _SAMPLE.findall(answer.text)}
                            self.metrics[pod["metadata"]["name"]] = samples
                await pause(_SCRAPE_SECONDS)


async def metrics_of(pod: RawObject, port: int) -> str:
    """What a pod tells Prometheus at a port."""
    async with httpx.AsyncClient(trust_env=False, timeout=10) as http:
        answer = await http.get(f"http://{pod['status']['podIP']}:{port}/metrics")
    assert answer.status_code == 200
    return answer.text


async def leader(site: Site) -> str:
    """The pod whose scheduler leads; empty if none does."""
    holder = (await site.client.get(LEASES, LEASE))["spec"].get("holderIdentity") or ""
    return str(holder).partition("_")[0]


def lines_of(container: str, pod: str = "dra-extender-*") -> Iterator[str]:
    """What the containers of all replicas have logged, those of pods that are gone as well."""
    for number in range(1, MACHINES + 1):
        for path in Machine(number).logs_of(f"{NAMESPACE}_{pod}_{container}_*.log"):
            for line in path.read_text(errors="replace").splitlines():
                yield _LINE.sub("", line)


def warnings_of(container: str) -> Counter[str]:
    """Warnings and errors in the logs of one of our containers, each without what differs from pod to pod."""
    found: Counter[str] = Counter()
    for line in lines_of(container):
        entry: dict[str, Any] = {"level": "error", "event": line}
        with suppress(json.JSONDecodeError):
            entry = json.loads(line)
        if entry.get("level") in ("warning", "error", "critical"):
            found[_without_names(f"{entry['level']}: {entry.get('event')} {entry.get('error', '')}".strip())] += 1
    return found


def errors_of_schedulers() -> Counter[str]:
    """Lines with the level error in the logs of kube-scheduler, each without what differs from pod to pod."""
    lines = (line for line in lines_of("kube-scheduler") if re.match(r"[EF]\d{4} ", line))
    return Counter(_without_names(line.partition("] ")[2]) for line in lines)


def refusals() -> list[str]:
    """Calls of schedulers that were not served, as the schedulers tell it.

    The scheduler tries each such pod again, and some are as they should be (`_EXPECTED`).
    """
    return [line for line in _not_served() if not re.search("|".join(_EXPECTED.values()), line)]


def expected_refusals() -> Counter[str]:
    """The other ones, by their cause."""
    told = list(_not_served())
    return Counter({cause: sum(bool(re.search(words, line)) for line in told) for cause, words in _EXPECTED.items()})


def _not_served() -> Iterator[str]:
    return (line for line in lines_of("kube-scheduler") if "Error scheduling pod" in line)


def _without_names(text: str) -> str:
    return re.sub(r"\b(pod-|dra-extender-)[\w-]+|[0-9a-f]{8}-[0-9a-f-]{27}|\d+", "…", text)


def ready(pods: Sequence[RawObject]) -> list[str]:
    """The names of those that are ready."""
    return [
        each["metadata"]["name"]
        for each in pods
        if any(c["type"] == "Ready" and c["status"] == "True" for c in each.get("status", {}).get("conditions", ()))
    ]
