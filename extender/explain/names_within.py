"""An explanation for a reader who may read one namespace: names of other namespaces' objects are left out.

Who may read all namespaces, and everybody on loopback, gets the explanation as it is.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Final, cast

from allocator import DeviceId
from extender.cluster.snapshot import Snapshot
from extender.explain.explanation import Explanation, Proposal, Spared
from extender.explain.holders import Holder

ELSEWHERE: Final = "an object of another namespace"
"""Stands for the name of an object that the reader may not read."""

_ELSEWHERE: Final = "of another namespace"
"""Stands for the name after a noun."""

LEFT_OUT: Final = "names of objects of other namespaces are left out, and so are proposals to change such objects"

_NAMED: Final = re.compile(r"(?<![\w./-])([a-z0-9-]{1,63})/[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?(?![\w/-])")
"""Namespace and name, with a slash. The id of a device has two slashes, and begins with the name of a driver."""

_OPTION: Final = re.compile(r"(?<!\S)(?:-n|--namespace|namespace)[ =]([a-z0-9-]{1,63})(?![\w.-])")
"""The namespace of a command, or one that a sentence names."""


def namespaces_of(snapshot: Snapshot) -> frozenset[str]:
    """The namespaces of everything that an explanation may name."""
    return frozenset(key.namespace for keys in (snapshot.claims, snapshot.pods) for key in keys) | frozenset(
        snapshot.quotas_in
    )


def names_within(explanation: Explanation, own: str, namespaces: Collection[str]) -> Explanation:
    """The explanation with names of objects of one namespace alone.

    Args:
        explanation: of an object of that namespace.
        own: the namespace.
        namespaces: all namespaces whose objects it may name.
    """
    reader = _Reader(frozenset(namespaces) - {own})
    proposals = tuple(each for each in explanation.proposals if not reader.is_foreign(each))
    found = cast("Explanation", reader.redacted(replace(explanation, proposals=proposals)))
    if found == explanation:
        return explanation
    return replace(found, notes=(*found.notes, LEFT_OUT))


class _Reader:
    """What one reader may read.

    Args:
        foreign: the namespaces that it may not read.
    """

    def __init__(self, foreign: frozenset[str]) -> None:
        self._foreign = foreign

    def text(self, text: str) -> str:
        named = _NAMED.sub(lambda found: ELSEWHERE if found[1] in self._foreign else found[0], text)
        return _OPTION.sub(lambda found: _ELSEWHERE if found[1] in self._foreign else found[0], named)

    def is_foreign(self, proposal: Proposal) -> bool:
        """Whether a proposal changes an object that the reader may not read."""
        texts = (text for change in proposal.changes for text in (change.what, change.text, change.how))
        return any(self.text(text) != text for text in texts)

    def holder(self, holder: Holder) -> Holder:
        """Who has a device. A note of a claim may name a consumer without its namespace."""
        if not holder.claim:
            return replace(holder, pods=tuple(map(self.text, holder.pods)))
        return Holder("", (_ELSEWHERE,), share=holder.share) if self.text(holder.claim) != holder.claim else holder

    def spared(self, spared: Spared) -> Spared:
        """Pods and claims that are not evicted, and why."""
        own = tuple(name for name in spared.names if self.text(name) == name)
        others = len(spared.names) - len(own)
        if not others:
            return Spared(self.text(spared.reason), own)
        counted = f"{others} of other namespaces"
        return Spared(self.text(spared.reason) if own else "not evicted", (*own, counted))

    def redacted(self, value: object) -> object:
        """A value in which all texts are redacted. Ids of devices are no names of objects of a namespace."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, DeviceId):
            return value
        if isinstance(value, Holder | Spared):
            return self.holder(value) if isinstance(value, Holder) else self.spared(value)
        if isinstance(value, Mapping):
            return {self.redacted(key): self.redacted(each) for key, each in value.items()}
        if isinstance(value, tuple):
            parts = [self.redacted(each) for each in value]
            return getattr(value, "_make", tuple)(parts)
        if is_dataclass(value) and not isinstance(value, type):
            changed = {
                each.name: new
                for each in fields(value)
                if each.init and (new := self.redacted(old := getattr(value, each.name))) is not old
            }
            return replace(value, **changed) if changed else value
        return value
