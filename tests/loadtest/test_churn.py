"""Pods that come and go leave nothing behind."""

import gc

from loadtest.churn import Churn


async def test_pods_that_come_and_go_are_bound_or_fit_nowhere() -> None:
    churn = Churn(2)
    await churn.pods(100)
    assert (churn.bound + churn.rejected, churn.rejected >= 25) == (100, True)


async def test_pods_that_come_and_go_leave_no_cycles() -> None:
    """Objects that survive Python's collector are looked at once an hour (`extender.faces.serving.memory`)."""
    churn = Churn(2)
    await churn.pods(100)
    gc.collect()
    gc.disable()
    try:
        await churn.pods(200)
        assert gc.collect() == 0
    finally:
        gc.enable()
