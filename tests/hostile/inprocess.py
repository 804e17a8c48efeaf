"""Without sockets: hostile objects into a state, hostile selectors on a device, hostile requests to the application.

Only an object's own errors are allowed, and nothing may take much longer than it should.
"""

import asyncio
import gc
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import orjson
import structlog

from allocator import Device, Selectors, parse_slice
from allocator.cel import CompileError, EvaluationError
from extender.cluster.cluster_state import ClusterState
from extender.kube.api import Event, EventType
from tests.hostile.findings import Finding, Findings, signature_of
from tests.hostile.objects import HostileObject, HostileObjects
from tests.hostile.requests import HostileRequest, HostileRequests
from tests.hostile.scene import chosen_selectors, scene
from tests.hostile.selectors import HostileSelector
from tests.hostile.specimens import specimens
from tests.hostile.trial import fault_of
from tests.kit.clusters import Cluster

_LOOPS: Final = 3_000_000
"""Empty loops that take about 100 ms where this was written: what is slow is told by their time."""

_TOO_SLOW: Final = 60
"""Times that: a fault by itself, also by the time of loops right afterwards. Two lists that are 200 deep need 2 s:
checking takes the cube of the depth."""

_LONGEST_BODY: Final = 5_000_000
_AT_ONCE: Final = 500
_SHOWN: Final = 10

Message = MutableMapping[str, Any]


@dataclass(slots=True)
class Found:
    """What a run in this process has seen.

    Attributes:
        unit: seconds that are slow on this machine.
        counts: of what was delivered.
        slow: seconds of processor time, label, words.
    """

    unit: float
    findings: Findings = field(default_factory=Findings)
    counts: dict[str, int] = field(default_factory=dict)
    slow: list[tuple[float, str, str]] = field(default_factory=list)

    @property
    def well(self) -> bool:
        """Whether there was no fault."""
        return not len(self.findings)

    def time(self, began: float, label: str, told: str, size: int) -> None:
        """Note a case that took long, by the processor time at which it began."""
        seconds = time.process_time() - began
        if seconds > self.unit:
            self.slow.append((seconds, label, told))
        if seconds > _TOO_SLOW * self.unit and seconds > _TOO_SLOW * slow_seconds():
            self.findings.add(
                Finding(f"takes too long: {told.partition(':')[0]}", label, told, size, f"{seconds:.1f} s")
            )

    def count(self, what: str) -> None:
        """One more."""
        self.counts[what] = self.counts.get(what, 0) + 1


def run(seed: int, objects: int, selectors: int, requests: int) -> Found:
    """Deliver this number of objects, selectors and requests."""
    found = Found(slow_seconds())
    made = HostileObjects(seed)
    gc.disable()  # a collection is nobody's fault
    try:
        for number in range(objects):
            _object(found, made.make(number))
            _tidy(number)
        device, known = _device(), Selectors()
        for number, selector in enumerate(chosen_selectors(seed, selectors)):
            _selector(found, selector, device, known)
            _tidy(number)
        asyncio.run(_requests(found, HostileRequests(seed, selectors), range(requests), seed, selectors))
    finally:
        gc.enable()
    return found


def only(seed: int, selectors: int, sort: str, number: int) -> int:
    """Deliver one case; the status to end with."""
    found = Found(slow_seconds())
    if sort == "object":
        _object(found, HostileObjects(seed).make(number))
    elif sort == "selector":
        selector = next(each for each in chosen_selectors(seed, sys.maxsize) if each.number == number)
        print(selector.expression)
        _selector(found, selector, _device(), Selectors())
    else:
        asyncio.run(_requests(found, HostileRequests(seed, selectors), range(number, number + 1), seed, selectors))
    print("in this process:", *lines(found), sep="\n")
    for each in found.findings:
        print(f"FAULT: {each.signature}\n{each.told}\n{each.detail[-2000:]}")
    return 0 if found.well else 1


def lines(found: Found) -> Iterator[str]:
    """Counts, and what was slow."""
    counts = ", ".join(f"{number:,} {what}" for what, number in found.counts.items())
    slow = f"{len(found.slow)} cases took longer than {found.unit * 1e3:.0f} ms"
    yield f"in this process: {counts}; {len(found.findings)} faults; {slow}"
    shown: set[str] = set()
    for seconds, label, told in sorted(found.slow, reverse=True):
        kind = told.partition(":")[0] if label.startswith("selector") else told.rpartition(": ")[2]
        if kind not in shown and len(shown) < _SHOWN:
            shown.add(kind)
            yield f"    {seconds * 1e3:,.0f} ms: --only {label}: {told[:200]}"


