"""Lists of CPUs as Linux writes them: ``0-3,8``."""

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from allocator.tools import shown

_RANGE: Final = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_MOST: Final = 65_536
"""Far more CPUs than Linux can have."""


def parse(text: str) -> frozenset[int]:
    """The numbers of a list; an empty text has none. Raises ValueError: the text is no such list."""
    found: set[int] = set()
    listed = 0
    for part in filter(None, text.strip().split(",")):
        match = _RANGE.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        listed += last - first + 1  # of ranges that overlap, too: the time is bounded
        if first > last or last >= _MOST or listed > _MOST:
            raise ValueError(f"{shown(text.strip())} is no list of CPUs such as 0-3,8")
        found.update(range(first, last + 1))
    return frozenset(found)


def render(numbers: Iterable[int]) -> str:
    """The shortest list of some numbers."""
    parts = []
    for _, run in groupby(enumerate(sorted(set(numbers))), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        parts.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return ",".join(parts)
