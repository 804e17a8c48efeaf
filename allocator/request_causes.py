"""Causes of a request as a whole. What speaks against one device is a check (`allocator.checks`), with its own cause.

Of these, two are also the causes of checks: `UNREACHABLE` of placement, `NO_MATCH` of selectors.
"""

from typing import Final

from allocator.reason import Cause

CONSTRAINT: Final = Cause(
    "constraint", "no devices for {request} satisfy constraint on {detail}", rank=10, of_choice=True
)
RESULTS: Final = Cause("results", "{request} needs more devices than a claim can hold", rank=20, of_choice=True)
COUNT: Final = Cause("count", "not enough free devices for {request}", rank=30)
POOL: Final = Cause("pool", "resource pool is not usable for {request}", rank=120)
UNREACHABLE: Final = Cause("unreachable", "no device for {request}", rank=130)
NO_MATCH: Final = Cause("selector", "no device matches {request}", rank=140)
