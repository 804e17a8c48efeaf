"""A trace of ours: what a seed makes of a scenario. Equal arguments give equal traces."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, cycle, islice, repeat, takewhile
from typing import Final

from loadtest.packing.own.scenario import Machine, PodKind, Scenario

LIVES: Final = 5
"""How long pods come and go, in mean lives of a pod."""


@dataclass(frozen=True, slots=True)
class OwnPod:
    """A pod that arrives.

    Attributes:
        arrives: when, in mean lives of a pod; 0 for all pods if none leaves.
        leaves: when it leaves, if it gets a node; None: never.
    """

    kind: PodKind
    arrives: float = 0.0
    leaves: float | None = None


@dataclass(frozen=True, slots=True)
class OwnTrace:
    """A scenario with nodes and pods.

    Attributes:
        nodes: by name, in the order of the cluster.
        pods: in the order in which they arrive.
    """

    scenario: Scenario
    nodes: Mapping[str, Machine]
    pods: tuple[OwnPod, ...]

    @property
    def units(self) -> int:
        """How much all nodes count for in percentages."""
        return sum(machine.units for machine in self.nodes.values())


def draw(scenario: Scenario, nodes: int, seed: int, load: float, *, departures: bool = False) -> OwnTrace:
    """Nodes and pods.

    Args:
        scenario: its machines are dealt to the nodes in equal shares, in random order.
        nodes: how many.
        seed: decides the order of the machines, the pods, and when they come and go.
        load: without departures, the last pod is the first with which this share of the units is asked for. With
            departures, so much is asked for at any time on average.
        departures: pods come at random times (Poisson) for `LIVES` mean lives, and each lives for a random time
            (exponential).
    """
    chance = random.Random(f"{scenario.name} {seed}")
    machines = list(islice(cycle(scenario.machines), nodes))
    chance.shuffle(machines)
    named = {f"node-{number:04d}": machine for number, machine in enumerate(machines)}
    units = sum(machine.units for machine in machines)
    pods = _passing(scenario, chance, units * load) if departures else _staying(scenario, chance, units * load)
    return OwnTrace(scenario, named, tuple(pods))


def _staying(scenario: Scenario, chance: random.Random, asked: float) -> Iterator[OwnPod]:
    for kind in _kinds(scenario, chance):
        yield OwnPod(kind)
        asked -= kind.size
        if asked <= 0:
            return


def _passing(scenario: Scenario, chance: random.Random, asked: float) -> Iterator[OwnPod]:
    """By Little's law, what is asked for at any time is the rate times the mean size, as the mean life is 1."""
    rate = asked / scenario.mean_size
    gaps = (chance.expovariate(rate) for _ in repeat(None))
    times = takewhile(lambda time: time < LIVES, accumulate(gaps))
    for time, kind in zip(times, _kinds(scenario, chance), strict=False):
        yield OwnPod(kind, time, time + chance.expovariate(1.0))


def _kinds(scenario: Scenario, chance: random.Random) -> Iterator[PodKind]:
    weights = [kind.weight for kind in scenario.kinds]
    while True:
        yield from chance.choices(scenario.kinds, weights)
