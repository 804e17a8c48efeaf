"""What every test begins with: Hypothesis' settings, and logging that no other test has set up.

Hypothesis: the same examples every time where CI says so, and no deadlines on a busy machine.

Logging: as structlog has it, but a traceback is plain. A drawn one, with the values of all variables, takes more than a
second on a busy machine, and what the test waits for comes after it.
"""

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
    """A level that one test has set is not the next one's: what is below it is not even given to `capture_logs`."""
    processors = structlog.get_config()["processors"]
    console = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure([console if isinstance(each, structlog.dev.ConsoleRenderer) else each for each in processors])
    yield
    structlog.reset_defaults()
