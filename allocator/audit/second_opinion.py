"""The second opinion: an engine that shares no code with ours judges the selectors of allocated devices again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, TypeAlias

from allocator.audit.rules import Finding, Rule
from allocator.cel import CelError, CompileError, Expired, OutOfTimeError, never
from allocator.cel.selectors import Selectors
from allocator.model.claims import Claim
from allocator.model.device_classes import DeviceClass
from allocator.model.devices import DeviceId
from allocator.model.slices.device import Device

MOST_COST: Final = 20_000
"""The most that a selector may cost in our engine, in units of cost, if the second engine is to evaluate it."""

_LONGEST_SELECTOR: Final = 200
"""The most characters of a selector in a finding."""


class Answer(Enum):
    """The answer of an engine about a selector and a device."""

    TRUE = "true"
    FALSE = "false"
    FAILS = "fails"


@dataclass(frozen=True, slots=True)
class NotChecked:
    """The second engine has given no answer that may be compared.

    Attributes:
        why: a text that completes "not checked: ...".
    """

    why: str


Opinion: TypeAlias = Answer | NotChecked


class SecondEngine(Protocol):
    """Another engine for CEL.

    Attributes:
        name: how messages call the engine.
    """

    name: str

    def judge(self, selector: str, device: Device) -> Opinion:
        """Return the engine's answer. It comes within a bound of work, whatever the selector is."""
        ...


@dataclass(frozen=True, slots=True)
class SecondLook:
    """The result of the second look at one allocated device.

    Attributes:
        device: of a claim.
        findings: the selectors about which the engines disagree.
        not_checked: why a selector was not compared; empty if all were.
    """

    device: DeviceId
    findings: tuple[Finding, ...] = ()
    not_checked: str = ""

    @property
    def result(self) -> str:
        """``disagree``, ``not_checked`` or ``agree``: the first that holds."""
        if self.findings:
            return "disagree"
        return "not_checked" if self.not_checked else "agree"


class SecondOpinion:
    """Compares the answers of two engines.

    Args:
        selectors: our engine.
        engine: the second engine.
        expired: whether the time of an evaluation by our engine is up.
    """

    def __init__(self, selectors: Selectors, engine: SecondEngine, expired: Expired = never) -> None:
        self._selectors = selectors
        self._engine = engine
        self._expired = expired

    def looks(
        self, claim: Claim, classes: Mapping[str, DeviceClass], published: Callable[[DeviceId], Device | None]
    ) -> Iterator[SecondLook]:
        """A second look at each device that a claim has.

        Devices that are not published any more, and those of requests without a selector, are left out: there is
        nothing to check.

        Args:
            claim: with an allocation; without one, there are no devices.
            classes: the device classes of the cluster, by name.
            published: returns the device of an id, as it is published now.
        """
        requests = {request.label(each): each for request in claim.spec.requests for each in request.alternatives}
        for result in claim.allocation.results if claim.allocation else ():
            request, device = requests.get(result.request), published(result.device)
            if request is None or device is None:
                continue
            device_class = classes.get(request.device_class)
            texts = (*(device_class.selectors if device_class else ()), *request.selectors)
            if texts:
                yield self._look_at_device(str(claim), result.request, texts, device)

    def _look_at_device(self, claim: str, request: str, selectors: Sequence[str], device: Device) -> SecondLook:
        findings, not_checked = [], ""
        for selector in selectors:
            ours, theirs = self.opinions(selector, device)
            if isinstance(theirs, NotChecked):
                not_checked = not_checked or theirs.why
            elif ours is not theirs:
                said = f"{ours.value} by our engine, {theirs.value} by {self._engine.name}"
                message = f"request {request}: {selector[:_LONGEST_SELECTOR]!r}: {said}"
                findings.append(Finding(Rule.SECOND_OPINION, (claim,), device.id, message))
        return SecondLook(device.id, tuple(findings), not_checked)

    def opinions(self, selector: str, device: Device) -> tuple[Answer, Opinion]:
        """The answer of our engine, and the answer of the second engine."""
        try:
            ours = Answer.TRUE if self._selectors.matches(selector, device, self._expired) else Answer.FALSE
            cost = self._selectors.cost(selector, device, self._expired)
        except CompileError:
            return Answer.FAILS, NotChecked("the selector does not compile")
        except OutOfTimeError:
            return Answer.FAILS, NotChecked("our engine needs too long")
        except CelError:
            ours, cost = Answer.FAILS, 0
        if cost > MOST_COST:
            return ours, NotChecked(f"the selector costs more than {MOST_COST:,}")
        return ours, self._engine.judge(selector, device)
