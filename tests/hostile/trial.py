"""A service under attack: cases are delivered, and whatever goes wrong is traced to the case that brings it about."""

import asyncio
import contextlib
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import orjson

from extender.kube.resources import Resource
from tests.hostile.exchange import AnswerError, exchange
from tests.hostile.findings import Finding, Findings
from tests.hostile.objects import HostileObject
from tests.hostile.requests import HostileRequest
from tests.hostile.service import NotReadyError, RunningService
from tests.hostile.values import DEPTHS
from tests.kit.servers.raw import RawApiServer

Case: TypeAlias = HostileObject | HostileRequest
Faults: TypeAlias = dict[str, str]
"""Signature to what was seen."""

_FOLLOWED_SECONDS: Final = (4.0, 8.0)
"""Until a list with one object, or with many, has been taken in."""

_ANSWER_SECONDS: Final = 8.0
_ENOUGH: Final = 1
"""Cases of one value that brought a fault about: those like them are left out after that, to find others."""

_INTERNAL: Final = "internal error in"
_SILENT: Final = "no answer"
_STUCK: Final = "the process does not answer anybody"
_ATTACKERS: Final = 4
_PROBE_SECONDS: Final = 0.01
_LOG_SECONDS: Final = 0.02
"""Until the service's writer of lines has written what there is. No line may come, so there is nothing to wait for."""
_LIVEZ: Final = b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
_START: Final = b"POST /autoscaler/start HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that was sent, and when; its number and value, because bodies have tens of megabytes.

    Attributes:
        fault: what is wrong with the answer; empty if nothing is.
    """

    number: int
    value: str
    began: float
    ended: float
    fault: str


@dataclass(frozen=True, slots=True)
class Span:
    """When something was done, by the monotonic clock, and what."""

    began: float
    ended: float
    told: str


@dataclass(slots=True)
class Trial:
    """Delivers cases to a service that follows an API server.

    Attributes:
        spans: when the service was under attack: only then the others' waits count.
        tracing: seconds that may be spent on finding the cases behind faults; after that, groups are left out.
        left_out: cases that were not delivered, since others like them had been found out.
        sent: requests that took long, or went wrong.
        slow: how long the process did not answer while a case was delivered alone, by the case's label.
    """

    service: RunningService
    api: RawApiServer
    findings: Findings = field(default_factory=Findings)
    spans: list[Span] = field(default_factory=list)
    tracing: float = 120.0
    delivered: int = 0
    left_out: int = 0
    sent: list[Sent] = field(default_factory=list)
    _session: bytes = b"none"
    _bad: Counter[tuple[str, str]] = field(default_factory=Counter)

    def note(self, finding: Finding) -> None:
        """A fault, told at once where it is new."""
        if finding.signature not in self.findings.smallest:
            print(f"FAULT: {finding.signature}: {finding.label or 'not traced'}, {finding.told[:200]}", file=sys.stderr)
        self.findings.add(finding)

    # --- objects and requests, many at once -------------------------------------------------------------------

    async def attack(self, cases: Iterable[Case]) -> None:
        """Deliver cases of one sort together, and trace what goes wrong."""
        group = list(cases)
        wanted = [case for case in group if not self._is_known(case)]
        self.left_out += len(group) - len(wanted)
        if not wanted:
            return
        self.delivered += len(wanted)
        if not self.service.alive:
            await self.service.restart()
        began = time.monotonic()
        faults = await self._deliver(wanted)
        self.spans.append(Span(began, time.monotonic(), f"{wanted[0].label} to {wanted[-1].label}"))
        if faults:
            await self._trace(wanted, faults)

    async def alone(self, case: Case) -> tuple[Faults, float]:
        """Deliver one case to a service that is well: what goes wrong, and how long the process did not answer."""
        if not self.service.alive:
            await self.service.restart()
        prober = Prober(self.service.port)
        async with prober.probing():
            faults = await self._deliver([case])
        return faults, prober.longest

    def _is_known(self, case: Case) -> bool:
        return self._bad[type(case).__name__, case.value] >= _ENOUGH

    async def _trace(self, cases: Sequence[Case], faults: Faults) -> None:
        """Find the cases behind faults, by delivering halves again; what does not come again is noted as it was."""
        if len(cases) == 1:
            case = cases[0]
            self._bad[type(case).__name__, case.value] += 1
            for signature, detail in faults.items():
                self.note(Finding(signature, case.label, case.told, case.size, detail))
            return
        again: set[str] = set()
        left_out = 0
        for part in self._parts(cases):
            wanted = [case for case in part if not self._is_known(case)]
            if self.tracing <= 0 or not wanted:
                left_out += len(part)
                continue
            began = time.monotonic()
            found = await self._again(wanted)
            self.tracing -= time.monotonic() - began
            if found:
                again |= found.keys()
                await self._trace(wanted, found)
        for signature, detail in faults.items():
            if signature not in (again | self.findings.smallest.keys()) and not left_out:
                told = "; ".join(f"{case.label} ({case.told})" for case in cases[-8:])
                self.note(Finding(signature, "", f"not again alone; sent last: {told}", 0, detail))

    def _parts(self, cases: Sequence[Case]) -> list[Sequence[Case]]:
        """Those that are suspect by themselves, one of each sort; and the others in halves."""
        at_fault = {each.number for each in self.sent if each.fault}
        suspects = {
            case.value: case
            for case in cases
            if (case.number in at_fault if isinstance(case, HostileRequest) else _is_odd(case))
        }
        others = [case for case in cases if case.value not in suspects]
        return [*([each] for each in suspects.values()), *(_halves(others) if len(others) > 1 else [others])]

    async def _again(self, cases: Sequence[Case]) -> Faults:
        if not self.service.alive:
            await self.service.restart()
        return await self._deliver(cases)

    # --- delivering -------------------------------------------------------------------------------------------

    async def _deliver(self, cases: Sequence[Case]) -> Faults:
        """Deliver all, and look what has become of the service; it is well again afterwards, or not alive."""
        faults: Faults = {}
        requests = [case for case in cases if isinstance(case, HostileRequest)]
        objects = [case for case in cases if isinstance(case, HostileObject)]
        if requests:
            faults |= await self._send_all(requests)
        if objects:
            faults |= await self._show_all(objects)
        await asyncio.sleep(_LOG_SECONDS)
        told = dict(self.service.faults())
        if any(signature.startswith("verb failed") for signature in told):
            faults = {signature: text for signature, text in faults.items() if not signature.startswith(_INTERNAL)}
        faults |= told
        if not self.service.alive:
            faults["the process has ended"] = next(reversed(faults.values()), "")
        elif _STUCK in faults or any(signature.startswith("not followed") for signature in faults):
            with contextlib.suppress(NotReadyError):
                await self.service.restart()
        self.service.measure()
        return faults

    async def _show_all(self, objects: Sequence[HostileObject]) -> Faults:
        """Tell watches of objects and have them listed; half of them are in the list alone."""
        kinds: dict[str, list[HostileObject]] = defaultdict(list)
        for each in objects:
            kinds[each.resource.plural].append(each)
        shown = await asyncio.gather(*(self._show(of[0].resource, of) for of in kinds.values()))
        return {f"not followed any more: {plural}": "" for plural, ok in zip(kinds, shown, strict=True) if not ok}

    async def _show(self, resource: Resource, objects: Sequence[HostileObject]) -> bool:
        for each in objects:
            if each.number % 2 or not each.is_json:
                self.api.tell(resource, "ADDED", each.text)
            if each.is_json:
                self.api.load(resource, ("hostile", each.name), each.text)
        self.api.bookmark(resource)
        revision = self.api.expire(resource)
        try:
            is_followed = await self._followed(resource, revision, _FOLLOWED_SECONDS[len(objects) > 1])
            self.api.bookmark(resource)  # a watch that brings something ends the row of failures, and its pauses
            return is_followed
        finally:
            for each in objects:
                self.api.unload(resource, ("hostile", each.name))

    async def _followed(self, resource: Resource, revision: int, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.service.alive and time.monotonic() < deadline:
            if await self.api.followed(resource, revision, 0.5):
                return True
        return False

    async def _send_all(self, requests: Sequence[HostileRequest]) -> Faults:
        """Send requests, some at the same time."""
        await self._renew_session()
        waiting = iter(requests)
        sent: list[Sent] = []
        is_well = True

        async def attacker() -> None:
            nonlocal is_well
            for request in waiting:
                if not (self.service.alive and is_well):
                    return
                sent.append(await self._send(request))
                if sent[-1].fault.startswith(_SILENT) and not await self._answers():
                    is_well = False

        await asyncio.gather(*(attacker() for _ in range(_ATTACKERS)))
        self.sent += [each for each in sent if each.fault or each.ended - each.began > 0.05]
        faults = {each.fault: "" for each in sent if each.fault}
        return faults if is_well or not self.service.alive else {_STUCK: "", **faults}

    async def _answers(self) -> bool:
        """Whether the process does anything at all."""
        with contextlib.suppress(AnswerError, OSError):
            await exchange(self.service.port, _LIVEZ, seconds=_ANSWER_SECONDS)
            return True
        return False

    async def _send(self, request: HostileRequest) -> Sent:
        began = time.monotonic()
        data = request.as_bytes(self._session)
        fault = ""
        try:
            answer = await exchange(self.service.port, data, seconds=_ANSWER_SECONDS if request.answered else 0.3)
        except (AnswerError, OSError) as error:
            if request.answered and "Timeout" in str(error):
                fault = f"{_SILENT} within {_ANSWER_SECONDS:g} s"
        else:
            fault = fault_of(answer)
        return Sent(request.number, request.value, began, time.monotonic(), fault)

    async def _renew_session(self) -> None:
        with contextlib.suppress(AnswerError, OSError, orjson.JSONDecodeError, KeyError):
            answer = await exchange(self.service.port, _START, seconds=_ANSWER_SECONDS)
            self._session = orjson.loads(answer.partition(b"\r\n\r\n")[2])["Session"].encode()


def fault_of(answer: bytes) -> str:
    """What no answer may say."""
    status = answer[9:12].decode("latin-1")
    if status.startswith("5") and status != "503":
        return f"answered with status {status}"
    _, internal, verb = answer.partition(_INTERNAL.encode())
    return f"{_INTERNAL}{verb[:13].partition(b';')[0].decode('utf-8', 'replace')}" if internal else ""


def _is_odd(case: HostileObject) -> bool:
    """Whether a usual decoder refuses an object: then others may, too."""
    try:
        orjson.loads(case.text)
    except orjson.JSONDecodeError:
        return True
    return any(f"{depth} deep" in case.value for depth in DEPTHS)


def _halves(cases: Sequence[Case]) -> list[Sequence[Case]]:
    middle = len(cases) // 2
    return [cases[:middle], cases[middle:]]


def grouped(cases: Iterable[Case], size: int) -> Iterator[list[Case]]:
    """Cases in groups of at most this size."""
    group: list[Case] = []
    for case in cases:
        group.append(case)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


@dataclass(slots=True)
class Prober:
    """Asks a process again and again whether it answers.

    Attributes:
        longest: seconds that it did not.
    """

    port: int
    longest: float = 0.0

    @contextlib.asynccontextmanager
    async def probing(self) -> AsyncIterator[None]:
        """Ask as long as the context lasts."""
        await self._ask()
        self.longest = 0.0
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            await self._ask()
            await asyncio.sleep(_PROBE_SECONDS)

    async def _ask(self) -> None:
        began = time.monotonic()
        try:
            await exchange(self.port, _LIVEZ, seconds=_ANSWER_SECONDS)
        except (AnswerError, OSError):
            return
        finally:
            self.longest = max(self.longest, time.monotonic() - began)
