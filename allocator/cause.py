"""What a cause is: why a device does not serve a request, or no choice of devices does, with the words of filter.

The causes themselves: of one device in `allocator.checks`, each in the module of its check; of a request as a whole in
`allocator.request_causes`. `allocator.checks.table.CAUSES` has them all, in order.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Cause:
    """Why a device did not serve a request, or why a request could not be served.

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
