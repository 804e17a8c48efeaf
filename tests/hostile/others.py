"""The others: an ordinary scheduler, and how long it waits. ``python -m tests.hostile.others PORT PEER FILE RATE PID``.

Calls begin at a steady rate, whether or not those before have been answered, so that a stall is met by all calls that
fall into it. With each call another one goes to a peer that does nothing: where both wait, it is the machine. The
processor time that the service, the process PID, takes during a call is told, too: the rest is the machine's.
FILE has one request a line, in hexadecimal. Each answer is told as a line of JSON.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson
import uvloop

SECONDS: Final = 6.0
"""That a call waits at most; kube-scheduler waits 5 s."""


@dataclass(slots=True)
class _Connections:
    """Connections to one server. As in kube-scheduler's client, one that is free is used again."""

    port: int
    _free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)

    async def exchange(self, request: bytes) -> bytes:
        """One request, and all of its answer.

        Raises:
            OSError, asyncio.IncompleteReadError: the server has ended the connection.
        """
        reader, writer = self._kept() or await asyncio.open_connection("127.0.0.1", self.port)
        is_free = False
        try:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            answer = head + await reader.readexactly(int(length))
            is_free = b"connection: close" not in head.lower()
        finally:
            if is_free:
                self._free.append((reader, writer))
            else:
                writer.close()
        return answer

    def _kept(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """A free connection, if there is one that the server has not ended."""
        while self._free:
            reader, writer = self._free.pop()
            if not (reader.at_eof() or writer.is_closing()):
                return reader, writer
            writer.close()
        return None

    async def timed(self, request: bytes) -> tuple[float, bytes]:
        """Seconds until the answer was here, and the answer or why there is none."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(SECONDS):
                answer = await self.exchange(request)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError) as error:
            answer = f"{type(error).__name__}: {error}".encode()
        return time.monotonic() - began, answer


def _fault(request: bytes, answer: bytes) -> str:
    """What is wrong with an answer; empty if it is as it should be."""
    status = answer[:12]
    if status != b"HTTP/1.1 200":
        return answer[:200].decode("utf-8", "replace")
    if request.startswith(b"GET"):
        return ""
    found = orjson.loads(answer.partition(b"\r\n\r\n")[2])
    return "" if found.get("NodeNames") else str(found)[:300]


def _worked(pid: int) -> float:
    """Seconds of processor time that all threads of a process have taken so far; 0 if it is not there (Linux)."""
    clock = ~pid << 3 | 2  # as clock_getcpuclockid(3) makes it
    try:
        return time.clock_gettime(clock)
    except OSError:
        return 0.0


async def _ask(service: _Connections, pid: int, request: bytes) -> tuple[float, bytes, float]:
    before = _worked(pid)
    seconds, answer = await service.timed(request)
    return seconds, answer, max(0.0, _worked(pid) - before)


async def _call(service: _Connections, peer: _Connections, pid: int, request: bytes) -> None:
    began = time.monotonic()
    (seconds, answer, worked), (machine, _) = await asyncio.gather(
        _ask(service, pid, request), peer.timed(b"GET / HTTP/1.1\r\n\r\n")
    )
    fault = _fault(request, answer)
    told = {"at": began, "seconds": seconds, "machine": machine, "worked": worked, "fault": fault}
    sys.stdout.buffer.write(orjson.dumps(told) + b"\n")
    sys.stdout.buffer.flush()


async def _run(port: int, peer: int, pid: int, requests: Sequence[bytes], rate: float) -> None:
    clock = asyncio.get_running_loop().time
    began = clock()
    service, idle = _Connections(port), _Connections(peer)
    number = 0
    async with asyncio.TaskGroup() as calls:
        while True:
            calls.create_task(_call(service, idle, pid, requests[number % len(requests)]))
            number += 1
            await asyncio.sleep(began + number / rate - clock())


def main() -> None:
    """Call until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("peer", type=int)
    parser.add_argument("file", type=Path)
    parser.add_argument("rate", type=float, help="calls a second")
    parser.add_argument("pid", type=int, help="of the service")
    args = parser.parse_args()
    requests = [bytes.fromhex(line) for line in args.file.read_text().splitlines()]
    uvloop.run(_run(args.port, args.peer, args.pid, requests, args.rate))


if __name__ == "__main__":
    main()
