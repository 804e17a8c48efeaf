"""Suggestions for misspelled names."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches


def nearest(word: str, known: Iterable[str]) -> str:
    """The known name that is most similar to a word, ignoring case; empty if no name is similar."""
    folded: dict[str, str] = {}
    for name in sorted(known):
        folded.setdefault(name.lower(), name)
    near = get_close_matches(word.lower(), folded, n=1, cutoff=0.6)
    return folded[near[0]] if near else ""


def nearest_attribute(missing: str, attributes: Collection[str]) -> str:
    """The attribute that was probably meant: the same name in another domain, or a similar name.

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
        return own.get(nearest(name, own), "")
    return nearest(missing, attributes)


def did_you_mean(meant: str) -> str:
    """``; did you mean model?``, or nothing if no name is like it."""
    return f"; did you mean {meant}?" if meant else ""
