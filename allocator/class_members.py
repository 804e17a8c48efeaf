"""The devices of a device class: those that all its selectors match."""

from typing import Protocol

from allocator.cel import CelError
from allocator.model.device_classes import DeviceClass
from allocator.model.slices.device import Device
from allocator.pools import unsupported


class DeviceSelectors(Protocol):
    """Selectors that devices may satisfy, as `TimedSelectors`."""

    def matches(self, expression: str, device: Device) -> bool:
        """Like `TimedSelectors.matches`."""
        ...


class ClassMembers:
    """Tells which devices belong to a class, and notes the devices on which its selectors fail.

    Args:
        selectors: with the time that all questions together may take.
    """

    def __init__(self, device_class: DeviceClass, selectors: DeviceSelectors) -> None:
        self._class = device_class
        self._selectors = selectors
        self._failed = 0
        self._first = ""

    @property
    def failures(self) -> str:
        """The number of devices on which a selector failed, with the first error; empty if there are none."""
        if not self._failed:
            return ""
        left_out = "1 device is" if self._failed == 1 else f"{self._failed} devices are"
        return f"{left_out} left out, because a selector of class {self._class.name} fails: {self._first}"

    def has(self, device: Device) -> bool:
        """Whether a device belongs to the class. A device on which a selector fails does not.

        Raises:
            SearchLimitError: time is up.
        """
        for number, text in enumerate(self._class.selectors):
            attribute = unsupported(device)
            try:
                if not attribute and not self._selectors.matches(text, device):
                    return False
                failure = f"attribute {attribute}: unsupported value" if attribute else ""
            except CelError as error:
                failure = str(error).partition("\n")[0]
            if failure:
                self._failed += 1
                self._first = self._first or f"selector {number} on {device.id}: {failure}"
                return False
        return True
