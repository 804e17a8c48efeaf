"""Why a write has not happened."""

from allocator.tools import printable


class WriteRefusedError(Exception):
    """A write that has not happened, and why, as printable text."""

    def __init__(self, text: str) -> None:
        super().__init__(printable(text))


class OverQuotaError(WriteRefusedError):
    """The API server does not create a claim: a ResourceQuota has too little left."""
