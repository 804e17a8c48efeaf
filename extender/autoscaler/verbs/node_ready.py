"""NodeReady: whether the slices of a new node are all there."""

from typing import Final

from extender.autoscaler.autoscaler import InSession
from extender.autoscaler.readiness.node_readiness import Readiness, node_readiness
from extender.autoscaler.verbs.sent_objects import OF_SESSION
from extender.verbs import wire
from extender.verbs.verb import Doc, Verb, count_facts
from extender.verbs.wire import root_of, text


def decode_ready(body: bytes) -> str:
    """The node's name, in ``NodeName``.

    Raises:
        WireError: the body is something else.
    """
    return text(root_of(body), "NodeName")


async def node_ready(by: InSession, name: str) -> Readiness:
    """Whether a node's slices are all there.

    Raises:
        RefusedError: there is no such session, or the cluster is not known well enough.
    """
    expectations = await by.autoscaler.expectations()
    return await by.within(lambda world: (world, node_readiness(name, world, expectations)))


def encode_ready(readiness: Readiness) -> bytes:
    """Whether the node is complete, and why not."""
    return wire.as_line({"Ready": True} if readiness.ready else {"Ready": False, "Reason": readiness.reason})


NODE_READY: Final[Verb[InSession, str, Readiness]] = Verb(
    "NodeReady",
    decode_ready,
    node_ready,
    lambda _, readiness: encode_ready(readiness),
    Doc(
        "Are the slices of a new node all there?",
        {"NodeName": "not-there"},
        {"Ready": False, "Reason": "node not yet known"},
        OF_SESSION,
    ),
    is_small=True,
    asked=lambda name: {"k8s.node.name": name, **count_facts("nodes", asked=1)},
)
