"""The kit for CCI drivers: serves a driver of three methods at a socket, where the node part finds it."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import structlog

from allocator.tools import dns_subdomain, shown
from extender.node import cpu_list, sockets
from extender.node.cci.protocol import SERVICE, TYPE, VERSION, Ask, ClaimName, End, Grant, RefusedError, Start, ask_of
from extender.node.sockets import REGISTRATION, Methods, Registration, listening
from extender.tools import logs
from extender.tools.logs import LogSettings

logger = structlog.get_logger()

FOLDER: Final = Path("/var/lib/dra-extender/cci")
"""Where the node part looks for drivers (its option ``--cci-dir``)."""

_T = TypeVar("_T")


class Driver(Protocol):
    """Chooses the CPUs of containers. The kit calls one method at a time, in a thread.

    A driver that has no state of its own needs no file: what is available comes with each ask.
    """

    @property
    def name(self) -> str:
        """A DNS name, such as ``packing.example.com``. Claims and classes name it in their parameters."""
        ...

    def admit(self, ask: Ask) -> Grant:
        """Choose the CPUs of a container, at least `Ask.cores` of `Ask.available`.

        Raises:
            RefusedError: the container must not start now; the kubelet tries again.
        """
        ...

    def add(self, start: Start) -> None:
        """The container is about to start on the CPUs of `admit`. Raises RefusedError: it must not."""
        ...

    def remove(self, end: End) -> None:
        """The container has ended; it may be one that the driver does not know.

        Raises:
            RefusedError: not now; it is called again.
        """
        ...


@asynccontextmanager
async def serving(driver: Driver, folder: Path = FOLDER) -> AsyncIterator[Path]:
    """Within, the node part finds the driver: the socket.

    Raises:
        ValueError: the name of the driver is no DNS name.
        SocketError: the driver runs already, or there can be no socket in the folder.
    """
    if problem := dns_subdomain(driver.name):
        raise ValueError(f"name {shown(driver.name)} of a CCI driver: {problem}")
    path = folder / f"{driver.name}.sock"
    registration = Registration(TYPE, driver.name, (VERSION,), "", lambda: None)
    async with listening(path, {REGISTRATION: registration.methods, SERVICE: CciService(driver).methods}):
        logger.info("driver serves", driver=driver.name, socket=str(path))
        yield path


def serve(driver: Driver, folder: Path = FOLDER) -> None:
    """Serve a driver until SIGTERM or SIGINT. Raises as `serving`."""
    logs.configure(LogSettings())
    asyncio.run(_serve(driver, folder))


async def _serve(driver: Driver, folder: Path) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with serving(driver, folder):
        await stopping.wait()


class CciService:
    """The text's service, for a driver. What a driver raises goes into the field ``err``."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._thread = ThreadPoolExecutor(max_workers=1)

    @property
    def methods(self) -> Methods:
        """The methods, by name."""
        return {
            "CCIAdmit": ("AdmitRequest", self._admit),
            "CCIAddContainerResource": ("AddResourceRequest", self._add),
            "CCIRemoveContainerResource": ("RemoveResourceRequest", self._remove),
        }

    async def _admit(self, request: Any) -> Any:  # noqa: ANN401  # messages
        found, problem = await self._result_of_driver("CCIAdmit", request.container, lambda: self._grant(request))
        return sockets.new_message("AdmitResponse", rSet=found, err=problem)

    def _grant(self, request: Any) -> Any:  # noqa: ANN401  # messages
        grant = self._driver.admit(ask_of(request))
        return sockets.new_message("ResourceSet", cpuset=cpu_list.render(grant.cpus), exclusive=grant.exclusive)

    async def _add(self, request: Any) -> Any:  # noqa: ANN401  # messages
        start = Start(request.cgroup, request.pod, request.container, request.container_id)
        _, problem = await self._result_of_driver(
            "CCIAddContainerResource", request.container_id, lambda: self._driver.add(start)
        )
        return sockets.new_message("AddResourceResponse", err=problem)

    async def _remove(self, request: Any) -> Any:  # noqa: ANN401  # messages
        claim = ClaimName(request.namespace, request.claim_name, request.claim_uid)
        end = End(claim, request.container_id)
        _, problem = await self._result_of_driver(
            "CCIRemoveContainerResource", request.container_id, lambda: self._driver.remove(end)
        )
        return sockets.new_message("RemoveResourceResponse", err=problem)

    async def _result_of_driver(self, method: str, container: str, work: Callable[[], _T]) -> tuple[_T | None, str]:
        """What the driver returns, or why it does not."""
        found, problem = None, ""
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except RefusedError as error:
            problem = str(error) or "refused without a reason"
        except Exception as error:  # each call has an answer
            logger.exception("call of driver failed", method=method, container=container)
            problem = f"internal error of driver {self._driver.name}: {type(error).__name__}; see its log"
        logger.info("call of driver answered", method=method, container=container, problem=problem)
        return found, problem
