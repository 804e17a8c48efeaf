"""Several sessions as one: each service judges its own drivers, and a node has to suit all of them (KEP-3063)."""

from collections import Counter
from collections.abc import Iterable, Sequence

from extender.client.aio import AsyncSession
from extender.client.errors import AutoscalerError
from extender.client.sync import Session
from extender.client.values import ApiObject, Filtered, Readiness


class JointSession:
    """Sessions of one cycle, each at the service of another driver. Errors are those of `Session`.

    Args:
        sessions: in the order in which they are asked. Each judges other drivers.
    """

    def __init__(self, sessions: Iterable[Session]) -> None:
        self._sessions = tuple(sessions)

    def filter(self, pod: ApiObject, nodes: Iterable[ApiObject]) -> Filtered:
        """The nodes that suit in all sessions. A node that one session refuses is not asked about in the next."""
        judged = _Judged(nodes)
        for session in self._sessions:
            judged.add(session.filter(pod, judged.left))
        return judged.result

    def prioritize(self, pod: ApiObject, nodes: Iterable[ApiObject]) -> dict[str, int]:
        """The sum of the scores of all sessions, by node."""
        asked, scores = list(nodes), Counter[str]()
        for session in self._sessions:
            scores.update(session.prioritize(pod, asked))
        return dict(scores)

    def book(self, pod: ApiObject, node: ApiObject) -> None:
        """Book a pod in all sessions, if all of them take it on the node; otherwise in none.

        Raises:
            AutoscalerError: a session does not take the pod.
        """
        _check(pod, self.filter(pod, [node]))
        for session in self._sessions:
            session.book(pod, node)

    def node_ready(self, name: str) -> Readiness:
        """Whether a node is ready in all sessions; if not, the reason of the first session in which it is not."""
        return _first_unready([session.node_ready(name) for session in self._sessions])


class AsyncJointSession:
    """The asyncio variant of `JointSession`."""

    def __init__(self, sessions: Iterable[AsyncSession]) -> None:
        self._sessions = tuple(sessions)

    async def filter(self, pod: ApiObject, nodes: Iterable[ApiObject]) -> Filtered:
        """As `JointSession.filter`."""
        judged = _Judged(nodes)
        for session in self._sessions:
            judged.add(await session.filter(pod, judged.left))
        return judged.result

    async def prioritize(self, pod: ApiObject, nodes: Iterable[ApiObject]) -> dict[str, int]:
        """As `JointSession.prioritize`."""
        asked, scores = list(nodes), Counter[str]()
        for session in self._sessions:
            scores.update(await session.prioritize(pod, asked))
        return dict(scores)

    async def book(self, pod: ApiObject, node: ApiObject) -> None:
        """As `JointSession.book`."""
        _check(pod, await self.filter(pod, [node]))
        for session in self._sessions:
            await session.book(pod, node)

    async def node_ready(self, name: str) -> Readiness:
        """As `JointSession.node_ready`."""
        return _first_unready([await session.node_ready(name) for session in self._sessions])


class _Judged:
    """Nodes that are judged by one session after the other."""

    def __init__(self, nodes: Iterable[ApiObject]) -> None:
        self.left = list(nodes)
        self._failed: dict[str, str] = {}

    def add(self, found: Filtered) -> None:
        """What the next session says of the nodes that are left."""
        passed = set(found.passed)
        self.left = [node for node in self.left if _name(node) in passed]
        self._failed.update(found.failed)

    @property
    def result(self) -> Filtered:
        """What all sessions say."""
        return Filtered(tuple(map(_name, self.left)), self._failed)


def _check(pod: ApiObject, found: Filtered) -> None:
    for node, reason in found.failed.items():
        raise AutoscalerError(f"pod {_name(pod)} can't be booked on node {node}: {reason}")


def _first_unready(found: Sequence[Readiness]) -> Readiness:
    return next((each for each in found if not each.ready), Readiness(ready=True))


def _name(obj: ApiObject) -> str:
    return str(obj["metadata"]["name"])
