"""What a check is: one thing that can speak against a device. `allocator.checks` lists all that there are."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import ClassVar, NamedTuple, Protocol

from allocator.explain.expressions import Expressions
from allocator.explain.obstacles import Obstacle, Seen
from allocator.model import Device, DeviceRequest
from allocator.outcome import Cause
from allocator.pools import Candidate, NodePool
from allocator.usage import DeviceUsage

Undo = Callable[[], object]
"""Takes back exactly what one taking has changed."""


class Refusal(NamedTuple):
    """What speaks against a device."""

    cause: Cause
    detail: str = ""


class Selector(NamedTuple):
    """A CEL expression and where it stands. ``number`` is its place in the request; None: it is the class's."""

    source: str
    text: str
    number: int | None = None


class Asked(Protocol):
    """One way to serve a request, as far as checks read it.

    Attributes:
        owner: namespace/name of the claim.
        label: request, or request/subrequest.
    """

    @property
    def owner(self) -> str: ...  # noqa: D102  # told above

    @property
    def label(self) -> str: ...  # noqa: D102

    @property
    def request(self) -> DeviceRequest: ...  # noqa: D102

    @property
    def selectors(self) -> tuple[Selector, ...]: ...  # noqa: D102


class Check:
    """One thing that can speak against devices, made for one request on one node.

    The constructor of a check takes what the check reads of request, node and cluster. What it reads of a device,
    `reads` and `circumstances` say: devices that are equal in both are the same to the check.

    Attributes:
        cause: of its refusals.
        subject: what an explanation names, if that is always the same: a feature gate.
    """

    __slots__ = ()
    cause: ClassVar[Cause]
    subject: ClassVar[str] = ""

    def speaks(self, candidate: Candidate, used: DeviceUsage, /) -> Refusal | None:
        """The first thing that speaks against a device, regardless of the attempt that is under way.

        Raises:
            SelectorError, CapacityError, SearchLimitError: it cannot be told.
        """
        raise NotImplementedError

    def obstacles(self, candidate: Candidate, used: DeviceUsage, _: Expressions, /) -> Iterator[Seen]:
        """Everything that speaks against a device, for people."""
        if self.speaks(candidate, used) is not None:
            yield Seen(Obstacle(self.cause, self.subject))

    @staticmethod
    def reads(candidate: Candidate, /) -> Hashable:  # noqa: ARG004  # nothing, unless a check says otherwise
        """What the check reads of a published device, attributes and names aside."""
        return None

    def circumstances(self, view: NodePool, /) -> Sequence[Hashable]:  # noqa: ARG002
        """What the check reads of the devices of a pool besides what is published; empty if that is nothing."""
        return ()

    @staticmethod
    def needs_search(candidate: Candidate, /) -> bool:  # noqa: ARG004
        """Whether it takes more than the knowledge which devices are held to tell who gets this one."""
        return False


class Book(Protocol):
    """What devices of one node use up together: by allocated claims, and by the attempt that is under way."""

    def refusal(self, device: Device, /) -> Refusal | None:
        """What speaks against one device more."""

    def take(self, device: Device, /) -> Undo | None:
        """Count a device in that was not refused; None: it takes nothing."""

    def obstacles(self, device: Device, /) -> Iterator[Seen]:
        """As `Check.obstacles`."""

    @staticmethod
    def reads(device: Device, /) -> Hashable:
        """As `Check.reads`."""

    @staticmethod
    def needs_search(device: Device, /) -> bool:
        """As `Check.needs_search`."""
