"""Makes a list that breaks something as small as it gets, so that a person can read it."""

from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def smallest(parts: Sequence[_T], breaks: Callable[[Sequence[_T]], bool], most: int) -> list[_T]:
    """A part of a list that breaks the same; without more of it, nothing breaks.

    Args:
        parts: breaks.
        breaks: whether a list does.
        most: tries. Then the smallest list so far is returned.
    """
    found = list(parts)
    size, tries = len(found) // 2, 0
    while size:
        place = 0
        while place < len(found) and tries < most:
            rest = found[:place] + found[place + size :]
            tries += 1
            if breaks(rest):
                found = rest
            else:
                place += size
        size //= 2
    return found
