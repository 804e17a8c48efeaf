"""The API server and the controllers in memory keep the rules that real ones keep: the tables of the cluster suite."""

import pytest

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import Resource
from extender.lab.cluster import ClaimController
from tests.cluster import controller_rules
from tests.cluster.claim_rules import CLAIM_RULES, ClaimRule, deviations
from tests.cluster.server_rules import SCENARIOS, Scenario
from tests.kit.controlplane.client import Condition, key_of
from tests.kit.servers.memory import memory_api


@pytest.mark.parametrize("rule", CLAIM_RULES, ids=lambda rule: rule.name)
async def test_writes_to_claims_follow_the_rules_of_an_api_server(rule: ClaimRule) -> None:
    assert await deviations(memory_api(), "ns", rule) == []


@pytest.mark.parametrize("check_rule", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_objects_of_any_kind(check_rule: Scenario) -> None:
    await check_rule(memory_api(), "ns")


@pytest.mark.parametrize("check_rule", controller_rules.SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_the_controller_in_memory_keeps_the_rules_of_the_real_ones(check_rule: controller_rules.Scenario) -> None:
    api = memory_api()

    async def settle(resource: Resource, key: ObjectKey, condition: Condition) -> RawObject | None:
        await ClaimController(api).reconcile()
        found = [obj for obj in (await api.list(resource)).items if key_of(obj) == key]
        state = found[0] if found else None
        assert condition(state), state
        return state

    await check_rule(controller_rules.World(api, "ns", settle))
