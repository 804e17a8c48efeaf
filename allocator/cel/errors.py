"""Errors of expressions: one does not compile, or it fails on a device."""

from typing import Self

from allocator.tools.printable import printable


class CelError(Exception):
    """Base of all errors of this package."""


class CompileError(CelError):
    """An expression that does not parse or does not type-check.

    Attributes:
        expression: the whole text.
        position: the index of the fault in the text.
        line, column: the same position, both from 1.
        message: the fault, perhaps with a suggestion.
    """

    def __init__(self, expression: str, position: int, message: str) -> None:
        before = expression[:position]
        self.expression = expression
        self.position = position
        self.message = printable(message)
        self.line = before.count("\n") + 1
        self.column = position - (before.rfind("\n") + 1) + 1
        super().__init__(f"{self.line}:{self.column}: {self.message}\n{self._pointer()}")

    def _pointer(self) -> str:
        """The line with a caret below the fault; of a long line, only the part near the fault."""
        line = self.expression.split("\n")[self.line - 1].replace("\t", " ").replace("\r", " ")
        start = max(0, self.column - 61)
        shown = line[start : start + 120]
        return f" | {printable(shown)}\n | {'.' * len(printable(line[start : self.column - 1]))}^"


class EvaluationError(CelError):
    """An expression that fails on this input: a missing key, a division by zero, no such overload."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)

    def as_value(self) -> Self:
        """The error as a value of the expression: it knows neither the frames that raised it nor another error.

        A frame knows its callers, and they know what the expression was evaluated for.
        """
        self.__context__ = self.__cause__ = None
        return self.with_traceback(None)


class StoppedError(EvaluationError):
    """The whole evaluation was stopped; no operator of the expression can absorb this error."""


class CostLimitError(StoppedError):
    """The evaluation became too expensive."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class GivenUpError(StoppedError):
    """A value reached a place where upstream does not expect it and has an internal error."""

    def __init__(self) -> None:
        super().__init__("internal error: not a value that can be used here")


class OutOfTimeError(StoppedError):
    """The time of the caller is up. This is not a result of the expression and must not be remembered."""

    def __init__(self) -> None:
        super().__init__("operation interrupted")


class InternalError(StoppedError):
    """A fault of this package: an exception that no expression should cause. The text names the expression."""

    def __init__(self, expression: str, error: Exception) -> None:
        shown = printable(expression if len(expression) <= 200 else f"{expression[:200]}...")
        super().__init__(f"internal error in selector evaluation: {type(error).__name__}: {error}; expression: {shown}")


def as_evaluation_error(expression: str, error: Exception) -> EvaluationError:
    """The exception of an evaluation as an error of the expression.

    Raises:
        MemoryError: unchanged; it is not an error of the expression.
    """
    if isinstance(error, MemoryError):
        raise error
    if isinstance(error, RecursionError):
        return EvaluationError("expression nests too deep")
    return error if isinstance(error, EvaluationError) else InternalError(expression, error)


def no_such_overload() -> EvaluationError:
    """The arguments have types that the function or operator does not take."""
    return EvaluationError("no such overload")
