"""promtool, Prometheus' own tool, which the variable PROMTOOL names."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest


def promtool(*arguments: str | Path, given: str = "") -> Sequence[str]:
    """The lines that promtool prints; the test is skipped if PROMTOOL is not set.

    Args:
        arguments: of promtool.
        given: its standard input.

    Raises:
        pytest.fail.Exception: its exit code is not 0; the message is what it has printed.
    """
    program = os.environ.get("PROMTOOL")
    if not program:
        pytest.skip("PROMTOOL names no promtool")
    command = [program, *map(str, arguments)]
    found = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=120)
    printed = found.stdout + found.stderr
    if found.returncode:
        pytest.fail(f"{' '.join(command)}:\n{printed}", pytrace=False)
    return printed.splitlines()
