"""Marks on negotiated claims: whether a controller may have allocated something for a claim.

A claim is marked before its controller is asked to allocate, and until the controller has released it. So the mark
outlives a crash. A finalizer keeps a marked claim from being deleted.
"""

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from allocator import Claim
from extender.cluster.objects.claims import DEALLOCATION_REQUESTED, MARK, MARK_FINALIZER
from extender.kube.api import RawObject, timestamp

_RELEASED: Final = "released"
_RELEASING: Final = "releasing"
_FORM: Final = re.compile(r"(\S+) (\d{1,15}) (\S+)")

LAST_ATTEMPT: Final = 10**15 - 1
"""Attempts fit the numbers of JSON in all languages. None comes after this one, which only a changed mark can have."""

_LONGEST: Final = timedelta(minutes=15)
"""An allocation has less time by the settings, and the clocks of replicas differ less."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark.

    Attributes:
        controller: the name of the controller; empty if the annotation cannot be read, or is not ours.
        attempt: counts allocations and releases of the claim. A controller ignores attempts that are overtaken.
        state: until when the allocation may take, as RFC 3339; or ``releasing``, or ``released``.
    """

    controller: str
    attempt: int
    state: str

    @classmethod
    def of(cls, claim: Claim) -> "Mark | None":
        """The mark of a claim; None if the claim was never marked.

        Users may change claims. While the finalizer is there, a mark that is gone or says ``released`` is not ours.
        """
        text, has_finalizer = claim.annotations.get(MARK), MARK_FINALIZER in claim.finalizers
        if text is None and not has_finalizer:
            return None
        match = _FORM.fullmatch(text or "")
        found = cls("", 0, "") if match is None else cls(match[1], int(match[2]), match[3])
        return cls("", 0, "") if has_finalizer and found.is_released else found

    @property
    def is_released(self) -> bool:
        """Whether the controller has nothing allocated for the claim."""
        return self.state == _RELEASED

    @property
    def is_releasing(self) -> bool:
        """Whether the controller is asked to deallocate."""
        return self.state == _RELEASING

    def is_over(self, now: datetime) -> bool:
        """Whether the allocation has had its time. A time that is further ahead than any of ours is not ours."""
        try:
            return not now < datetime.fromisoformat(self.state) <= now + _LONGEST
        except (ValueError, TypeError):
            return True

    def releasing(self) -> "Mark":
        """The mark of the release that overtakes this attempt; the last attempt is released by itself."""
        if self.is_releasing:
            return self
        return Mark(self.controller, min(self.attempt + 1, LAST_ATTEMPT), _RELEASING)

    def released(self) -> "Mark":
        """The mark after the release."""
        return replace(self, state=_RELEASED)

    def __str__(self) -> str:
        return f"{self.controller} {self.attempt} {self.state}"


def is_marked(claim: Claim) -> bool:
    """Whether a controller may have something allocated for a claim."""
    mark = Mark.of(claim)
    return mark is not None and not mark.is_released


def next_mark(claim: Claim, controller: str, until: datetime) -> Mark | None:
    """The mark for the next attempt to allocate; None: there is none after `LAST_ATTEMPT`."""
    last = Mark.of(claim)
    attempt = 1 if last is None else last.attempt + 1
    return Mark(controller, attempt, timestamp(until)) if attempt <= LAST_ATTEMPT else None


def marked(raw: RawObject, mark: Mark) -> RawObject:
    """A claim's JSON with a mark. The finalizer stays until the controller has released the claim."""
    metadata = raw["metadata"]
    finalizers = [each for each in metadata.get("finalizers") or [] if each != MARK_FINALIZER]
    if not mark.is_released:
        finalizers.append(MARK_FINALIZER)
    annotations = {**(metadata.get("annotations") or {}), MARK: str(mark)}
    return {**raw, "metadata": {**metadata, "annotations": annotations, "finalizers": finalizers}}


def asks_to_deallocate(claim: Claim) -> bool:
    """Whether the controller of a claim is to deallocate it."""
    return DEALLOCATION_REQUESTED in claim.annotations


def is_to_deallocate(raw: RawObject) -> RawObject:
    """A claim's JSON that asks its controller to deallocate."""
    metadata = raw["metadata"]
    annotations = {**(metadata.get("annotations") or {}), DEALLOCATION_REQUESTED: "true"}
    return {**raw, "metadata": {**metadata, "annotations": annotations}}
