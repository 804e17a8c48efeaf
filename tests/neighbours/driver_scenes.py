"""Clusters with slices in the form of drivers that others make, and what a simulation says of their pods."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import yaml

from extender import Cluster
from extender.config.sources import load
from extender.faces.simulation.scheduling import Placements
from tests.kit.clusters import Object

WORLDS: Final = Path(__file__).parent / "drivers"
SETTINGS: Final = load(
    """
    featureGates: {DRAListTypeAttributes: true, DRANodeAllocatableResources: true}
    scheduling: {maxSeconds: 60, deadlineSeconds: 60}
    """
)


def world(*names: str) -> list[Object]:
    """The objects of some worlds on one node."""
    found: dict[tuple[str, str], Object] = {}
    for name in names:
        for each in yaml.safe_load_all((WORLDS / f"{name}.yaml").read_text()):
            found.setdefault((each["kind"], each["metadata"]["name"]), each)
    return list(found.values())


def simulated(objects: Sequence[Object]) -> Placements:
    return Cluster.from_objects(objects, settings=SETTINGS).schedule()


def answers(found: Placements) -> list[str]:
    """The devices of each pod, or why it has none."""
    return [row[-1] for row in found.table.rows]
