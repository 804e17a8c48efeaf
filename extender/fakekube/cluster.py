"""A cluster in this process: an API server in memory, its controllers, and the state that follows it."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, datetime

import structlog

from allocator import CompileError, Environment, compile_expression
from extender.fakekube.api import MemoryApi
from extender.fakekube.controllers import Controller
from extender.fakekube.manifests import LOADED
from extender.fakekube.manifests import RawObject as Manifest
from extender.kube.api import ApiError, RawObject, Resource
from extender.kube.raw import Event
from extender.state.state import ClusterState

_NAMESPACE = uuid.UUID("5f3b9f0e-5a43-4c0f-9f53-0d3c6c0f7d11")

_DEVICE_EXPRESSIONS = Environment()

logger = structlog.get_logger()


class EmbeddedCluster:
    """A cluster from manifests; equal manifests give equal names and uids. ``state`` follows ``api`` at each write."""

    def __init__(
        self, manifests: Iterable[Manifest], *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """Load the manifests. Raises ApiError: an object that is there twice, or that can't be read."""
        made = iter(range(2**63))
        self.api = MemoryApi(now=now, new_uid=lambda: str(uuid.uuid5(_NAMESPACE, str(next(made)))))
        self.state = ClusterState()
        self._controller = Controller(self.api)
        self._bell = _Bell()
        for each in manifests:
            self.api.load(LOADED[each.kind], each.data)
        self.api.follow(self.state)
        self.api.follow(self._bell)

    async def settle(self) -> None:
        """Run the controllers until they have nothing left to do."""
        while self._bell.rung.is_set():
            self._bell.rung.clear()
            try:
                await self._controller.reconcile()
            except ApiError as error:
                # After a conflict the bell has rung again. Any other refusal would only be repeated.
                logger.warning("controller", error=str(error))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the controllers after each change while the context is open."""
        await self.settle()
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _follow(self) -> None:
        while True:
            await self._bell.rung.wait()
            await self.settle()


class _Bell:
    """Rings on every change."""

    def __init__(self) -> None:
        self.rung = asyncio.Event()
        self.rung.set()

    def apply(self, event: Event) -> None:
        """Take in an event."""
        del event
        self.rung.set()

    def replace(self, resource: Resource, objects: Iterable[RawObject], at: int) -> bool:
        """Take in a list."""
        del resource, objects, at
        self.rung.set()
        return True


def check_expression(expression: str) -> str | None:
    """What is wrong with a CEL expression over devices, by an API server's rules; None if nothing."""
    try:
        compile_expression(expression, _DEVICE_EXPRESSIONS)
    except CompileError as error:
        return f"{error.line}:{error.column}: {error.message}"
    except Exception as error:  # noqa: BLE001  # it is one object's, which is told with where it stands
        return f"internal error: {type(error).__name__}: {error}"
    return None
