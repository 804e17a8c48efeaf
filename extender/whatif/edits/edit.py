"""The interface of an edit: one thing that a question wants to be different; and fields that several edits have."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Self

from allocator.tools import JSON, Fields
from extender.tools.wording import suggestion
from extender.whatif.fork import Fork


class Edit(ABC):
    """One thing that is to be different.

    Attributes:
        field: the field of the question that lists such edits.
        words: what the field lists, for people.
        example: an entry of the field.
    """

    __slots__ = ()

    field: ClassVar[str]
    words: ClassVar[str]
    example: ClassVar[JSON]

    @classmethod
    @abstractmethod
    def read(cls, question: Fields) -> Sequence[Self]:
        """The edits of this kind in a question. What is wrong with them is noted in the fields, each with its path."""

    @property
    def number(self) -> int:
        """How many pods or nodes the edit is about."""
        return 1

    @property
    def names(self) -> Sequence[str]:
        """What may be named only once in all edits of this kind."""
        return ()

    @abstractmethod
    def apply(self, fork: Fork) -> None:
        """Change the fork as the edit says, or note there what is wrong with the edit."""


def refuse_unknown(fields: Fields, known: frozenset[str]) -> None:
    """Note each field that is not known."""
    for key in fields.data:
        if key not in known:
            fields.problem(key if len(key) < 64 else f"{key[:60]}...", f"unknown field{suggestion(key, known)}")


def read_count(fields: Fields) -> int:
    """``count``: how many there are to be, 1 if it is not given."""
    count = fields.integer("count", 1)
    if count < 1:
        fields.problem("count", f"{count} is not 1 or more")
    return max(1, count)
