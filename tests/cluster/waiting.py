"""How long pods wait that could run, while the leader changes, replicas are replaced, and the API server is away.

Units follow each other in relays: the next one waits for what the last one has. So at any time some wait for devices, a
quota, a gang, a victim or a controller that nobody asks.

As a program: ``python -m tests.cluster.waiting``.
"""

import argparse
import asyncio
import math
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from pathlib import Path
from random import Random
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Final

from extender.cluster.objects.claims import ALLOCATION_MODE, IMMEDIATE
from extender.cluster.objects.pods import GROUP, GROUP_SIZE
from extender.kube.api import ApiError, ObjectKey, OutcomeUnknownError, RawObject
from extender.kube.resources import CLAIMS, CLASSES, DEVICE_QUOTAS, NODES, PODS, SLICES, TEMPLATES, Resource
from tests.kit.controlplane.aftermath import is_allocated, why_pending
from tests.kit.controlplane.binaries import find_binaries
from tests.kit.controlplane.client import NAMESPACES, PRIORITIES, Client, connect, key_of
from tests.kit.controlplane.components import ALL_VERSIONS, START_SECONDS, ControlPlane, control_plane
from tests.kit.controlplane.definitions import DEVICE_QUOTA, define
from tests.kit.controlplane.replicas import Replica, flushed, leader, running_replicas
from tests.kit.controlplane.scenario import by_template, findings
from tests.kit.objects.manifests import (
    add_node,
    claim,
    claim_spec,
    device_class,
    is_bound,
    pod,
    priority_class,
    resource_slice,
    template,
)
from tests.kit.objects.manifests import namespace as a_namespace
from tests.kit.objects.quotas import quota
from tests.kit.waiting import pause, wait_for_answer

LOOK_SECONDS: Final = 0.2
"""Between two looks at pods and claims: how exact the figures are."""

LIFE: Final = (1.0, 3.0)
"""Seconds for which a unit has what it got."""

AFTERWARDS: Final = 2
"""Units of each relay that must get what they wait for after a disturbance, before the next one begins."""

STUCK_SECONDS: Final = 120.0
"""After the end of a disturbance, until then that must have happened."""

LEADING_SECONDS: Final = 60.0
"""Until another scheduler leads: the lease has to expire."""

HANDOVER_SECONDS: Final = 5.0
"""Between two changes of the leader, where it changes again and again."""

NODE_NAMES: Final = ("waiting-0", "waiting-1")
IMPORTANT: Final = "waiting-important"


@dataclass(frozen=True, slots=True)
class Kind:
    """What the units of a relay are, and what they wait for.

    Attributes:
        devices: of the relay.
        pods: of each unit; 0: a unit is an immediate claim.
        limit: of the devices that a quota allows; None: there is no quota.
        waits: each unit comes while the last one has what it needs.
        evicts: every other unit has a high priority and evicts the last one.
    """

    devices: int = 1
    pods: int = 1
    limit: int | None = None
    waits: bool = True
    evicts: bool = False


KINDS: Final[Mapping[str, Kind]] = {
    "nothing": Kind(devices=4, waits=False),
    "device": Kind(),
    "quota": Kind(devices=4, limit=1),
    "gang": Kind(devices=2, pods=2),
    "victim": Kind(evicts=True),
    "immediate claim": Kind(pods=0),
}
"""By what a unit waits for."""


@dataclass(slots=True)
class Unit:
    """Pods that need a device each and go together, or an immediate claim.

    Attributes:
        name: its pods and claims have longer names that begin with it.
        pods: how many.
        able: since when all its claims exist, by the event loop's clock, like the next two.
        placed: since when all its pods have a node, or its claim is allocated.
        gone: since when its pods, or its claim, do not exist any more.
        freed: since when it has no devices any more.
    """

    name: str
    pods: int
    able: float = math.inf
    placed: float = math.inf
    gone: float = math.inf
    freed: float = math.inf

    def see(self, now: float, pods: Iterable[RawObject], claims: Iterable[RawObject]) -> None:
        """Take in the pods and claims of its namespace."""
        own = [each for each in claims if key_of(each).name.startswith(self.name)]
        own_pods = [each for each in pods if key_of(each).name.startswith(self.name)]
        has_devices = any(map(is_allocated, own))
        if len(own) >= max(self.pods, 1):
            self.able = min(self.able, now)
        if sum(map(is_bound, own_pods)) == self.pods and (self.pods or has_devices):
            self.placed = min(self.placed, now)
        if self.placed < now and not (own_pods if self.pods else own):
            self.gone = min(self.gone, now)
        if self.placed < now and not has_devices:
            self.freed = min(self.freed, now)


