"""A selector at which something fails that is no error of CEL, and who is told."""

from dataclasses import replace

from allocator import Device, Selectors
from allocator.cel import Expired, never
from extender.framework.decisions.solver import Solver
from extender.tools.faults import Faults
from tests.kit.clusters import Object, claim, request, solver

POISON = '"poison" == "poison"'
FAULT = "internal error (ZeroDivisionError); the log of the extender has the details"


class Poisoned(Selectors):
    """Fails at some expressions as only code with a mistake does."""

    def matches(self, expression: str, device: Device, expired: Expired = never) -> bool:
        if expression == POISON:
            raise ZeroDivisionError("poison")
        return super().matches(expression, device, expired)


class Told:
    """What a log is told: of whom, and what."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def error(self, event: str, **fields: object) -> None:
        assert event == "fault"
        self.lines.append(f"{fields['subject']}: {fields['exc_info']}")


def poisoned(told: Told | None = None) -> Solver:
    """A solver whose selectors fail at the poison."""
    return replace(solver(), selectors=Poisoned(), faults=Faults(told or Told()))


def poison_claim(name: str) -> Object:
    return claim(name, request(selectors=[POISON]))
