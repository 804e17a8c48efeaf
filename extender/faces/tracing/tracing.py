"""Tracing: an interface for spans around verbs, solves and requests.

Without traces nothing is wrapped: what is passed in is returned. `extender.faces.tracing.spans` makes spans.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

import structlog
from starlette.requests import Request

from extender.framework.verb import Facts
from extender.kube.connection.transport import Transport
from extender.tools.offload import Offload

_T = TypeVar("_T")

Call = Callable[[Request, bytes], Awaitable[bytes]]
"""A verb on HTTP: a request and its body in, the reply's body out."""


class Tracing(Protocol):
    """Wraps what is to be traced."""

    @property
    def processors(self) -> Sequence[structlog.typing.Processor]:
        """Processors that add the trace to the lines of the log."""
        ...

    def off_loop(self, off_loop: Offload) -> Offload:
        """Wrap work off the event loop."""
        ...

    def call(self, name: str, call: Call) -> Call:
        """Wrap a verb on HTTP; ``name`` as in metrics."""
        ...

    def tell(self, facts: Callable[[_T], Facts], value: _T, /) -> None:
        """Put facts of a request or of an answer on the span of the call."""
        ...

    def transport(self, transport: Transport) -> Transport:
        """Wrap requests to the API server."""
        ...

    def close(self) -> None:
        """Send the last spans, if there is time."""
        ...


class _Untraced:
    """Wraps nothing."""

    processors: Sequence[structlog.typing.Processor] = ()

    def off_loop(self, off_loop: Offload) -> Offload:
        return off_loop

    def call(self, _: str, call: Call) -> Call:
        return call

    def tell(self, _facts: Callable[[_T], Facts], _value: _T) -> None:
        return

    def transport(self, transport: Transport) -> Transport:
        return transport

    def close(self) -> None:
        return


UNTRACED: Final[Tracing] = _Untraced()
