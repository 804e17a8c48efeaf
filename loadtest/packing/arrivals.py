"""Arrivals: pods of a trace in random order, until they have asked for a given share of all GPUs.

Source: the experiment of "Beware of Fragmentation" (USENIX ATC 2023), section 6.1.
"""

import random
from collections.abc import Iterator
from typing import Final

from loadtest.packing.trace import Shape, Trace

LOAD: Final = 1.3
"""The share of all GPUs that the pods have asked for in the end."""


def arrivals(trace: Trace, gpus: int, seed: int, load: float = LOAD) -> tuple[Shape, ...]:
    """What the pods ask for, in the order in which they arrive.

    Args:
        trace: its pods come in random order, each once; then pods are drawn from it again and again.
        gpus: thousandths of GPUs that the cluster has.
        seed: decides the order.
        load: the share of the GPUs after which no more pods arrive. The last pod reaches or exceeds it.
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
