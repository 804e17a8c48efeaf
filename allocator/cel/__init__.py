"""CEL, the language of device selectors: parsing, checking, evaluation, cost.

Semantics are cel-go's as Kubernetes 1.37 configures it for devices. The grammar is cel-python's; checking and
evaluation are ours: closures, no ``eval``, no state that evaluations share.
"""

from allocator.cel.environment import Environment, Kind, PlainEnvironment
from allocator.cel.errors import CelError, CompileError, CostLimitError, EvaluationError
from allocator.cel.program import Measured, Program, Reads, compile_expression

__all__ = [
    "CelError",
    "CompileError",
    "CostLimitError",
    "Environment",
    "EvaluationError",
    "Kind",
    "Measured",
    "PlainEnvironment",
    "Program",
    "Reads",
    "compile_expression",
]
