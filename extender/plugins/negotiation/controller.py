"""The interface of a controller, as the service sees it. Transports implement it."""

from typing import Protocol

from allocator import Reason
from allocator.tools import printable
from extender.plugins.negotiation.protocol import NegotiatedAnswer, NegotiatedQuestion


class ControllerError(Exception):
    """A controller has not answered, or not as the protocol says. It may have done what it was asked to do.

    The text may quote the controller. It is made printable here, whoever raises the error.
    """

    def __init__(self, text: str) -> None:
        super().__init__(printable(text))


class ControllerAwayError(ControllerError):
    """A controller cannot be asked anything now: it is not reached, does not answer in time, or says so."""


class ControllerPendingError(ControllerError):
    """A controller was asked and will answer later; the reason has the controller's name."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason
        super().__init__(reason.in_words())


class Controller(Protocol):
    """Decides about the claims of some device classes."""

    async def ask(self, question: NegotiatedQuestion) -> NegotiatedAnswer:
        """The answer to a question, asked once.

        Raises:
            ControllerAwayError: there is none, and another question would have none, either.
            ControllerPendingError: there is none yet.
            ControllerError: there is none; the text stays the same as long as the cause does.
        """
        ...

    async def close(self) -> None:
        """Close connections. A later question may open new ones."""
        ...
