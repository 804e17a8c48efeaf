"""GPUs with partitions, as a driver publishes them: NVIDIA A100 40GB with MIG."""

from collections.abc import Iterator
from typing import Final

from tests.kit.objects.parts import Object, api_object, slice_spec

PROFILES: Final = {
    "1g.5gb": (1, range(7)),
    "2g.10gb": (2, (0, 2, 4)),
    "3g.20gb": (4, (0, 4)),
    "4g.20gb": (4, (0,)),
    "7g.40gb": (8, (0,)),
}
"""Profile to its memory slices, and to the first slice of each of its places."""

PARTITIONS: Final = sum(len(places) for _, places in PROFILES.values())
"""Partitions that a GPU publishes. Each excludes those that overlap with it."""


def partitioned(node: str, gpus: int = 1) -> list[Object]:
    """The slices of a node's pool: ``gpu-0-1g.5gb-0`` (with ``-`` for ``.``) and the like, and the counters."""
    sets = [{"name": f"gpu-{gpu}", "counters": _memory_slices(0, 8)} for gpu in range(gpus)]
    partitions = [each for gpu in range(gpus) for each in _partitions(gpu)]
    specs = {"devices": slice_spec(node, partitions, slices=2, nodeName=node)}
    counters = slice_spec(node, [], slices=2, nodeName=node, sharedCounters=sets)
    specs["counters"] = {name: value for name, value in counters.items() if name != "devices"}
    return [api_object("ResourceSlice", f"{node}-{part}", spec=spec) for part, spec in specs.items()]


def partition(gpu: int, profile: str, place: int) -> str:
    """The name of a partition."""
    return f"gpu-{gpu}-{profile.replace('.', '-')}-{place}"


def _partitions(gpu: int) -> Iterator[Object]:
    for profile, (size, places) in PROFILES.items():
        for place in places:
            yield {
                "name": partition(gpu, profile, place),
                "attributes": {
                    "profile": {"string": profile},
                    "productName": {"string": "NVIDIA A100-SXM4-40GB"},
                },
                "capacity": {"memory": {"value": f"{5 * size}Gi"}},
                "consumesCounters": [{"counterSet": f"gpu-{gpu}", "counters": _memory_slices(place, size)}],
            }


def _memory_slices(first: int, number: int) -> Object:
    return {f"memory-slice-{index}": {"value": "1"} for index in range(first, first + number)}
