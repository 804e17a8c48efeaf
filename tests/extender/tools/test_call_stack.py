"""Calls in a stack of one piece: what work returns, and that no depth of calls costs more than another."""

import resource
from collections.abc import Callable

import pytest

from extender.tools.offload import in_one_piece, in_thread

CALLS = 100
DEPTH = 400


def at_depth(depth: int, work: Callable[[], int]) -> int:
    return work() if depth == 0 else at_depth(depth - 1, work)


def leaf() -> int:
    return 0


def new_pages() -> int:
    """The most pages that the operating system gives for `CALLS` calls at some depth."""

    def given() -> int:
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        for _ in range(CALLS):
            leaf()
        return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before

    at_depth(DEPTH, leaf)
    return max(at_depth(depth, given) for depth in range(DEPTH))


def test_a_call_gets_no_memory_from_the_operating_system_at_any_depth() -> None:
    assert in_one_piece(new_pages) < CALLS


async def test_nor_does_one_in_a_thread() -> None:
    assert await in_thread(new_pages) < CALLS


def test_the_result_comes_back() -> None:
    assert in_one_piece(lambda: 5) == 5


def test_an_error_passes() -> None:
    with pytest.raises(ZeroDivisionError):
        in_one_piece(lambda: 1 // 0)
