"""Bodies in YAML, as people write Pods, to the JSON that the same readers and limits take."""

from typing import Final

from allocator.tools import shown
from extender.faces.http.limits.bodies import FREE_BYTES, TooLargeError
from extender.framework.wire import WireError
from extender.kube.encoding import dumps
from extender.tools.yamltext import SyntaxProblem, documents

MOST_BYTES: Final = FREE_BYTES
"""The longest body in YAML: a Pod with its managed fields is far shorter. The parser is in C and keeps other threads
waiting, for 65 ms in the worst text of this length that was tried."""

YAML_TYPES: Final = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})
"""Media types (RFC 9512, with its older aliases)."""

_SNIFFED: Final = 1024
_JSON_TYPE: Final = "application/json"
_FORM_TYPE: Final = "application/x-www-form-urlencoded"


def is_yaml(body: bytes, content_type: str) -> bool:
    """Whether a body is YAML: by its content type if that says so, else by its first character.

    curl sends the type of a form, or none, whatever the file is. JSON objects and lists begin with a bracket.
    """
    media_type = _media_type(content_type)
    if media_type in YAML_TYPES:
        return True
    return media_type != _JSON_TYPE and body[:_SNIFFED].lstrip()[:1] not in (b"", b"{", b"[")


def from_yaml(body: bytes, content_type: str) -> bytes:
    """The JSON of a body in YAML with one document.

    Raises:
        TooLargeError: the body is longer than `MOST_BYTES`.
        WireError: the body is not YAML, or has more than one document.
    """
    if len(body) > MOST_BYTES:
        raise TooLargeError(f"the body is YAML, and longer than the limit of {MOST_BYTES} bytes for YAML; send JSON")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise WireError("", "the body is neither JSON nor YAML: it is not text in UTF-8") from error
    found = [each for each in documents(text) if each is not None]
    problem = next((each for each in found if isinstance(each, SyntaxProblem)), None)
    if problem is not None or (found and not isinstance(found[0], dict)):
        why = problem or f"expected keys and values at the top, not {shown(found[0])}"
        raise WireError("", f"the body is neither JSON nor YAML: {why}{_hint(body, content_type)}")
    if len(found) != 1:
        hint = "" if found else _hint(body, content_type)
        raise WireError("", f"the body has {len(found) or 'no'} YAML documents: expected one, with a Pod{hint}")
    return dumps(found[0])


def _hint(body: bytes, content_type: str) -> str:
    """``curl --data @FILE`` joins the lines of a file, which is a usual mistake with YAML."""
    is_joined = _media_type(content_type) == _FORM_TYPE and b"\n" not in body
    return "; curl --data removes line breaks: use --data-binary" if is_joined else ""


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()
