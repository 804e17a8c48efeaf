"""Fields that entries of several edits have, and fields that none has."""

from allocator.tools import Fields
from extender.tools.wording import suggestion


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
