"""Configuration that goes with devices: of classes, of claims, and of allocations. Only drivers read it."""

from dataclasses import dataclass
from typing import Final

FROM_CLASS: Final = "FromClass"
FROM_CLAIM: Final = "FromClaim"
"""The sources of the configuration that goes with an allocation."""


@dataclass(frozen=True, slots=True)
class OpaqueConfig:
    """Configuration that only the driver reads; ``parameters`` is JSON text.

    An empty ``driver`` stands for an unknown kind of configuration.
    """

    driver: str
    parameters: str


@dataclass(frozen=True, slots=True)
class ClaimConfig:
    """Configuration in a claim for ``requests`` (empty: all)."""

    opaque: OpaqueConfig
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AllocatedConfig:
    """Configuration that goes with an allocation; ``source`` is `FROM_CLASS` or `FROM_CLAIM`."""

    source: str
    opaque: OpaqueConfig
    requests: tuple[str, ...] = ()
