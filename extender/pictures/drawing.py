"""An SVG: texts and boxes. Text of others stays text: markup and control characters are escaped."""

from typing import Final
from xml.etree.ElementTree import Element, SubElement, tostring

from allocator.tools import printable

_NAMESPACE: Final = "http://www.w3.org/2000/svg"
_LONGEST_TEXT: Final = 1000
"""The most characters of a text; a longer one ends with three dots."""


class Drawing:
    """An SVG in the making. Places and sizes are in pixels; `finish` says how large it is.

    Args:
        title: for screen readers, and for the tab of a browser.
        style: CSS for the classes that are used.
    """

    def __init__(self, title: str, style: str) -> None:
        self._root = Element("svg", {"xmlns": _NAMESPACE, "role": "img"})
        SubElement(self._root, "title").text = _shown(title)
        SubElement(self._root, "style").text = style
        self._definitions = SubElement(self._root, "defs")

    def pattern(self, name: str, size: int, path: str) -> None:
        """A pattern that boxes can be filled with: lines that are repeated.

        Args:
            name: the id.
            size: width and height of one piece.
            path: the lines of one piece, as SVG writes paths.
        """
        place = {"id": name, "width": str(size), "height": str(size), "patternUnits": "userSpaceOnUse"}
        SubElement(SubElement(self._definitions, "pattern", place), "path", {"d": path, "class": name})

    def text(self, x: float, y: float, text: str, name: str = "", *, title: str = "") -> None:
        """A line of text; a title is shown when the pointer rests on it."""
        found = SubElement(self._root, "text", {"x": f"{x:g}", "y": f"{y:g}", **_named(name)})
        found.text = _shown(text)
        if title:
            SubElement(found, "title").text = _shown(title)

    def box(self, x: float, y: float, width: float, height: float, name: str, *, title: str = "") -> None:
        """A box; a title is shown when the pointer rests on it."""
        place = {"x": f"{x:g}", "y": f"{y:g}", "width": f"{width:g}", "height": f"{height:g}"}
        found = SubElement(self._root, "rect", {**place, **_named(name)})
        if title:
            SubElement(found, "title").text = _shown(title)

    def path(self, path: str, name: str) -> None:
        """Lines, as SVG writes paths."""
        SubElement(self._root, "path", {"d": path, **_named(name)})

    def finish(self, width: float, height: float) -> bytes:
        """The SVG in UTF-8; it can be shown in any size."""
        size = {"viewBox": f"0 0 {width:g} {height:g}", "width": f"{width:g}", "height": f"{height:g}"}
        for name, value in size.items():
            self._root.set(name, value)
        return bytes(tostring(self._root, encoding="utf-8", xml_declaration=True))


def _named(name: str) -> dict[str, str]:
    return {"class": name} if name else {}


def _shown(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _LONGEST_TEXT else f"{shown[:_LONGEST_TEXT]}..."
