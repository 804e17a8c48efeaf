"""CEL expressions over devices in objects of the API: whether an API server takes them."""

from typing import Final

from allocator import CompileError, Environment, compile_expression

_DEVICE_EXPRESSIONS: Final = Environment()


def check_expression(expression: str) -> str | None:
    """What is wrong with a CEL expression over devices, by an API server's rules; None if nothing."""
    try:
        compile_expression(expression, _DEVICE_EXPRESSIONS)
    except CompileError as error:
        return f"{error.line}:{error.column}: {error.message}"
    except Exception as error:  # noqa: BLE001  # it is one object's, which is told with where it stands
        return f"internal error: {type(error).__name__}: {error}"
    return None
