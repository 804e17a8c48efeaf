"""One optional field of a device in a ResourceSlice."""

from collections.abc import Callable
from dataclasses import dataclass

from allocator.model.json.interner import Interner
from allocator.tools.fields import Fields


def anything(_: Fields) -> None:
    """The API server validates nothing but the type."""


@dataclass(frozen=True, slots=True)
class DeviceField:
    """How a field is read and validated.

    Attributes:
        name: of the attribute of `Device`. Its default stands for a field that is absent.
        key: of the field in JSON.
        read: the value, from the fields of the device. It is called only if the key is there; the field may be null.
        check: notes what the API server would refuse. It is called as `read` is.
    """

    name: str
    key: str
    read: Callable[[Fields, Interner], object]
    check: Callable[[Fields], None] = anything
