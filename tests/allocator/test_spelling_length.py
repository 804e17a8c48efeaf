"""Suggestions for words that are longer than any name: there are none, so that a megabyte costs nothing."""

import pytest

from allocator.tools import hint, nearest


@pytest.mark.parametrize(("length", "is_suggested"), [(253, True), (1024, True), (1025, False), (1_000_000, False)])
def test_a_word_that_is_longer_than_any_name_has_no_suggestion(length: int, is_suggested: bool) -> None:
    known = ["n" * length + "x"]
    assert bool(nearest("n" * length, known)) is is_suggested
    assert bool(hint("n" * length, known)) is is_suggested
