"""What was found: failures of the service, each with the smallest case that leads to it."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

_FRAME: Final = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_ERROR: Final = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Group|Warning))\b(.*)$", re.MULTILINE)
_FAULTS: Final = ("Traceback", "internal error", "Fatal Python error", "never retrieved", "Exception in ")


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of the service.

    Attributes:
        signature: the same for all cases that meet the same fault.
        label: of the case, as ``--only`` takes it; empty where it is not known.
        told: the case in words.
        size: of the case, in bytes.
        detail: what was seen.
    """

    signature: str
    label: str
    told: str
    size: int
    detail: str = ""


@dataclass(slots=True)
class Findings:
    """Findings by signature: how often, and the smallest case of each."""

    smallest: dict[str, Finding] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        """One more; a case that is known by its label is better than one that is not, then the smaller one."""
        self.counts[finding.signature] = self.counts.get(finding.signature, 0) + 1
        before = self.smallest.get(finding.signature)
        if before is None or (not finding.label, finding.size) < (not before.label, before.size):
            self.smallest[finding.signature] = finding

    def __len__(self) -> int:
        return len(self.smallest)

    def __iter__(self) -> Iterator[Finding]:
        return iter(sorted(self.smallest.values(), key=lambda each: each.signature))


def signature_of(error: BaseException) -> str:
    """Kind of an error, and where in our code it was raised."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append((code.co_filename, str(trace.tb_lineno), code.co_name))
        trace = trace.tb_next
    return f"{type(error).__name__} in {_ours(frames)}"


def faults_in(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The faults that a service's log tells, each as signature and text; what it is meant to log is none."""
    trace: list[str] = []
    for line in lines:
        record = _record(line)
        if record is None:
            trace.append(line)
            continue
        yield from _of_trace(trace)
        trace = []
        text = str(record.get("exception", ""))
        if text:
            yield f"{str(record.get('event')).strip()}: {_signature(text)}", text
        elif record.get("level") in {"error", "critical"} or any(each in str(record.get("event")) for each in _FAULTS):
            yield f"logged: {str(record.get('event'))[:80]}", line[:2000]
    yield from _of_trace(trace)


def _record(line: str) -> dict[str, Any] | None:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def _of_trace(lines: list[str]) -> Iterator[tuple[str, str]]:
    """What is on standard error that is no log: the process's last words."""
    text = "\n".join(lines).strip()
    if text:
        yield (f"printed: {_signature(text)}" if "Traceback" in text else f"printed: {text[:80]}"), text[-4000:]


def _signature(text: str) -> str:
    names = [match[1] for match in _ERROR.finditer(text)]
    return f"{names[-1] if names else 'error'} in {_ours(_FRAME.findall(text))}"


def _ours(frames: list[Any]) -> str:
    """The last frame that is in our code, as module:line function."""
    found = [
        each for each in frames if re.search(r"/(?:allocator|extender)/", each[0]) and "site-packages" not in each[0]
    ]
    if not found:
        return "no code of ours"
    file, line, name = found[-1]
    return f"{re.split(r'/(?=(?:allocator|extender)/)', file)[-1]}:{line} {name}"
