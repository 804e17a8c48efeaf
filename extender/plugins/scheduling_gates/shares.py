"""How many pods of each namespace may be lifted without a node: equal shares of a bound, and a few in any case."""

from dataclasses import dataclass
from typing import Final

from extender.cluster.objects.pods import MOST_MEMBERS

FEW: Final = 4
"""Pods that each namespace may have lifted in any case; and of one kind, if it is not known how many nodes take it."""

FEW_TRIALS: Final = 2
"""The same for pods of which it is not known whether a node takes them. If none does, they are tried again in a row."""

FEW_HOPELESS: Final = 1
"""The same for pods that no node takes."""

TRY_SECONDS: Final = 0.1
"""What a failed try costs a scheduler: it asks filter, and writes the pod's status before it looks at another pod."""

RETRY_SECONDS: Final = 10.0
"""A rejected pod is tried again about so often: the longest backoff in the settings that we ship for a scheduler."""

FAILED_SHARE: Final = 0.1
"""Of the time of the schedulers, this part may go to failed tries. A lifted pod is tried again and again, and others
wait meanwhile. Of a namespace whose tries cost more than its part, only pods are lifted for which a node is known."""

SLOW_EXTRA_SECONDS: Final = 60.0
"""The same as `EXTRA_SECONDS`, while the failed tries of the namespace cost more than its part. It doubles with each of
its rejected pods after the first `FEW`, six times at most: a gate cannot be put back, so these pods would pile up."""

_MOST_DOUBLINGS: Final = 6

EXTRA_SECONDS: Final = 10.0
"""If pods of a namespace wait, and there is no room in its share, one more is lifted each time that so long has passed.
So no pod waits for ever behind others that nothing helps."""

BEHIND_SECONDS: Final = 600.0
"""So long, a pod that finds no node waits for rejected pods before it, if quotas have no room for both. An autoscaler
that sees both brings a node for each. So long it may take it to bring the first one."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds for all namespaces together.

    Attributes:
        lifted: pods that are lifted, have no node, and were not rejected.
        hopeless: pods that are lifted although no node takes them, and those that were rejected.
        judged: pods of which is kept what was found out; but 1,024 of each namespace in any case, the largest gang.
    """

    lifted: int
    hopeless: int
    judged: int = 16_384

    def judged_of_one(self, number: int) -> int:
        """The pods of one namespace that are judged at a time, if so many namespaces have some."""
        return max(MOST_MEMBERS, self.judged // max(1, number))


@dataclass(slots=True)
class Account:
    """The lifted pods of one namespace that have no node.

    Attributes:
        lifted: those that were not rejected.
        rejected: those that were.
        hopeless: those of the first that no node took when they were lifted.
        trials: those of the first of which it was not known then whether a node takes them.
        failed: the part of a scheduler's time that failed tries of its pods have cost lately.
    """

    lifted: int = 0
    rejected: int = 0
    hopeless: int = 0
    trials: int = 0
    failed: float = 0.0

    @property
    def is_trying(self) -> bool:
        """Whether tries of its pods have failed lately, or may fail."""
        return self.failed > 0.0 or self.trials + self.rejected > 0

    def lift(self, number: int, *, is_hopeless: bool, is_trial: bool) -> None:
        """Count pods that are lifted now."""
        self.lifted += number
        self.hopeless += number if is_hopeless else 0
        self.trials += number if is_trial else 0


@dataclass(slots=True)
class Shares:
    """The shares of some namespaces.

    Attributes:
        total: lifted pods of all namespaces. One that was rejected counts in its namespace alone.
        number: of the namespaces that share.
        trying: how many of them have tries that failed, or that may fail.
    """

    bounds: Bounds
    total: int
    number: int
    trying: int = 0

    def may_fail(self, account: Account) -> bool:
        """Whether failed tries of a namespace cost no more than its part."""
        return account.failed < FAILED_SHARE / max(1, self.trying)

    def lift(self, account: Account, number: int, *, is_hopeless: bool, is_trial: bool) -> None:
        """Count pods of a namespace that are lifted now."""
        was_trying = account.is_trying
        account.lift(number, is_hopeless=is_hopeless, is_trial=is_trial)
        self.total += number
        self.trying += account.is_trying and not was_trying

    def extra_seconds(self, account: Account) -> float:
        """From one pod that is lifted beyond the share to the next."""
        if self.may_fail(account):
            return EXTRA_SECONDS
        return SLOW_EXTRA_SECONDS * 2.0 ** min(max(0, account.rejected - FEW), _MOST_DOUBLINGS)

    def may_try(self, account: Account) -> bool:
        """Whether one more pod may be lifted of which it is not known whether a node takes it.

        Once it is rejected, it is tried again and again. So if all of these are, their tries cost no more than the
        namespace's part. Then what they have cost already decides as well.
        """
        most = FAILED_SHARE / max(1, self.trying) * RETRY_SECONDS / TRY_SECONDS
        return self.may_fail(account) and account.trials + account.rejected < max(FEW_TRIALS, most)

    def has_room(self, account: Account, *, is_hopeless: bool) -> bool:
        """Whether one more pod of a namespace may be lifted."""
        number = max(1, self.number)
        if account.lifted + account.rejected >= max(FEW, self.bounds.lifted // number):
            return False
        if self.total >= self.bounds.lifted and account.lifted >= FEW:
            return False
        if not is_hopeless or account.hopeless + account.rejected < FEW_HOPELESS:
            return True
        most = self.bounds.hopeless // number
        return account.hopeless < FEW and account.hopeless + account.rejected < most and self.may_fail(account)
