"""Reserve: take devices that many device classes select last, so that they are left for pods that need them.

Example (the p100 and p100-ecc story of Kubernetes' proposal 14): all P100 cards belong to class ``p100``, and those
with ECC memory also to class ``p100-ecc``. A pod that asks for any P100 gets a card without ECC while one is free on
any node. If equally many classes select two devices or nodes, best-fit decides between them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from allocator.policies.best_fit import by_waste, thrift, waste_in_words
from allocator.policies.merit import Merit
from allocator.policies.policy import K, Policy, in_bands, sorted_orders
from allocator.policies.policy_view import PolicyView
from allocator.search.candidates import Alternative


def _least_wanted_first(view: PolicyView, alternative: Alternative, suits: Sequence[int]) -> Sequence[int]:
    demand = {index: view.demand(index) for index in suits}
    return sorted(by_waste(view, alternative, suits), key=demand.__getitem__)


def _scores(merits: Mapping[K, Merit]) -> dict[K, int]:
    """The node whose devices the fewest classes select scores highest; then the least waste."""
    levels = sorted({each.demand for each in merits.values()}, reverse=True)
    thrift_of = thrift(merits.values())
    return in_bands(merits, lambda each: (levels.index(each.demand) + thrift_of(each)) / len(levels))


def _why(merit: Merit, every: Sequence[Merit]) -> Iterator[str]:
    if len({each.demand for each in every}) > 1:
        least = merit.demand == min(each.demand for each in every)
        yield "devices that the fewest classes select" if least else "devices that more classes select"
    yield from waste_in_words(merit, every)


def _weigh(view: PolicyView, taken: Sequence[int], merit: Merit) -> Merit:
    return merit._replace(demand=sum(map(view.demand, taken)))


RESERVE: Final = Policy(
    "reserve",
    lambda view: sorted_orders(view, _least_wanted_first),
    None,
    _scores,
    _why,
    weigh=_weigh,
    weighs_classes=True,
)
