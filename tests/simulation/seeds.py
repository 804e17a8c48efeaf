"""What a seed stands for: a history in a wide world, or a narrow one."""

from typing import Final

from tests.simulation.narrow import narrow_plan
from tests.simulation.plan import Plan, wide_plan

NARROW: Final = 1_000_000_000
"""Seeds from here on are those of narrow histories."""


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    return wide_plan(seed) if seed < NARROW else narrow_plan(seed)
