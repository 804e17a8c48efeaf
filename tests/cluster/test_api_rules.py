"""A real API server and real controllers keep the rules that ours in memory are held to.

Theirs is `tests/extender/lab/test_memory_rules.py`.
"""

import pytest

from tests.cluster import controller_rules
from tests.cluster.claim_rules import CLAIM_RULES, ClaimRule, deviations
from tests.cluster.server_rules import SCENARIOS, Scenario
from tests.kit.controlplane.client import Client

pytestmark = pytest.mark.every_version


@pytest.mark.parametrize("rule", CLAIM_RULES, ids=lambda rule: rule.name)
async def test_writes_to_claims(client: Client, namespace: str, rule: ClaimRule) -> None:
    assert await deviations(client, namespace, rule) == []


@pytest.mark.parametrize("check_rule", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_objects_of_any_kind(client: Client, namespace: str, check_rule: Scenario) -> None:
    await check_rule(client, namespace)


@pytest.mark.parametrize("check_rule", controller_rules.SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_the_real_controllers_keep_the_rules(
    client: Client, namespace: str, check_rule: controller_rules.Scenario
) -> None:
    await check_rule(controller_rules.World(client, namespace, client.wait_for))
