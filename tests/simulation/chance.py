"""Draws that depend on a seed and on their purpose, so that a history keeps its other draws if a part is left out."""

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, TypeVar

_T = TypeVar("_T")

_BYTES: Final = 8
_SCALE: Final = float(1 << (8 * _BYTES))


class Chance:
    """Draws from a seed; the same on each machine and in each process.

    Each purpose has draws of its own: the third draw for "bind of pod a" is the same whatever else was drawn.
    """

    def __init__(self, seed: str) -> None:
        self._seed = seed.encode()[:64]
        self._numbers: Counter[str] = Counter()

    def __call__(self, purpose: str) -> float:
        """A number from 0 to 1, without 1."""
        self._numbers[purpose] += 1
        text = f"{purpose}\0{self._numbers[purpose]}".encode()
        drawn = blake2b(text, digest_size=_BYTES, key=self._seed).digest()
        return int.from_bytes(drawn, "big") / _SCALE

    def happens(self, purpose: str, share: float) -> bool:
        """Whether something happens that happens with this probability."""
        return share > 0 and self(purpose) < share

    def between(self, purpose: str, least: float, most: float) -> float:
        """A number between two others."""
        return least + (most - least) * self(purpose)

    def of(self, purpose: str, values: Sequence[_T]) -> _T:
        """One of the values."""
        return values[int(self(purpose) * len(values))]
