"""Gangs in a namespace with a DeviceQuota: what is kept for one gang counts for the next."""

from tests.extender.ganging import Scene, members, nodes
from tests.extender.test_device_quota import limited, quota


async def test_two_gangs_do_not_share_a_quota_that_suffices_for_one() -> None:
    scene = Scene(*nodes("abcd"), quota(limited(devices=3)), *members("x", 2), *members("y", 2))
    await scene.run()
    assert sorted(scene.bound()) == ["x0", "x1"]
    await scene.end("x0", "x1")
    await scene.run()
    assert sorted(scene.bound()) == ["y0", "y1"]
