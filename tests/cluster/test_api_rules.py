"""A real API server keeps the rules that the one in memory is held to (`tests/extender/test_memory_rules.py`)."""

import pytest

from tests.cluster.claim_rules import CLAIM_RULES, ClaimRule, check_claim_rule
from tests.cluster.harness.client import Client
from tests.cluster.server_rules import SCENARIOS, Scenario


@pytest.mark.parametrize("rule", CLAIM_RULES, ids=lambda rule: rule.name)
async def test_writes_to_claims(client: Client, namespace: str, rule: ClaimRule) -> None:
    await check_claim_rule(client, namespace, rule)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_objects_of_any_kind(client: Client, namespace: str, scenario: Scenario) -> None:
    await scenario(client, namespace)
