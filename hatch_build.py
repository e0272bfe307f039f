"""What hatchling asks for while it builds: the description of the package, made of README.md.

Where a package is published nothing of this folder stands beside its description: pictures are left
out with their captions, and of links into the folder their words stay.
"""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"^!\[[^\]]*\]\([^)]*\)\n+(\*[^*].*?\*\n+(?=\n|#))?", re.M | re.S)
ASIDE = re.compile(r" \(\[\w+\]\((?!\w+:|#)[^)\s]+\)\)")  # as in: ([more](page.md))
LINK = re.compile(r"\[([^\]]+)\]\((?!\w+:|#)[^)\s]+\)")


def description(text: str) -> str:
    """A page in Markdown without pictures and without links to files beside it."""
    return LINK.sub(r"\1", ASIDE.sub("", PICTURE.sub("", text)))


class Description(MetadataHookInterface):
    """Makes the metadata `readme`."""

    def update(self, metadata: dict) -> None:
        """Add it."""
        text = Path(self.root, "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": description(text)}
