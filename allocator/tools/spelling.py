"""Suggestions for misspelled names."""

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from itertools import groupby
from typing import Final

_WORD: Final = re.compile(r"[A-Z]+s?(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")
_SIMILAR: Final = 3
_LEAST: Final = 3
"""Letters of a word in which one may be too much, missing, or in the wrong place."""

_LEAST_OTHER: Final = 5
"""Letters of a word in which one may be another: ``cpu`` is not a misspelling of ``gpu``."""


_LONGEST: Final = 1024
"""Characters of a word that is compared. Names are far shorter, and to compare a megabyte with each takes seconds."""


def nearest(word: str, known: Iterable[str]) -> str:
    """The known name that is most similar to a word, ignoring case; empty if no name is similar."""
    return next(iter(_similar(word, known, 1)), "")


def meant_by(word: str, known: Iterable[str]) -> str:
    """The known name that a word misspells; empty if there is none."""
    names = () if len(word) > _LONGEST else sorted(known)
    return next((name for name in names if is_misspelled(word, name)), "")


def is_misspelled(word: str, name: str) -> bool:
    """Whether a word differs from a name in case, in separators, or in one letter of a word.

    Numbers must be equal: ``a100`` has only its shape in common with ``h100``, and ``1g.5gb`` with ``1g.10gb``.
    """
    left, right = _words(word), _words(name)
    return _joined(left) == _joined(right) or (len(left) == len(right) and all(map(_is_slip, left, right)))


def _words(name: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(name)]


def _joined(words: Iterable[str]) -> list[str]:
    """The words without what separates them. Numbers stay apart: ``1-1`` is not ``11``."""
    return [part for is_number, run in groupby(words, str.isdigit) for part in (run if is_number else ["".join(run)])]


def _is_slip(word: str, meant: str) -> bool:
    if word == meant or word.isdigit() or meant.isdigit():
        return word == meant
    least = min(len(word), len(meant))
    at = next((n for n, (wrong, right) in enumerate(zip(word, meant, strict=False)) if wrong != right), least)
    wrong, right = word[at:], meant[at:]
    if wrong[1:] == right[1:] and wrong and right:
        return least >= _LEAST_OTHER
    is_swapped = wrong[:2] == right[1::-1] and wrong[2:] == right[2:]
    return least >= _LEAST and (wrong[1:] == right or wrong == right[1:] or is_swapped)


def nearest_attribute(missing: str, attributes: Collection[str]) -> str:
    """The attribute that was probably meant: the same name in another domain, or a misspelled name.

    Args:
        missing: a qualified name, e.g. ``gpu.example.com/model``.
        attributes: the qualified names that there are.
    """
    domain, _, name = missing.rpartition("/")
    elsewhere = [known for known in sorted(attributes) if known.rpartition("/")[2].lower() == name.lower()]
    if elsewhere:
        return elsewhere[0]
    own = {known.rpartition("/")[2]: known for known in attributes if known.rpartition("/")[0] == domain}
    if own:
        return own.get(meant_by(name, own), "")
    return meant_by(missing, attributes)


def did_you_mean(meant: str) -> str:
    """``; did you mean model?``, or nothing if no name is like it."""
    return f"; did you mean {meant}?" if meant else ""


def hint(word: str, known: Iterable[str]) -> str:
    """``; did you mean gpu?`` for a misspelled name, ``; similar names: a100`` for others, or nothing."""
    names = list(known)
    near = _similar(word, names, _SIMILAR)
    return did_you_mean(meant_by(word, names)) or (f"; similar names: {', '.join(near)}" if near else "")


def _similar(word: str, known: Iterable[str], count: int) -> list[str]:
    if len(word) > _LONGEST:
        return []
    folded: dict[str, str] = {}
    for name in sorted(known):
        folded.setdefault(name.lower(), name)
    return [folded[each] for each in get_close_matches(word.lower(), folded, n=count, cutoff=0.6)]
