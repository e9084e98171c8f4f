"""A picture inside a page: an ``svg`` element without effect on the rest of the page."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from meshproof.plots.drawing import Picture, render

SVG, LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
STYLE = {"stroke-linejoin": "round", "stroke-linecap": "butt"}
"""matplotlib's style sheet: within a page it would apply to every element."""

ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", LINK)


def inline(picture: Picture) -> str:
    """The picture without style sheet and metadata, its ids and the references to them prefixed with its name.

    Raises ``ValueError`` if there is no figure.
    """
    root = ElementTree.fromstring(render(picture, "svg"))  # noqa: S314 - made here
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{SVG}}}style", f"{{{SVG}}}metadata"):
                parent.remove(child)
    for element in root.iter():
        for name, value in element.attrib.items():
            if name == "id":
                element.set(name, f"{picture.name}-{value}")
            elif name == f"{{{LINK}}}href":
                element.set(name, f"#{picture.name}-{value.removeprefix('#')}")
            else:
                element.set(name, re.sub(r"url\(#", f"url(#{picture.name}-", value))
    root.attrib |= STYLE | {"role": "img", "aria-label": picture.question}
    return ElementTree.tostring(root, encoding="unicode")
