"""A short run of kills; ``make test-kill`` is the long one."""

import pytest

from extender.config.settings import Transport
from tests.cluster.killing import Plan, run
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.components import ControlPlane


async def test_six_kills(client: Client, plane: ControlPlane, namespace: str) -> None:
    plan = Plan(pods=60, kills=6, nodes=10, devices=8, most=50, seed=1)
    figures = await run(plane, client, namespace, plan, print)
    assert figures.wrong == []
    assert figures.kills == plan.kills
    assert figures.bound == plan.pods
    assert figures.half_done, "a kill amid a bind is what this is about"


@pytest.mark.nightly
async def test_kills_of_controllers_and_of_the_extender(client: Client, plane: ControlPlane, namespace: str) -> None:
    controllers: tuple[Transport, ...] = ("Http", "PodSchedulingContext")
    plan = Plan(pods=40, kills=2, nodes=10, devices=8, most=30, seed=3, controllers=controllers, controller_kills=3)
    figures = await run(plane, client, namespace, plan, print)
    assert figures.wrong == []
    assert figures.kills == plan.kills + plan.controller_kills
    assert figures.bound == plan.pods
