"""Causes: why a device does not serve a request, or a request cannot be served, with the words that filter tells.

Here are the causes that several modules share. A check has its own causes in its module in `allocator.checks`.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, eq=False)
class Cause:
    """Why a device did not serve a request, or why a request could not be served. Most checks have their own.

    Attributes:
        name: for programs, for example ``in-use``.
        text: the reason for the scheduler, with ``{request}`` and ``{detail}`` to be filled in.
        rank: if a request has several causes, the reason names the one with the lowest rank. A device with this cause
            came closest to serving the request.
        is_temporary: the cause is the present state of a device, not its kind.
        of_choice: the cause says why devices could not be chosen together, although each of them suits the request.
    """

    name: str
    text: str
    rank: int
    is_temporary: bool = False
    of_choice: bool = False


CONSTRAINT: Final = Cause(
    "constraint", "no devices for request {request} satisfy constraint on {detail}", rank=10, of_choice=True
)
RESULTS: Final = Cause("results", "request {request} needs more devices than a claim can hold", rank=20, of_choice=True)
COUNT: Final = Cause("count", "not enough free devices for request {request}", rank=30)
POOL: Final = Cause("pool", "resource pool is not usable for request {request}", rank=120)
UNREACHABLE: Final = Cause("unreachable", "no device for request {request}", rank=130)
NO_MATCH: Final = Cause("selector", "no device matches request {request}", rank=140)
