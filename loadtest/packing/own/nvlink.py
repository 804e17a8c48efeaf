"""GPUs that NVLink joins: pods ask for 1, 2, 4 or 8 GPUs that one partition of the fabric manager has.

Attributes are those of NVIDIA's driver with fabric manager partitions: GPUs with one value of ``partition4`` are four
GPUs that a pod can use together.
"""

from typing import Final

from loadtest.packing.own.scenario import Ask, Class, Device, Machine, PodKind, Scenario, Value

_DRIVER: Final = "gpu.nvidia.com"
_GPUS: Final = 8
_GI: Final = 2**30
_GPU: Final = Class("gpu.nvidia.com", _DRIVER, "gpu")


def nvlink() -> Scenario:
    """Nodes with 8 GPUs. Single GPUs are asked for most often."""
    devices = tuple([_gpu(number) for number in range(_GPUS)])
    kinds = (_kind(1, 40), _kind(2, 30), _kind(4, 20), _kind(8, 10))
    return Scenario("nvlink", (Machine("NVIDIA H100 80GB HBM3", devices, _GPUS),), kinds)


def _kind(gpus: int, weight: int) -> PodKind:
    match = f"{_DRIVER}/partition{gpus}" if gpus > 1 else ""
    return PodKind(f"gpus-{gpus}", weight, gpus, (Ask("gpus", _GPU, gpus),), match)


def _gpu(number: int) -> Device:
    partitions = {f"partition{size}": number // size for size in (2, 4, 8)}
    attributes: dict[str, Value] = {"type": "gpu", "uuid": f"GPU-{number}", "gpuModuleID": number + 1, **partitions}
    return Device(f"gpu-{number}", _DRIVER, attributes, {"memory": 80 * _GI})
