"""A question "what if": its edits, read from JSON strictly. Each mistake is told with the path of its field."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from allocator import Problem
from allocator.tools import Fields
from extender.answers.whatif.edits import EDITS, AddPods, Edit, Fork, refuse_unknown

MOST_ENTRIES: Final = 100
"""Edited requests, drained nodes, pods that do not exist, and nodes that do not exist: the most of each."""

_FIELDS: Final = frozenset(each.field for each in EDITS)
_MOST_NAMED: Final = 10


class QuestionError(Exception):
    """A question that cannot be asked; each problem has the path of its field.

    Attributes:
        problems: all that were found.
    """

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        super().__init__("; ".join(map(str, problems)))


@dataclass(frozen=True, slots=True)
class Question:
    """A what-if: the differences from the cluster as it is.

    Attributes:
        edits: in the order in which they are applied.
    """

    edits: tuple[Edit, ...] = ()

    @property
    def needs_priorities(self) -> bool:
        """Whether priority classes say how important new pods are."""
        return any(isinstance(each, AddPods) and each.priority is None for each in self.edits)

    def apply(self, fork: Fork) -> None:
        """Change the fork as the question wants it.

        Raises:
            QuestionError: something that the question names does not exist, or cannot be changed.
        """
        for edit in self.edits:
            edit.apply(fork)
        if fork.problems:
            raise QuestionError(*fork.problems)


def read_question(data: Mapping[str, object]) -> Question:
    """The question.

    Raises:
        QuestionError: the mistakes in it, ten at most.
    """
    problems: list[Problem] = []
    fields = Fields(data, "", problems)
    refuse_unknown(fields, _FIELDS)
    lengths = {each.field: data.get(each.field) for each in EDITS}
    too_many = list(_too_many({name: len(found) for name, found in lengths.items() if isinstance(found, list)}))
    if too_many:  # before they are read: each costs time, and all together far more
        raise QuestionError(*too_many)
    found = {each.field: each.read(fields) for each in EDITS}
    problems += _too_many({name: sum(each.number for each in edits) for name, edits in found.items()})
    for name, edits in found.items():
        problems += _twice(name, [each for edit in edits for each in edit.names])
    if problems:
        raise QuestionError(*problems[:_MOST_NAMED])
    return Question(tuple(edit for edits in found.values() for edit in edits))


def _too_many(counts: Mapping[str, int]) -> Iterator[Problem]:
    for name, count in counts.items():
        if count > MOST_ENTRIES:
            yield Problem(name, f"at most {MOST_ENTRIES} are possible, not {count}")


def _twice(field: str, names: list[str]) -> Iterator[Problem]:
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Problem(f"{field}[{index}]", f"{name} is there twice")