def slow_seconds() -> float:
    """What is slow on this machine."""
    began = time.process_time()
    for _ in range(_LOOPS):
        pass
    return time.process_time() - began


def _tidy(number: int) -> None:
    if number % _AT_ONCE == _AT_ONCE - 1:
        gc.collect()


# --- objects ------------------------------------------------------------------------------------------------


def _object(found: Found, case: HostileObject) -> None:
    """Told by a watch, changed, listed, deleted."""
    try:
        obj = orjson.loads(case.text)
    except orjson.JSONDecodeError:
        found.count("objects that are no JSON for orjson")
        return
    if not isinstance(obj, dict):
        found.count("objects that are no JSON objects")
        return
    found.count("objects")
    began = time.process_time()
    try:
        state = ClusterState()
        state.replace(case.resource, [obj], 1)
        for event in EventType:
            state.apply(Event(event, case.resource, obj))
    except Exception as error:  # noqa: BLE001  # whatever it is, it is what we are looking for
        found.findings.add(Finding(f"state: {signature_of(error)}", case.label, case.told, case.size, str(error)[:300]))
    found.time(began, case.label, case.told, case.size)


# --- selectors ----------------------------------------------------------------------------------------------


def _device() -> Device:
    return parse_slice(specimens("x")["ResourceSlice"][0]).devices[0]


def _selector(found: Found, case: HostileSelector, device: Device, known: Selectors) -> None:
    found.count("selectors")
    told, size = f"{case.of}: {case.expression[:200]}", len(case.expression)
    began = time.process_time()
    try:
        known.matches(case.expression, device)
    except (CompileError, EvaluationError) as error:
        if "internal error in selector" in str(error):
            found.findings.add(Finding(f"selector: {signature_of(error.__cause__ or error)}", case.label, told, size))
    except Exception as error:  # noqa: BLE001  # as above
        found.findings.add(Finding(f"selector: {signature_of(error)}", case.label, told, size, str(error)[:300]))
    found.time(began, case.label, told, size)


# --- requests -----------------------------------------------------------------------------------------------


class LoggedErrors:
    """A processor of structlog's that keeps the exceptions that are logged."""

    def __init__(self) -> None:
        self.kept: list[BaseException] = []

    def __call__(self, _logger: object, _name: str, event: MutableMapping[str, Any]) -> str:
        error = sys.exc_info()[1]
        if event.pop("exc_info", None) and error is not None:
            self.kept.append(error)
        raise structlog.DropEvent


async def _requests(found: Found, made: HostileRequests, numbers: range, seed: int, selectors: int) -> None:
    """Requests to the application over a cluster in memory."""
    errors = LoggedErrors()
    structlog.configure(processors=[errors])
    cluster = Cluster.of(*scene(chosen_selectors(seed, selectors)))
    app: Callable[..., Awaitable[None]] = cluster.app()
    for number in numbers:
        case = made.make(number)
        if not case.raw and case.size < _LONGEST_BODY:
            await deliver(found, case, app, errors)
        _tidy(number)


async def deliver(
    found: Found, case: HostileRequest, app: Callable[..., Awaitable[None]], errors: LoggedErrors
) -> bytes:
    """Send a request to the application; its answer, empty if it has failed."""
    found.count("requests")
    errors.kept.clear()
    began, answer = time.process_time(), b""
    try:
        answer = await _answered(app, case)
        fault = fault_of(answer)
    except Exception as error:  # noqa: BLE001  # as above
        errors.kept.append(error)
        fault = "raised"
    for each in errors.kept:
        signature = f"request: {signature_of(each)}"
        found.findings.add(Finding(signature, case.label, case.told, case.size, str(each)[:300]))
    if fault and not errors.kept:
        found.findings.add(Finding(f"request: {fault}", case.label, case.told, case.size))
    found.time(began, case.label, case.told, case.size)
    return answer


async def _answered(app: Callable[..., Awaitable[None]], case: HostileRequest) -> bytes:
    """The answer as it would be on the wire, its length aside."""
    path, _, query = case.target.partition(b"?")
    answer: list[bytes] = []
    unread = [case.body]

    async def receive() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.append(b"HTTP/1.1 %d \r\n\r\n" % message["status"])
        else:
            answer.append(message.get("body", b""))

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": case.method, "scheme": "http",
        "path": unquote_to_bytes(path).decode("utf-8", "replace"), "raw_path": path, "root_path": "",
        "query_string": query, "headers": [(name.lower(), value) for name, value in case.headers],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
    }  # fmt: skip
    await app(scope, receive, send)
    return b"".join(answer)
