"""GPUs with MIG: pods ask for the least memory and multiprocessors that they need, of A100 or H100.

Devices, their names, capacities, counters and their order are those of NVIDIA's driver with dynamic MIG. Profiles and
places: NVIDIA's MIG user guide; amounts: ``nvidia-smi mig -lgip`` of an A100-SXM4-40GB and an H100-SXM5-80GB.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from loadtest.packing.own.scenario import Ask, Class, CounterKey, Device, Machine, PodKind, Scenario

_DRIVER: Final = "gpu.nvidia.com"
_GPUS: Final = 8
_SLICES: Final = 8
_MI: Final = 2**20
_GI: Final = 2**30


@dataclass(frozen=True, slots=True)
class _Profile:
    """A size of partition: its amounts, and the memory slices at which it may begin."""

    name: str
    number: int
    memory: int
    multiprocessors: int
    engines: int
    slices: int
    places: tuple[int, ...]


_A100: Final = (
    _Profile("1g.10gb", 15, 9856, 14, 1, 2, (0, 2, 4, 6)),
    _Profile("1g.5gb", 19, 4864, 14, 1, 1, (0, 1, 2, 3, 4, 5, 6)),
    _Profile("2g.10gb", 14, 9856, 28, 2, 2, (0, 2, 4)),
    _Profile("3g.20gb", 9, 19968, 42, 3, 4, (0, 4)),
    _Profile("4g.20gb", 5, 19968, 56, 4, 4, (0,)),
    _Profile("7g.40gb", 0, 40192, 98, 7, 8, (0,)),
)
_H100: Final = (
    _Profile("1g.10gb", 19, 9984, 16, 1, 1, (0, 1, 2, 3, 4, 5, 6)),
    _Profile("1g.20gb", 15, 20096, 26, 1, 2, (0, 2, 4, 6)),
    _Profile("2g.20gb", 14, 20096, 32, 2, 2, (0, 2, 4)),
    _Profile("3g.40gb", 9, 40448, 60, 3, 4, (0, 4)),
    _Profile("4g.40gb", 5, 40448, 64, 4, 4, (0,)),
    _Profile("7g.80gb", 0, 81152, 132, 8, 8, (0,)),
)
"""In the order of the devices' names."""

_MIG: Final = Class("mig.nvidia.com", _DRIVER, "mig")
_ANY: Final = Class("any.nvidia.com", _DRIVER)


def mig() -> Scenario:
    """Pods ask for partitions only: a class has all partitions, and no whole GPU."""
    return _scenario("mig", _MIG)


def any_gpu() -> Scenario:
    """Pods ask for any GPU or partition that is large enough: a class has all devices of the driver."""
    return _scenario("any-gpu", _ANY)


def _scenario(name: str, of: Class) -> Scenario:
    """Half of the nodes have A100, half H100. Small pods are the most frequent."""
    kinds = (
        _kind("tiny", of, 30, 4),
        _kind("small", of, 25, 9),
        _kind("small-fast", of, 15, 9, 28),
        _kind("medium", of, 15, 19),
        _kind("large", of, 10, 39),
        _kind("whole", of, 5, 79),
    )
    # the driver announces a whole GPU only where MIG can be switched without a reset: not on Ampere
    a100 = _machine("NVIDIA A100-SXM4-40GB", _A100, whole=False)
    h100 = _machine("NVIDIA H100 80GB HBM3", _H100, whole=True)
    return Scenario(name, (a100, h100), kinds)


def _kind(name: str, of: Class, weight: int, gib: int, multiprocessors: int = 0) -> PodKind:
    least = {"memory": gib * _GI} | ({"multiprocessors": multiprocessors} if multiprocessors else {})
    return PodKind(name, weight, gib * 1024, (Ask("gpu", of, least=least),))


def _machine(model: str, profiles: tuple[_Profile, ...], *, whole: bool) -> Machine:
    largest = profiles[-1]
    devices = tuple([each for gpu in range(_GPUS) for each in _devices(gpu, model, profiles, whole=whole)])
    counters = {key: amount for gpu in range(_GPUS) for key, amount in _counters(gpu, largest, 0).items()}
    return Machine(model, devices, _GPUS * largest.memory, counters)


def _devices(gpu: int, model: str, profiles: tuple[_Profile, ...], *, whole: bool) -> Iterator[Device]:
    """A GPU, if the driver announces it, and its partitions."""
    if whole:
        attributes = {"type": "gpu", "productName": model, "uuid": f"GPU-{gpu}"}
        largest = profiles[-1]
        yield Device(f"gpu-{gpu}", _DRIVER, attributes, _amounts(largest), _counters(gpu, largest, 0))
    for profile in profiles:
        for place in profile.places:
            yield Device(
                f"gpu-{gpu}-mig-{profile.name.replace('.', '')}-{profile.number}-{place}",
                _DRIVER,
                {"type": "mig", "profile": profile.name, "productName": model, "parentUUID": f"GPU-{gpu}"},
                _amounts(profile),
                _counters(gpu, profile, place),
            )


def _amounts(profile: _Profile) -> Mapping[str, int]:
    return {
        "memory": profile.memory * _MI,
        "multiprocessors": profile.multiprocessors,
        "copyEngines": profile.engines,
    }


def _counters(gpu: int, profile: _Profile, place: int) -> Mapping[CounterKey, int]:
    """What a partition consumes: its amounts, and each of its memory slices."""
    found = {
        "memory": profile.memory * _MI,
        "multiprocessors": profile.multiprocessors,
        "copy-engines": profile.engines,
    }
    found |= {f"memory-slice-{number}": 1 for number in range(place, place + profile.slices)}
    return {(f"gpu-{gpu}-counter-set", name): amount for name, amount in found.items()}
