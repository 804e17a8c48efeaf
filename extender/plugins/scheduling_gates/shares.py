"""How many pods of each namespace may be lifted without a node: equal shares of a bound, and a few in any case."""

from dataclasses import dataclass
from typing import Final

FEW: Final = 4
"""Pods that each namespace may have lifted in any case; and of one kind, if it is not known how many nodes take it."""

FEW_HOPELESS: Final = 1
"""The same for pods that no node takes."""

EXTRA_SECONDS: Final = 10.0
"""If pods of a namespace wait, and there is no room in its share, one more is lifted each time that so long has passed.
So no pod waits for ever behind others that nothing helps."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds for all namespaces together.

    Attributes:
        lifted: pods that are lifted, have no node, and were not rejected.
        hopeless: pods that are lifted although no node takes them, and those that were rejected.
    """

    lifted: int
    hopeless: int


@dataclass(slots=True)
class Account:
    """The lifted pods of one namespace that have no node.

    Attributes:
        lifted: those that were not rejected.
        rejected: those that were.
        hopeless: those of the first that no node took when they were lifted.
    """

    lifted: int = 0
    rejected: int = 0
    hopeless: int = 0

    def lift(self, number: int, *, is_hopeless: bool) -> None:
        """Count pods that are lifted now."""
        self.lifted += number
        self.hopeless += number if is_hopeless else 0


@dataclass(slots=True)
class Shares:
    """The shares of some namespaces.

    Attributes:
        total: lifted pods of all namespaces. One that was rejected counts in its namespace alone.
        number: of the namespaces that share.
    """

    bounds: Bounds
    total: int
    number: int

    def has_room(self, account: Account, *, is_hopeless: bool) -> bool:
        """Whether one more pod of a namespace may be lifted."""
        number = max(1, self.number)
        if account.lifted + account.rejected >= max(FEW, self.bounds.lifted // number):
            return False
        if self.total >= self.bounds.lifted and account.lifted >= FEW:
            return False
        most = max(FEW_HOPELESS, self.bounds.hopeless // number)
        return not is_hopeless or account.hopeless + account.rejected < most
