"""The README as package indexes show it, where paths within the repository lead nowhere.

With ``Repository`` among the URLs in pyproject.toml its links become absolute; without, plain
words, and pictures are left out.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# [text](path) and ![text](path), where the path is neither an address nor a place in the page
RELATIVE = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!\w+://|#)(?P<path>[^)\s]+)\)")


def readme_for_index(text: str, repository: str | None) -> str:
    def absolute(link: re.Match[str]) -> str:
        if repository is None:
            return "" if link["picture"] else link["text"]
        kind = "raw" if link["picture"] else "blob"
        address = f"{repository.rstrip('/')}/{kind}/main/{link['path']}"
        return f"{link['picture']}[{link['text']}]({address})"

    return RELATIVE.sub(absolute, text)


class ReadmeHook(MetadataHookInterface):
    """Fills in ``readme``, which pyproject.toml declares as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text("utf-8")
        repository = metadata.get("urls", {}).get("Repository")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": readme_for_index(text, repository),
        }
