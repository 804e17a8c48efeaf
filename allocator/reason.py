"""A reason is a value: why a device, a node or the cluster does not serve a pod. Words are made of it at the edge.

Each `Cause` stands beside what refuses: causes of one device in `allocator.checks`, each in the module of its check; of
a request as a whole in `allocator.reason`; of an error in `allocator.errors`; of pods, claims, quotas and gangs
in `extender`. `allocator.checks.table.CAUSES` has all causes of devices, in order.

What speaks against one device is a check (`allocator.checks`); causes of a request as a whole are named here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from allocator.tools.printable import Printable, printable


@dataclass(frozen=True, slots=True, eq=False)
class Cause:
    """Why something is refused, without the names of what is refused.

    Attributes:
        name: for programs, for example ``in-use``.
        text: the words, with ``{request}``, ``{claim}`` and ``{detail}`` of a `Reason` to be filled in.
        rank: if a request has several causes, the reason names the one with the lowest rank. A device with this cause
            came closest to serving the request.
        is_temporary: the cause is the present state of a device, not its kind.
        of_choice: the cause says why devices could not be chosen together, although each of them suits the request.
    """

    name: str
    text: str
    rank: int = 0
    is_temporary: bool = False
    of_choice: bool = False


def request_noun(label: str) -> str:
    """The name of a request in words: ``request gpu``."""
    return f"request {label}"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a pod can't have its devices on a node, or on any node.

    Reasons are equal for equivalent nodes and from try to try: kube-scheduler counts equal texts, and a text that
    changes wakes the pod. So a reason that is remembered for many nodes names no node, pool or device.

    Attributes:
        request: `Request.label` of a request of the pod.
        detail: what the cause needs besides: an attribute, a limit, an amount. Text of users, tenants and controllers
            stands here as it is.
        claim: the name of a claim.
    """

    cause: Cause
    request: str = ""
    detail: str = ""
    claim: str = ""

    def in_words(self, noun: Callable[[str], str] = request_noun) -> Printable:
        """The reason for people. What others have written into it is escaped.

        Args:
            noun: what to call a request, by its label.
        """
        text = self.cause.text.format(request=noun(self.request), detail=self.detail, claim=self.claim)
        return printable(text)


CONSTRAINT: Final = Cause(
    "constraint", "no devices for {request} satisfy constraint on {detail}", rank=10, of_choice=True
)
RESULTS: Final = Cause("results", "{request} needs more devices than a claim can hold", rank=20, of_choice=True)
COUNT: Final = Cause("count", "not enough free devices for {request}", rank=30)
POOL: Final = Cause("pool", "resource pool is not usable for {request}", rank=120)
UNREACHABLE: Final = Cause("unreachable", "no device for {request}", rank=130)
NO_MATCH: Final = Cause("selector", "no device matches {request}", rank=140)
