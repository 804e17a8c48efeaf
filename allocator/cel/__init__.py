"""CEL, the language of device selectors: parsing, checking, evaluation, cost.

Semantics are cel-go's as Kubernetes 1.37 configures it for devices. The grammar is cel-python's; checking and
evaluation are ours: closures, no ``eval``, no state that evaluations share.
"""

from allocator.cel.compile.frame import Expired, never
from allocator.cel.environment import Environment, Kind, PlainEnvironment
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
    "PlainEnvironment",
    "Program",
    "Reads",
    "as_evaluation_error",
    "compile_expression",
    "never",
]
