"""What is wrong with what a subject has written: `dra-extender audit`, and pods and claims that don't match."""

import asyncio
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from loadtest.endtoend.objects import NAMESPACE
from tests.kit.controlplane.aftermath import losses
from tests.kit.controlplane.client import Client

_AUDIT: Final = (sys.executable, "-m", "extender", "audit", "--output", "json")
_AUDIT_SECONDS: Final = 300.0
_HOLDS, _BROKEN = 0, 1


class AuditError(Exception):
    """The audit could not judge."""


@dataclass(frozen=True, slots=True)
class Checker:
    """Judges a cluster from the outside.

    Attributes:
        client: an administrator's.
        kubeconfig: likewise.
    """

    client: Client
    kubeconfig: Path

    async def findings(self, *, audited: bool) -> list[str]:
        """All that is wrong at this moment; some of it may pass while undos and controllers are at work.

        Args:
            audited: allocations mean something; else only pods and claims are compared.

        Raises:
            AuditError: the audit could not judge.
        """
        lost = await losses(self.client, NAMESPACE)
        if lost or not audited:
            return lost
        command = (*_AUDIT, "--kubeconfig", str(self.kubeconfig))
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, check=False, timeout=_AUDIT_SECONDS
        )
        return verdict(done.returncode, done.stdout, done.stderr)


def verdict(code: int, output: bytes, errors: bytes) -> list[str]:
    """What an audit found, of its exit code and what it has printed.

    Raises:
        AuditError: it could not judge.
    """
    if code not in (_HOLDS, _BROKEN):
        raise AuditError(f"dra-extender audit ended with exit code {code}: {errors.decode(errors='replace').strip()}")
    return [f"{each['rule']}: claim {', '.join(each['claims'])}: {each['message']}" for each in orjson.loads(output)]
