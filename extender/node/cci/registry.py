"""The CCI drivers of a node: those whose sockets are in a folder, and who answer there.

The folder is looked through each second, as the kubelet looks for its plugins. So a driver that ends or comes back is
noticed, and after a restart of ours all drivers are found again.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from allocator.tools import dns_subdomain, shown
from extender.node import sockets
from extender.node.cci import protocol
from extender.node.cci.protocol import TYPE, VERSION, CciError
from extender.node.sockets import REGISTRATION

logger = structlog.get_logger()

_LOOK_SECONDS: Final = 1.0
_ANSWER_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Socket:
    """A socket; made again at the same path, it is another one."""

    path: Path
    inode: int
    made: int


class Registry:
    """Drivers by name.

    Args:
        folder: where their sockets are.
        changed: called after each look with the names of the drivers that answer.
    """

    def __init__(self, folder: Path, changed: Callable[[frozenset[str]], None]) -> None:
        self._folder = folder
        self._changed = changed
        self._drivers: Mapping[str, tuple[_Socket, Path]] = {}
        self._problems: Mapping[_Socket, str] = {}

    @property
    def names(self) -> frozenset[str]:
        """The names of the drivers that answered the last time."""
        return frozenset(self._drivers)

    def endpoint(self, name: str) -> Path:
        """The socket at which a driver is called. Raises CciError: there is none of this name."""
        if name not in self._drivers:
            others = ", ".join(sorted(self._drivers)) or "none is"
            raise CciError(f"CCI driver {name} is not registered in {self._folder} (registered: {others})")
        return self._drivers[name][1]

    async def follow(self) -> None:
        """Look for drivers until cancelled."""
        while True:
            try:
                await self.look()
            except Exception:  # one odd file must not end the node part
                logger.exception("CCI drivers not looked for")
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Ask at each socket which driver is there, and tell new ones whether they are accepted."""
        sockets = [_Socket(path, *_identity(path)) for path in sorted(self._folder.glob("*.sock"))]
        answers = await asyncio.gather(*(self._get_info(each) for each in sockets))
        found: dict[str, tuple[_Socket, Path]] = {}
        problems: dict[_Socket, str] = {}
        # Who was there first keeps the name.
        for each, answer in sorted(zip(sockets, answers, strict=True), key=lambda pair: not self._has(pair[0])):
            if isinstance(answer, CciError):
                problems[each] = str(answer)
            elif problem := _problem(answer, found):
                problems[each] = problem
                if self._problems.get(each) != problem:
                    await self._notify_status(each, problem)
            else:
                found[answer.name] = each, Path(answer.endpoint or each.path)
                if not self._has(each):
                    await self._notify_status(each, "")
        self._report(found, problems)
        self._changed(frozenset(found))

    def _has(self, socket: _Socket) -> bool:
        return any(own == socket for own, _ in self._drivers.values())

    async def _get_info(self, socket: _Socket) -> Any:  # noqa: ANN401  # a message, or the error
        request = sockets.new_message("InfoRequest")
        try:
            return await protocol.call(socket.path, f"{REGISTRATION}/GetInfo", request, "PluginInfo", _ANSWER_SECONDS)
        except CciError as error:
            return error
        except UnicodeEncodeError:
            return CciError("the name of the file is not text in UTF-8")

    async def _notify_status(self, socket: _Socket, problem: str) -> None:
        status = sockets.new_message("RegistrationStatus", plugin_registered=not problem, error=problem)
        method = f"{REGISTRATION}/NotifyRegistrationStatus"
        try:
            await protocol.call(socket.path, method, status, "RegistrationStatusResponse", _ANSWER_SECONDS)
        except CciError as error:
            logger.warning("CCI driver not told", socket=str(socket.path), problem=str(error))

    def _report(self, found: Mapping[str, tuple[_Socket, Path]], problems: Mapping[_Socket, str]) -> None:
        """Log what is new, and keep it."""
        for name in sorted(found):
            if self._drivers.get(name) != found[name]:
                logger.info("CCI driver registered", driver=name, socket=str(found[name][1]))
        for name in sorted(self._drivers.keys() - found):
            logger.warning("CCI driver gone", driver=name)
        for each, problem in problems.items():
            if self._problems.get(each) != problem:
                logger.warning("CCI driver not registered", socket=str(each.path), problem=problem)
        self._drivers, self._problems = found, problems


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0  # it has gone, and is not asked in vain for long
    return status.st_ino, status.st_mtime_ns


def _problem(info: Any, found: Mapping[str, tuple[_Socket, Path]]) -> str:  # noqa: ANN401  # a message
    """Why a driver is not accepted; empty: it is."""
    if info.type != TYPE:
        return f"type {shown(info.type)} is not {TYPE}"
    if problem := dns_subdomain(info.name):
        return f"name {shown(info.name)}: {problem}"
    if VERSION not in info.supported_versions:
        return f"supported_versions {shown(list(info.supported_versions))} have no {VERSION}"
    if info.name in found:
        return f"a driver of the name {info.name} is registered at {found[info.name][0].path}"
    return ""
