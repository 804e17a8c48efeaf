"""What device controllers are given."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ParametersRef:
    """An object with parameters for a controller (KEP-3063, ``parametersRef``).

    Attributes:
        namespace: only in a class; a claim names objects of its own namespace.
    """

    api_group: str
    kind: str
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        kind = f"{self.kind}.{self.api_group}" if self.api_group else self.kind
        return f"{kind} {self.namespace}/{self.name}" if self.namespace else f"{kind} {self.name}"
