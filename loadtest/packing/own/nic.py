"""GPUs and RDMA NICs: pods ask for a GPU, a NIC, or both at one PCIe root.

Nodes have what the drivers of NVIDIA and DRANET publish of a machine with 8 GPUs and 4 NICs at 4 PCIe roots.
"""

from typing import Final

from loadtest.packing.own.scenario import Ask, Class, Device, Machine, PodKind, Scenario, Value

_GPU: Final = Class("gpu.nvidia.com", "gpu.nvidia.com", "gpu")
_NIC: Final = Class("dranet", "dra.net")
_ROOT: Final = "resource.kubernetes.io/pcieRoot"
_GI: Final = 2**30
_ROOTS: Final = 4
_GPUS_AT_ROOT: Final = 2


def nic() -> Scenario:
    """A GPU with a NIC, and a GPU without one, are asked for equally often."""
    gpus = [_gpu(number) for number in range(_ROOTS * _GPUS_AT_ROOT)]
    devices = (*gpus, *[_nic(root) for root in range(_ROOTS)])
    kinds = (
        _kind("gpu", 40, 1, 0),
        _kind("gpu-nic", 40, 1, 1),
        _kind("gpus-nic", 10, 2, 1),
        _kind("nic", 10, 0, 1),
    )
    return Scenario("nic", (Machine("A100 with NICs", devices, len(devices)),), kinds)


def _kind(name: str, weight: int, gpus: int, nics: int) -> PodKind:
    asks = [Ask(text, of, count) for text, of, count in (("gpu", _GPU, gpus), ("nic", _NIC, nics)) if count]
    return PodKind(name, weight, gpus + nics, tuple(asks), _ROOT if gpus + nics > 1 else "")


def _gpu(number: int) -> Device:
    attributes = {"type": "gpu", "uuid": f"GPU-{number}", _ROOT: _root(number // _GPUS_AT_ROOT)}
    return Device(f"gpu-{number}", _GPU.driver, attributes, {"memory": 40 * _GI})


def _nic(root: int) -> Device:
    attributes: dict[str, Value] = {"dra.net/rdma": True, "dra.net/rdmaDevice": f"rdma{root}", _ROOT: _root(root)}
    return Device(f"pci-0000-{root}0-1b-0", _NIC.driver, attributes)


def _root(number: int) -> str:
    return f"pci0000:{number + 1}0"
