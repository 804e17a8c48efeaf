"""JSON of questions, answers and stores, for controllers: values of Python, of any depth.

A number that Python cannot hold is a `Verbatim`: ``str`` gives its text.
"""

from typing import Any

from allocator.tools import jsontext
from extender.kube import encoding


def loads(text: bytes) -> Any:  # noqa: ANN401 - JSON has any type
    """The value of a JSON text. Raises ValueError: the text is not JSON."""
    return jsontext.plain(text.decode(errors="replace"))


def dumps(value: object) -> bytes:
    """The JSON text of a value, without line breaks. Raises TypeError: the value has something that JSON has not."""
    # A text that others have written may have line breaks between its values. Within strings, they are escaped.
    return encoding.dumps(value).replace(b"\r", b" ").replace(b"\n", b" ")