@dataclass(frozen=True, slots=True)
class Wait:
    """A unit that has waited for so many seconds since it could run."""

    kind: str
    unit: str
    seconds: float


@dataclass(slots=True)
class Scene:
    """A cluster with two replicas, and its relays.

    Attributes:
        plane: its API server may be away for a while.
        away_seconds: for so long; other disturbances last as long.
        namespace: of all pods and claims.
        relays: of all kinds.
        back: when the API server was back, by the event loop's clock.
        waits: of all units so far that got what they waited for.
    """

    client: Client
    plane: ControlPlane
    replicas: Sequence[Replica]
    namespace: str
    random: Random
    away_seconds: float
    relays: "Sequence[Relay]" = ()
    back: float = 0.0
    waits: list[Wait] = field(default_factory=list)
    units: dict[str, Unit] = field(default_factory=dict)
    _news: asyncio.Condition = field(default_factory=asyncio.Condition, init=False)

    async def observe(self) -> None:
        """Look at pods and claims again and again, until cancelled."""
        while True:
            with suppress(OutcomeUnknownError, ApiError):
                pods = (await self.client.list(PODS, self.namespace)).items
                claims = (await self.client.list(CLAIMS, self.namespace)).items
                now = asyncio.get_running_loop().time()
                for each in self.units.values():
                    each.see(now, pods, claims)
                async with self._news:
                    self._news.notify_all()
            await pause(LOOK_SECONDS)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds of the units."""
        async with self._news:
            await self._news.wait_for(holds)

    async def create(self, resource: Resource, obj: RawObject) -> None:
        """Create an object, however often the API server does not answer."""
        await _insist(lambda: self.client.create(resource, obj), done="AlreadyExists")

    async def delete(self, resource: Resource, name: str) -> None:
        """Delete an object, however often the API server does not answer."""
        key = ObjectKey(self.namespace, name)
        await _insist(lambda: self.client.delete(resource, key), done="NotFound")

    async def disturbed(self, disturb: "Callable[[Scene], Awaitable[None]]") -> list[Wait]:
        """Let something happen, and wait until all relays go on; the waits that have ended meanwhile.

        Raises:
            AssertionError: some relays do not go on.
        """
        first = len(self.waits)
        await disturb(self)
        after = len(self.waits)
        try:
            async with asyncio.timeout(STUCK_SECONDS):
                await self.until(lambda: not self._behind(after))
        except TimeoutError:
            stuck = ", ".join(self._behind(after))
            raise AssertionError(f"these do not go on: {stuck}; {await self.pending()}") from None
        return self.waits[first:]

    def _behind(self, after: int) -> list[str]:
        """The relays of which few units have got what they waited for since some number of waits."""
        since = [_relay_of(each.unit) for each in self.waits[after:]]
        return [each.name for each in self.relays if since.count(each.name) < AFTERWARDS]

    async def pending(self) -> dict[str, str]:
        """The pods without a node, and why they have none."""
        pods = (await self.client.list(PODS, self.namespace)).items
        return {key_of(each).name: why_pending(each) for each in pods if not is_bound(each)}

    async def unexplained(self) -> list[str]:
        """The pods without a node of which nobody has said why."""
        return [name for name, why in (await self.pending()).items() if not why]


async def _insist(call: Callable[[], Awaitable[object]], *, done: str) -> None:
    """Call until that has worked.

    Args:
        call: to the API server.
        done: the reason of a refusal that says that an earlier call has worked.
    """
    while True:
        try:
            await call()
        except OutcomeUnknownError:
            await pause(LOOK_SECONDS)
        except ApiError as error:
            if error.reason == done:
                return
            if error.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS}:
                raise
            await pause(LOOK_SECONDS)  # it has just started, and does not know its own objects yet
        else:
            return


@dataclass(slots=True)
class Relay:
    """Units that follow each other.

    Attributes:
        label: what its units wait for: a key of `KINDS`.
        name: of its class and its template, and how the names of its units begin.
    """

    scene: Scene
    label: str
    name: str

    @property
    def kind(self) -> Kind:
        """What its units are."""
        return KINDS[self.label]

    async def run(self) -> None:
        """Let unit after unit come and go, until cancelled."""
        kind, last = self.kind, await self.add(0)
        await self.until(last, "placed")
        for number in count(1):
            await self._live()
            evicts = kind.evicts and bool(number % 2)
            unit = await self.add(number) if kind.waits else None
            if not evicts:
                await self._live()
                await self.remove(last)
                await self.until(last, "freed")
            unit = unit or await self.add(number)
            await self.until(unit, "placed")
            self._note(last, unit, evicts=evicts)
            del self.scene.units[last.name]
            last = unit

    def _note(self, last: Unit, unit: Unit, *, evicts: bool) -> None:
        """Note how long a unit has waited since it could run.

        What kube-controller-manager takes to free the devices of pods that are gone does not count.
        """
        back = self.scene.back if self.scene.back < unit.placed else 0.0
        able = max(unit.able, back)
        began = able + max(0.0, last.freed - max(last.gone, back)) if evicts else max(able, last.freed)
        self.scene.waits.append(Wait(self.label, unit.name, max(0.0, unit.placed - began)))

    async def until(self, unit: Unit, seen: str) -> None:
        """Wait until something was seen of a unit: the name of one of its times."""
        await self.scene.until(lambda: getattr(unit, seen) < math.inf)

    async def _live(self) -> None:
        await pause(self.scene.random.uniform(*LIFE) / 2)

    async def add(self, number: int) -> Unit:
        """Create the next unit."""
        scene, kind, unit = self.scene, self.kind, Unit(f"{self.name}-{number}-", self.kind.pods)
        scene.units[unit.name] = unit
        if not kind.pods:
            made = claim(scene.namespace, f"{unit.name}0", claim_spec(1, self.name))
            made["metadata"]["annotations"] = {ALLOCATION_MODE: IMMEDIATE}
            await scene.create(CLAIMS, made)
        priority = {"priorityClassName": IMPORTANT} if kind.evicts and number % 2 else {}
        for index in range(kind.pods):
            name, used = f"{unit.name}{index}", [by_template(self.name)]
            made = pod(scene.namespace, name, claims=used, terminationGracePeriodSeconds=0, **priority)
            if kind.pods > 1:
                made["metadata"]["annotations"] = {GROUP: unit.name.strip("-"), GROUP_SIZE: str(kind.pods)}
            await scene.create(PODS, made)
        return unit

    async def remove(self, unit: Unit) -> None:
        """Delete a unit."""
        for index in range(max(unit.pods, 1)):
            await self.scene.delete(PODS if unit.pods else CLAIMS, f"{unit.name}{index}")


def _relay_of(unit: str) -> str:
    """``gang-0`` of ``gang-0-17-``."""
    return unit.strip("-").rpartition("-")[0]


async def calm(_scene: Scene) -> None:
    """Nothing happens."""


async def extender_killed(scene: Scene) -> None:
    """SIGKILL ends the extender that is asked; it starts again at once."""
    leading = await leader(scene.replicas, within=LEADING_SECONDS)
    leading.extender.process.kill()
    await leading.start()


async def leader_killed(scene: Scene) -> None:
    """SIGKILL ends the leading scheduler and its extender. They start again when another scheduler leads."""
    leading = await leader(scene.replicas, within=LEADING_SECONDS)
    await leading.kill()
    await leader(scene.replicas, within=LEADING_SECONDS)
    await leading.start()


async def scheduler_killed(scene: Scene) -> None:
    """SIGKILL ends the leading scheduler alone. It starts again at once; its extender goes on."""
    leading = await leader(scene.replicas, within=LEADING_SECONDS)
    leading.scheduler.process.kill()
    leading.leads = False
    await leading.start()
    await leader(scene.replicas, within=LEADING_SECONDS)


async def leader_stopped(scene: Scene) -> None:
    """SIGTERM ends the leading scheduler and its extender. They start again when another scheduler leads."""
    leading = await leader(scene.replicas, within=LEADING_SECONDS)
    await leading.stop()
    await leader(scene.replicas, within=LEADING_SECONDS)
    await leading.start()


async def upgraded(scene: Scene) -> None:
    """SIGTERM ends one replica after the other, the leading one first. Each starts again before the next one ends."""
    first = await leader(scene.replicas, within=LEADING_SECONDS)
    for each in sorted(scene.replicas, key=lambda replica: replica is not first):
        await each.stop()
        await each.start()
    await leader(scene.replicas, within=LEADING_SECONDS)


async def server_killed(scene: Scene) -> None:
    """The API server is killed, and is away for a while: connections are refused."""
    server = scene.plane.apiserver
    await asyncio.to_thread(server.kill)
    await pause(scene.away_seconds)
    await asyncio.to_thread(server.start, within=START_SECONDS)
    scene.back = asyncio.get_running_loop().time()


async def server_silent(scene: Scene) -> None:
    """The API server stands still for a while: connections stay, and nothing is answered."""
    with scene.plane.apiserver.paused():
        await pause(scene.away_seconds)
    scene.back = asyncio.get_running_loop().time()


async def etcd_stopped(scene: Scene) -> None:
    """etcd stands still for a while: the API server answers, and its answers are errors, or late."""
    with scene.plane.components["etcd"].paused():
        await pause(scene.away_seconds)
    scene.back = asyncio.get_running_loop().time()


async def handed_over(scene: Scene) -> None:
    """The leading scheduler and its extender are told to end, every five seconds, and start again at once."""
    until = asyncio.get_running_loop().time() + scene.away_seconds
    while asyncio.get_running_loop().time() < until:
        leading = await leader(scene.replicas, within=LEADING_SECONDS)
        await leading.stop()
        await asyncio.gather(leading.start(), pause(HANDOVER_SECONDS))


async def leader_frozen(scene: Scene) -> None:
    """The leading scheduler and its extender stand still for a while; another scheduler leads, and they go on."""
    leading = await leader(scene.replicas, within=LEADING_SECONDS)
    async with leading.frozen():
        await pause(scene.away_seconds)
    await leader(scene.replicas, within=LEADING_SECONDS)


DISTURBANCES: Final[Mapping[str, Callable[[Scene], Awaitable[None]]]] = {
    "nothing": calm,
    "the extender is killed": extender_killed,
    "the leading scheduler is killed": scheduler_killed,
    "both are killed": leader_killed,
    "both are told to end": leader_stopped,
    "rolling upgrade": upgraded,
    "the API server is killed": server_killed,
    "the API server is silent": server_silent,
    "etcd stands still": etcd_stopped,
    "the leader changes every 5 s": handed_over,
    "the leader stands still": leader_frozen,
}
"""By what happens."""


@asynccontextmanager
async def scene(
    client: Client, plane: ControlPlane, namespace: str, *, relays: int, seed: int, away_seconds: float
) -> AsyncIterator[Scene]:
    """A scene whose relays have not begun. At its end everything is deleted, and the audit has to find nothing.

    Args:
        client: an administrator's.
        plane: with the definition of DeviceQuotas.
        namespace: that is there, and empty.
        relays: of each kind.
        seed: of all that is random.
        away_seconds: for which the API server is away, or another disturbance lasts.
    """
    names = {f"{label.split()[0]}-{number}": label for label in KINDS for number in range(relays)}
    await client.create(PRIORITIES, priority_class(IMPORTANT, 1000))
    for name in NODE_NAMES:
        await add_node(client, name)
    for index, (name, label) in enumerate(names.items()):
        await _furnish(client, namespace, name, KINDS[label], NODE_NAMES[index % len(NODE_NAMES)])
    try:
        async with running_replicas(client, plane) as replicas:
            random = Random(seed)  # noqa: S311 - it decides how long units live, and that may be guessed
            found = Scene(client, plane, replicas, namespace, random, away_seconds)
            found.relays = [Relay(found, label, name) for name, label in names.items()]
            async with _beside(found.observe()):
                yield found
            # Pods and claims are read one after the other, while units still end.
            await wait_for_answer(
                lambda: findings(client, namespace), lambda wrong: not wrong, "nothing is wrong", within=10
            )
    finally:
        await _clear(client, namespace, names)


def going(found: Scene) -> AbstractAsyncContextManager[None]:
    """Within, the relays of a scene go on all the time."""
    return _beside(*(each.run() for each in found.relays))


@asynccontextmanager
async def _beside(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Within, something goes on that ends only with an error."""
    async with asyncio.TaskGroup() as tasks:
        begun = [tasks.create_task(each) for each in work]
        yield
        for task in begun:
            task.cancel()


