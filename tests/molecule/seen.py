"""What is to be seen in a picture."""

import re
import xml.etree.ElementTree as ElementTree

from nicegnn.molecule.drawing import Picture

NS = "{http://www.w3.org/2000/svg}"


def root_of(picture: Picture) -> ElementTree.Element:
    return ElementTree.fromstring(picture.svg)


def texts(picture: Picture) -> list[str]:
    return [text.text for text in root_of(picture).iter(f"{NS}text")]


def fills(picture: Picture) -> dict[str, str]:
    """The colour behind each bond or atom, by its note."""
    found = {}
    for shape in root_of(picture).iter():
        colour = re.search(r"fill:(#\w{6})", shape.get("style", ""))
        if shape.find(f"{NS}title") is not None and colour and colour[1] != "#111111":
            found[shape.findtext(f"{NS}title")] = colour[1].lower()
    return found
