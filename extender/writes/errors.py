"""Why a write has not happened."""


class WriteRefusedError(Exception):
    """A write that has not happened, and why."""


class OverQuotaError(WriteRefusedError):
    """The API server does not create a claim: a ResourceQuota has too little left."""
