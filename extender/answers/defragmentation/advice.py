"""Advice for a defragmentation, as values and as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass

from extender.answers.explain.explanation import Spared
from extender.cluster.objects.pods import Pod
from extender.tools.table import TextTable, as_html, plain_lines


@dataclass(frozen=True, slots=True)
class Move:
    """A pod that makes room.

    Attributes:
        to: the node where it finds a place; empty: nowhere, so that it is evicted.
    """

    pod: Pod
    to: str

    def __str__(self) -> str:
        return f"move {self.pod} from {self.pod.node_name} to {self.to}" if self.to else f"evict {self.pod}"

    def as_json(self) -> dict[str, object]:
        """A move for programs."""
        return {
            "pod": str(self.pod),
            "priority": self.pod.priority,
            "controller": str(self.pod.controller) if self.pod.controller else None,
            "from": self.pod.node_name,
            "to": self.to or None,
        }


@dataclass(frozen=True, slots=True)
class MoveProposal:
    """Moves that make room for pods of one shape; they were tried out together.

    Attributes:
        node: where room is made.
        placed: the pods of the shape that get their devices then.
    """

    node: str
    moves: tuple[Move, ...]
    placed: tuple[str, ...]

    @property
    def evictions(self) -> int:
        """The number of pods that find no other place."""
        return sum(not move.to for move in self.moves)

    @property
    def yields(self) -> float:
        """Pods that get their devices, for each pod that makes room."""
        return len(self.placed) / len(self.moves)

    @property
    def commands(self) -> Sequence[str]:
        """What carries it out, by hand: between the last two, the moved pods must have got their nodes."""
        moved = [f"kubectl delete pod --namespace {each.pod.namespace} {each.pod.name}" for each in self.moves]
        return [f"kubectl cordon {self.node}", *moved, f"kubectl uncordon {self.node}"]

    def as_json(self) -> dict[str, object]:
        """A proposal for programs."""
        return {
            "node": self.node,
            "moves": [move.as_json() for move in self.moves],
            "placed": list(self.placed),
            "commands": list(self.commands),
        }


@dataclass(frozen=True, slots=True)
class ShapeAdvice:
    """Moves that would make room for pending pods of one shape.

    Attributes:
        pods: those without a node.
        asks: the requests of one pod, in words.
        proposal: None if there is none.
        reason: why there is no proposal; empty if there is one.
    """

    pods: tuple[str, ...]
    asks: tuple[str, ...]
    proposal: MoveProposal | None = None
    reason: str = ""

    @property
    def start(self) -> tuple[str, str, str, str]:
        """The first cells of a row about it: the pods, what they ask for, where there is room, and how many get it."""
        pods, proposal = self.pods, self.proposal
        named = pods[0] if len(pods) == 1 else f"{pods[0]} and {len(pods) - 1} more"
        placed = f"{len(proposal.placed) if proposal else 0} of {len(pods)}"
        return named, ", ".join(self.asks), proposal.node if proposal else "-", placed

    def as_json(self) -> dict[str, object]:
        """The advice for programs."""
        proposal = None if self.proposal is None else self.proposal.as_json()
        return {
            "pods": list(self.pods),
            "asks": list(self.asks),
            "proposal": proposal,
            "reason": self.reason or None,
        }


@dataclass(frozen=True, slots=True)
class Advice:
    """Moves that would make room for the pending pods of a cluster.

    Attributes:
        shapes: those with a proposal first: by the pods that get devices for each pod that makes room.
        spared: who holds devices and cannot move, by what protects them.
        fitting: pending pods that fit without any move, each with its node.
        unmodeled: conditions of the pods that would move or get devices which kube-scheduler checks and which are
            not looked at here, in words.
    """

    shapes: tuple[ShapeAdvice, ...]
    spared: Sequence[Spared] = ()
    fitting: tuple[tuple[str, str], ...] = ()
    unmodeled: tuple[str, ...] = ()

    def __str__(self) -> str:
        """An aligned table."""
        return "\n".join(plain_lines(self.table))

    def __repr__(self) -> str:
        """One line."""
        return f"<Advice: {len(self.proposals)} proposals for {len(self.shapes)} shapes of pods>"

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        return as_html(self.table)

    @property
    def table(self) -> TextTable:
        """A row for each shape."""
        rows = [
            (*each.start, each.reason or "; ".join(map(str, each.proposal.moves if each.proposal else ())))
            for each in self.shapes
        ]
        return TextTable(("pods", "ask for", "room on", "placed", "moves or reason"), rows)

    @property
    def proposals(self) -> Sequence[MoveProposal]:
        """All proposals, in their order. Each is for the cluster as it is, without the others."""
        return [each.proposal for each in self.shapes if each.proposal is not None]

    def as_json(self) -> dict[str, object]:
        """The advice for programs."""
        return {
            "shapes": [each.as_json() for each in self.shapes],
            "protected": [{"reason": each.reason, "names": list(each.names)} for each in self.spared],
            "fitting": [{"pod": pod, "node": node} for pod, node in self.fitting],
            "notModeled": list(self.unmodeled),
        }
