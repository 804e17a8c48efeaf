"""CEL, the language of device selectors: parsing, checking, evaluation, cost.

Semantics are those of cel-go as Kubernetes 1.37 configures it for devices. Expressions compile to closures; no ``eval``
is used, and evaluations share no state.
"""

from allocator.cel.compile.frame import Expired, never
from allocator.cel.environment import Environment, Kind
from allocator.cel.errors import (
    CelError,
    CompileError,
    CostLimitError,
    EvaluationError,
    InternalError,
    OutOfTimeError,
    as_evaluation_error,
)
from allocator.cel.program import Measured, Program, Reads, compile_expression

__all__ = [
    "CelError",
    "CompileError",
    "CostLimitError",
    "Environment",
    "EvaluationError",
    "Expired",
    "InternalError",
    "Kind",
    "Measured",
    "OutOfTimeError",
    "Program",
    "Reads",
    "as_evaluation_error",
    "compile_expression",
    "never",
]
