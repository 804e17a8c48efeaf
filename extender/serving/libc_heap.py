"""The C library's heap, kept from holding on to memory that is free.

glibc gives each thread a heap of its own. Once a large block has been freed, blocks of that size are put into a heap as
well, and break it up. After hostile requests 174 of 398 MB were free and could not be given back.
"""

import ctypes
from typing import Final

_MAPPED_BYTES: Final = 512 * 1024
"""A block of this size or more is mapped alone, and given back as soon as it is freed. A body with 5,000 names is
smaller: to map and clear its pages each time would cost time."""

_SPARE_BYTES: Final = 16 * 1024 * 1024
"""A heap is cut if it has more free memory than this at its end."""

_HEAPS: Final = 2
"""The number of heaps for all threads. Python's lock lets one thread run at a time, so threads hardly wait here."""

_OPTIONS: Final = {-1: _SPARE_BYTES, -3: _MAPPED_BYTES, -8: _HEAPS}
"""M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX. Source: ``mallopt(3)``."""


def give_back_early() -> None:
    """Set this for the process, before it has threads. Where the C library is not glibc, nothing happens."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, value in _OPTIONS.items():
            mallopt(option, value)
