"""Hypothesis: the same examples every time where CI says so, and no deadlines on a busy machine."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("local", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
