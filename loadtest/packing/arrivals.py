"""Arrivals: the pods of a trace in random order, and more of them, until a share of all GPUs is asked for.

Source: the experiment of "Beware of Fragmentation" (USENIX ATC 2023), section 6.1.
"""

import random
from collections.abc import Iterator
from typing import Final

from loadtest.packing.trace import Shape, Trace

LOAD: Final = 1.3
"""The share of all GPUs that is asked for in the end."""


def arrivals(trace: Trace, gpus: int, seed: int, load: float = LOAD) -> tuple[Shape, ...]:
    """What the pods ask for, in the order in which they arrive.

    Args:
        trace: its pods come in random order, each once; then pods are drawn from it again and again.
        gpus: thousandths of GPUs that the cluster has.
        seed: decides the order.
        load: the last pod is the first with which at least this share of the GPUs is asked for.
    """
    found, asked = [], 0
    for shape in _endless(trace, random.Random(seed)):
        found.append(shape)
        asked += shape.asked
        if asked >= gpus * load:
            break
    return tuple(found)


def _endless(trace: Trace, chance: random.Random) -> Iterator[Shape]:
    yield from chance.sample(trace.shapes, len(trace.shapes))
    while True:
        yield chance.choice(trace.shapes)
