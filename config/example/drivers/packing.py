"""A CCI driver that packs containers on whole cores: SMT siblings first, and single CPUs only for what is odd.

Run it as root beside `dra-extender node`: python config/example/drivers/packing.py [FOLDER]
"""

import sys
from collections import defaultdict
from pathlib import Path

from extender.node.cci import FOLDER, Ask, Cpu, End, Grant, RefusedError, Start, serve


class Packing:
    name = "packing.example.com"

    def admit(self, ask: Ask) -> Grant:
        if len(ask.available) < ask.cores:
            raise RefusedError(f"{ask.cores} CPUs are asked for, and {len(ask.available)} of the claim are left")
        cores = defaultdict[tuple[int, int], list[Cpu]](list)
        for cpu in ask.available:
            cores[cpu.socket, cpu.core].append(cpu)
        found: list[int] = []
        while missing := ask.cores - len(found):
            # The largest core that is needed whole; for what is odd, the core with the fewest CPUs left.
            best = min(cores, key=lambda core: (len(cores[core]) > missing, abs(len(cores[core]) - missing), core))
            found += [cpu.number for cpu in cores.pop(best)[:missing]]
        return Grant(frozenset(found))

    def add(self, start: Start) -> None:
        """The runtime pins the container."""

    def remove(self, end: End) -> None:
        """What is available comes with the next ask."""


if __name__ == "__main__":
    serve(Packing(), Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
