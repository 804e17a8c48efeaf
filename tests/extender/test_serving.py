"""What is made before the service serves."""

import pytest

from allocator import Device, DeviceId
from allocator.cel import parse as parsing
from extender.assembly import make_solver
from extender.config.settings import Settings


def test_no_pod_pays_for_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer to build, on a busy machine, than a pod may take on a node."""
    parsing._parser.cache_clear()
    solver = make_solver(Settings())
    monkeypatch.delattr(parsing, "Lark")
    device = Device(DeviceId("gpu.example.com", "node", "gpu-0"))
    assert solver.selectors.matches('device.driver == "gpu.example.com"', device)
