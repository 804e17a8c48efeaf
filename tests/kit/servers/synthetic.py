"""An API server that only reads, with the made-up objects of a big cluster.

``python -m tests.kit.servers.synthetic --nodes 5000 --claims 20000 --pods 50000`` prints the port that it listens on.
Lists come in a stream, or with ``--pages`` in pages; ``--events`` a second flow between requests
for ``/start`` and ``/stop``.
"""

import argparse
import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle
from typing import Final

import orjson
import uvloop

from extender.kube.api import RawObject
from extender.kube.resources import CLAIMS, CLASSES, NODES, PODS, SLICES, TEMPLATES, Resource
from tests.kit.objects import synthetic
from tests.kit.servers.raw import Call, RawApiServer, Reply, load_all

_TICKS: Final = 50
"""In which the events of a second come."""

_ORDER: Final = ((PODS, NODES, PODS, CLAIMS) * 4) + (PODS, NODES, PODS, SLICES)
"""Of 20 events, 10 are of pods (2 with claims), 5 of nodes, 4 of claims, 1 of a slice."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many objects of a kind.

    Attributes:
        pods_with_claims: of the pods that have a claim; no more than there are claims.
    """

    nodes: int
    claims: int
    pods: int
    pods_with_claims: int
    waiting: int
    events: int

    def makers(self) -> dict[Resource, tuple[int, Callable[[int, int], RawObject]]]:
        """How many there are of each kind, and how one is made of its number and revision."""
        served = min(self.pods, self.claims)  # each claim is reserved for the pod of its number
        every = max(1, served // max(1, self.pods_with_claims))

        def make_pod(number: int, revision: int) -> RawObject:
            if number >= self.pods:
                return synthetic.waiting_pod(number - self.pods, revision)
            return synthetic.pod(number, revision, claims=number < served and number % every == 0)

        return {
            NODES: (self.nodes, synthetic.node),
            SLICES: (self.nodes, synthetic.resource_slice),
            CLASSES: (10, synthetic.device_class),
            TEMPLATES: (2, synthetic.claim_template),
            CLAIMS: (self.claims, synthetic.claim),
            PODS: (self.pods + self.waiting, make_pod),
        }


@dataclass(slots=True)
class SyntheticApiServer(RawApiServer):
    """Changes flow once they are asked for."""

    sizes: Sizes = field(kw_only=True)
    _flowing: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        load_all(self, self._objects())

    def read(self, call: Call) -> Reply:
        """Answer a GET that is no watch; two paths let changes flow, and stop them."""
        if call.path == "/start":
            self._flowing = asyncio.create_task(self._flow())
        elif call.path == "/stop" and self._flowing is not None:
            self._flowing.cancel()
        return RawApiServer.read(self, call)

    def _objects(self) -> Iterator[RawObject]:
        for number, make in self.sizes.makers().values():
            for index in range(number):
                self.revision += 1
                yield make(index, self.revision)

    async def _flow(self) -> None:
        """So many events a second, to those that watch."""
        makers, steps = self.sizes.makers(), enumerate(cycle(_ORDER))
        clock = asyncio.get_running_loop().time
        due = clock()
        while True:
            for _ in range(self.sizes.events // _TICKS):
                step, resource = next(steps)
                number, make = makers[resource]
                self.tell(resource, "MODIFIED", orjson.dumps(make(step * 7919 % number, self.revision + 1)))
            due += 1 / _TICKS
            await asyncio.sleep(due - clock())


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("nodes", "claims", "pods", "pods-with-claims", "waiting", "events"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--pages", action="store_true", help="lists come in pages only")
    arguments = vars(parser.parse_args())
    streams = not arguments.pop("pages")
    uvloop.run(SyntheticApiServer(streams=streams, sizes=Sizes(**arguments)).serve())


if __name__ == "__main__":
    main()
