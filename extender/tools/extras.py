"""How people install an extra: the one place for these words. No package is published, so it is done in a clone."""


def installing(extra: str) -> str:
    """What to do for an extra, as the middle of a sentence."""
    return f"run pip install '.[{extra}]' in a clone of dra-extender"