async def _furnish(client: Client, namespace: str, name: str, kind: Kind, node: str) -> None:
    """A class of its own for a relay, its devices, and its quota."""
    driver = f"{name}.example.com"
    await client.create(CLASSES, device_class(name, driver))
    devices = [{"name": f"device-{number}"} for number in range(kind.devices)]
    await client.create(SLICES, resource_slice(name, node, devices, driver=driver))
    await client.create(TEMPLATES, template(namespace, name, claim_spec(1, name)))
    if kind.limit is not None:
        limit = {"name": "devices", "deviceClassName": name, "devices": kind.limit}
        await client.create(DEVICE_QUOTAS, quota(limit, namespace=namespace, name=name))


async def _clear(client: Client, namespace: str, names: Iterable[str]) -> None:
    for resource in (PODS, CLAIMS, DEVICE_QUOTAS):
        for each in (await client.list(resource, namespace)).items:
            with suppress(ApiError):  # the claims of a pod go with it
                await client.delete(resource, key_of(each))
    for name in names:
        await client.delete(SLICES, ObjectKey("", name))
        await client.delete(CLASSES, ObjectKey("", name))
    for name in NODE_NAMES:
        await client.delete(NODES, ObjectKey("", name))
    await client.delete(PRIORITIES, ObjectKey("", IMPORTANT))


