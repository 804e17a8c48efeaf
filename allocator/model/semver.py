"""Semantic versions 2.0.0, strictly. Order and equality are precedence: build metadata has no part in it."""

import re
from dataclasses import dataclass, field
from functools import total_ordering
from typing import Final

_NUMBER: Final = r"(0|[1-9][0-9]*)"
_PRERELEASE: Final = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_TEXT: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}"
    rf"(?:-({_PRERELEASE}(?:\.{_PRERELEASE})*))?"
    r"(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?",
)
_MAX_NUMBER: Final = 2**64 - 1
_MAX_DIGITS: Final = len(str(_MAX_NUMBER))

_Key = tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """A version; equal, ordered and hashed by precedence.

    Attributes:
        prerelease: identifiers after ``-``, as written.
        build: identifiers after ``+``, which have no part in the order.
        text: the version as it was written.
    """

    major: int
    minor: int
    patch: int
    prerelease: tuple[str, ...]
    build: tuple[str, ...]
    text: str
    _key: _Key = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> "Version":
        """Read a version, e.g. ``1.2.3-rc.1+build.5``.

        Raises:
            ValueError: not a semantic version, or a number in it does not fit 64 bits.
        """
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f'"{text[:64]}" is not a semantic version')
        prerelease, build = (tuple(part.split(".")) if part else () for part in match.groups()[3:])
        numbers = (*match.groups()[:3], *filter(str.isdecimal, prerelease))
        if any(len(number) > _MAX_DIGITS or int(number) > _MAX_NUMBER for number in numbers):
            raise ValueError(f'"{text[:64]}" is not a semantic version: a number does not fit 64 bits')
        major, minor, patch = (int(number) for number in match.groups()[:3])
        key = (major, minor, patch, not prerelease, tuple(_identifier(name) for name in prerelease))
        return cls(major, minor, patch, prerelease, build, text, key)

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, Version) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    def __lt__(self, other: "Version") -> bool:
        return self._key < other._key

    def __str__(self) -> str:
        return self.text


def _identifier(name: str) -> tuple[bool, int, str]:
    """Numbers stand before words and compare as numbers."""
    return (False, int(name), "") if name.isdecimal() else (True, 0, name)
