"""Which pairs of capabilities, and which pairs with which fault, a run of histories has covered."""

from collections import Counter
from collections.abc import Iterable
from itertools import combinations, product

from tests.simulation.plan import CAPABILITIES, FAULTS, PAIRS, Plan


def covered(plans: Iterable[Plan]) -> Counter[tuple[str, str, str]]:
    """How many histories have had each pair of capabilities with each fault."""
    found: Counter[tuple[str, str, str]] = Counter()
    for plan in plans:
        own = [each for each in CAPABILITIES if each in plan.has]
        found.update((one, other, fault) for (one, other), fault in product(combinations(own, 2), sorted(plan.faults)))
    return found


def report(found: Counter[tuple[str, str, str]]) -> str:
    """The counts by pair, the rarest pairs with a fault, and how many of them were never there."""
    with_fault = {(*pair, fault): found[*pair, fault] for pair, fault in product(PAIRS, FAULTS)}
    by_pair = {pair: min(with_fault[*pair, fault] for fault in FAULTS) for pair in PAIRS}
    never = [" + ".join(each) for each, times in with_fault.items() if not times]
    rarest = sorted(by_pair.items(), key=lambda each: each[1])[:5]
    lines = [f"{len(with_fault)} pairs of capabilities with a fault; never there: {len(never)}"]
    lines += [f"  {each}" for each in never[:10]]
    lines.append("the rarest pairs, with the fault that they met least often:")
    lines += [f"  {' + '.join(pair)}: {times}" for pair, times in rarest]
    return "\n".join(lines)
