"""The base of all errors, and the error that holds all problems of one API object."""

from typing import Final

from allocator.tools.fields import Problem

_MOST_PROBLEMS: Final = 10
_LONGEST_PROBLEM: Final = 300
"""Characters. Problems stay in memory and are part of answers."""


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_PROBLEM else f"{text[:_LONGEST_PROBLEM]}..."


class AllocatorError(Exception):
    """Base of all errors of this package. The answer "no" is no error but a value: `Unsatisfiable`."""


class InvalidObjectError(AllocatorError):
    """An API object that cannot be used; all of its problems, not only the first."""

    def __init__(self, kind: str, name: str, problems: tuple[Problem, ...]) -> None:
        self.kind = kind
        self.name = name
        self.problems = problems
        super().__init__("; ".join(f"{kind} {name}: {problem}" for problem in problems))

    @property
    def summary(self) -> str:
        """The first problems, without the object's name, cut to a bounded length."""
        texts = [_cut(str(problem)) for problem in self.problems[:_MOST_PROBLEMS]]
        more = len(self.problems) - len(texts)
        return "; ".join([*texts, *([f"and {more} more"] if more else [])])
