"""CEL expressions over devices in objects of the API: whether an API server takes them."""

from typing import Final

from allocator import CompileError, Environment, compile_expression

_DEVICE_EXPRESSIONS: Final = Environment()


def check_expression(expression: str) -> str | None:
    """The error of a CEL expression over devices, by the rules of an API server; None if it has none."""
    try:
        compile_expression(expression, _DEVICE_EXPRESSIONS)
    except CompileError as error:
        return f"{error.line}:{error.column}: {error.message}"
    except Exception as error:  # noqa: BLE001  # the error concerns one object, and is told with its place
        return f"internal error: {type(error).__name__}: {error}"
    return None