def longest(waits: Iterable[Wait]) -> dict[str, float]:
    """The longest wait by what was waited for."""
    found: dict[str, float] = {}
    for each in waits:
        found[each.kind] = max(found.get(each.kind, 0.0), each.seconds)
    return found


def main(arguments: Sequence[str]) -> None:
    """Let everything happen on a control plane of its own, and show the longest waits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=DISTURBANCES, default=list(DISTURBANCES), help="what happens")
    parser.add_argument("--rounds", type=int, default=3, help="how often each of it happens")
    parser.add_argument("--relays", type=int, default=2, help="of each kind")
    parser.add_argument(
        "--away",
        type=float,
        default=60.0,
        help="seconds for which the API server is away, and for which other disturbances last",
    )
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="of all that is random")
    asked = parser.parse_args(arguments)
    _show(str(asked))
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.default_int_handler)  # what was started is stopped, as for Ctrl-C
    if asyncio.run(_run(asked)):
        sys.exit("kube-scheduler has ended waits of pods after five minutes")


@contextmanager
def _logs() -> Iterator[Path]:
    """A folder for the logs of all programs. After an error it stays, and its name is told."""
    folder = Path(mkdtemp(prefix="dra-extender-waiting-"))
    try:
        yield folder
    except BaseException:
        _show(f"logs: {folder}")
        raise
    rmtree(folder)


async def _run(asked: argparse.Namespace) -> int:
    with _logs() as logs, control_plane(find_binaries(os.environ), logs, logs, ALL_VERSIONS) as plane:
        async with connect(plane.access()) as client:
            await define(client, DEVICE_QUOTA)
            await client.create(NAMESPACES, a_namespace("waiting"))
            setting = scene(client, plane, "waiting", relays=asked.relays, seed=asked.seed, away_seconds=asked.away)
            async with setting as running, going(running):
                await _disturb(running, asked.only, asked.rounds)
            _show(f"waits that kube-scheduler has ended after five minutes: {flushed(running.replicas)}")
            return flushed(running.replicas)


async def _disturb(running: Scene, names: Sequence[str], rounds: int) -> None:
    """Let everything happen, and show the longest waits."""
    table: dict[str, list[Wait]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            table[name] += await running.disturbed(DISTURBANCES[name])
            _show(f"load {os.getloadavg()[0]:.1f}; {name}: {longest(table[name])}")
    _show(f"| what happens | units | {' | '.join(KINDS)} |")
    for name, waits in table.items():
        found = longest(waits)
        _show(f"| {name} | {len(waits)} | {' | '.join(f'{found[kind]:.1f}' for kind in KINDS)} |")


def _show(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
