"""What every test begins with: Hypothesis' settings, and logging that no other test has set up.

Hypothesis: the same examples every time where CI says so, and no deadlines on a busy machine.
"""

import logging
import os
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

settings.register_profile("local", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(autouse=True)
def logging_as_it_comes() -> Iterator[None]:
    """What one test has set is not the next one's: what is below a level is not even given to `capture_logs`."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)
