"""All scenarios by name."""

from collections.abc import Callable, Mapping
from typing import Final

from loadtest.packing.own.mig import any_gpu, mig
from loadtest.packing.own.nic import nic
from loadtest.packing.own.nvlink import nvlink
from loadtest.packing.own.scenario import Scenario
from loadtest.packing.own.sriov import sriov

SCENARIOS: Final[Mapping[str, Callable[[], Scenario]]] = {
    "mig": mig,
    "any-gpu": any_gpu,
    "nvlink": nvlink,
    "nic": nic,
    "sriov": sriov,
}
