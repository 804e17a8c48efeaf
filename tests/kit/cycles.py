"""Errors that stay until garbage is collected, because their frames know them."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def errors_in_cycles() -> Iterator[list[BaseException]]:
    """Collects nothing within the context; at its end, the list has the errors that only a collection frees."""
    found: list[BaseException] = []
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found += [each for each in gc.garbage if isinstance(each, BaseException)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
