"""What the C library does with freed memory, in a process of its own."""

import platform
import subprocess
import sys

import pytest

_BLOCKS = 40
_PROGRAM = f"""
import ctypes
from extender.serving.libc_heap import give_back_early

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
