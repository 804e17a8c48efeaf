"""What the C library does with freed memory, in a process of its own."""

import platform
import subprocess
import sys

import pytest

from extender.faces.serving.memory import Heap

_BLOCKS = 40
_PROGRAM = f"""
import ctypes
from extender.faces.serving.memory import give_back_early

class Totals(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks",
                                                     "fsmblks", "uordblks", "fordblks", "keepcost")]

totals = ctypes.CDLL(None).mallinfo2
totals.restype = Totals
give_back_early()
[bytearray(4_000_000)]
blocks = [bytearray(1_000_000) for _ in range({_BLOCKS})]
held = totals().hblks
del blocks
print(held, totals().hblks)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
def test_large_blocks_are_mapped_alone_also_after_a_larger_one_was_freed() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)  # noqa: S603
    held, left = map(int, done.stdout.split())
    assert held - left == _BLOCKS


def test_what_has_become_free_is_given_back_once() -> None:
    free, trimmed = [0], list[int]()
    heap = Heap(lambda: free[0], lambda: trimmed.append(free[0]))
    for now in (5, 10, 11, 18, 20, 5, 15, 1, 8, 10):
        free[0] = now * 1_000_000
        heap.look()
    assert trimmed == [each * 1_000_000 for each in (10, 20, 15, 10)]


def test_memory_between_blocks_that_are_in_use_is_given_back() -> None:
    """In a process of its own: what this one has free depends on other tests."""
    program = """
from extender.faces.serving.memory import give_back_early, heap_of_process
from tests.kit.measure import resident
give_back_early()
heap = heap_of_process()
blocks = [b"x" * 50_000 for _ in range(3000)]
del blocks[0:-1:2], blocks[0:-1:2], blocks[0:-1:2]
before = resident()
heap.look()
print(before, resident())
"""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)  # noqa: S603
    before, after = map(int, done.stdout.split())
    assert before > 150_000_000
    assert after < 80_000_000
