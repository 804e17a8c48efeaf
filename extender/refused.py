"""The error of a call that cannot be decided."""

from typing import ClassVar


class RefusedError(Exception):
    """The call can't be decided; the caller is to try again later.

    Attributes:
        code: by which programs tell the error; empty for those that are for people only.
    """

    code: ClassVar[str] = ""
