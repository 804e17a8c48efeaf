"""The model of a device, as its driver publishes it: one rule for the fleet, filters and usage."""

from typing import Final

from allocator import Device

MODEL_ATTRIBUTES: Final = ("model", "productName", "product")
"""The attributes, in the domain of the driver, that may name the model; the first that has a text does."""


def model_attribute(device: Device) -> tuple[str, str] | None:
    """Name and value of the attribute that has the model of a device; None if its driver publishes none."""
    for name in MODEL_ATTRIBUTES:
        value = device.attributes.get(f"{device.id.driver}/{name}")
        if isinstance(value, str) and value:
            return name, value
    return None


def model_of(device: Device) -> str:
    """The model of a device; empty if its driver publishes none."""
    return (model_attribute(device) or ("", ""))[1]
