"""Text or JSON: what a reader can do with."""


def accepts_json(accept: str) -> bool:
    """Whether an Accept header names JSON, and names text not before it."""
    kinds = [each.partition(";")[0].strip() for each in accept.split(",")]
    named = [kind for kind in kinds if kind in {"application/json", "text/plain"}]
    return named[:1] == ["application/json"]
