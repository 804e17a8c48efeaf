"""Maps of maps: from a key to what belongs to it, by uid or name. An empty entry is left out."""

from collections.abc import Hashable
from typing import TypeVar

from immutables import Map

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


def added(index: Map[_Key, Map[str, None]], key: _Key, uid: str) -> Map[_Key, Map[str, None]]:
    """With a uid under a key."""
    return put(index, key, uid, None)


def put(index: Map[_Key, Map[str, _Value]], key: _Key, uid: str, value: _Value) -> Map[_Key, Map[str, _Value]]:
    """With a value under a key, by uid or name."""
    return index.set(key, index.get(key, Map()).set(uid, value))


def removed(index: Map[_Key, Map[str, _Value]], key: _Key, uid: str) -> Map[_Key, Map[str, _Value]]:
    """Without a uid or name under a key."""
    rest = index[key].delete(uid)
    return index.set(key, rest) if rest else index.delete(key)


def with_cpu(requested: Map[str, int] | None, node: str, cpu: int) -> Map[str, int] | None:
    """The CPU by node, with that of a pod added on its node; None: it is not counted."""
    if requested is None or not node or not cpu:
        return requested
    total = requested.get(node, 0) + cpu
    return requested.set(node, total) if total else requested.delete(node)
