"""A page in headless Chromium: run a script in it and take what it returns."""

import html
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs the browser chromium")

# A frame whose writing is not over keeps the page loading, and the browser waiting for it.
RUNNER = """
<script>
(async () => {
  const frame = document.body.appendChild(document.createElement("iframe"));
  frame.hidden = true;
  frame.contentDocument.open();
  const shown = document.body.appendChild(document.createElement("pre"));
  shown.id = "result";
  const work = async () => { SCRIPT };
  shown.textContent = JSON.stringify(await work().catch((error) => `failed: ${error.stack}`));
  frame.contentDocument.close();
})();
</script>
"""


def browse(
    folder: Path,
    text: str,
    script: str,
    size: str = "1400,900",
    hash: str = "",
    options: Sequence[str] = (),
) -> Any:
    """What ``script`` returns (it may await) at the end of the page ``text``, opened as a file."""
    file = folder / "page.html"
    file.write_text(text + RUNNER.replace("SCRIPT", script), "utf-8")
    usual = ("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr")
    command = [str(CHROMIUM), *usual, *options, f"--window-size={size}", "--dump-dom"]
    done = subprocess.run(
        [*command, file.as_uri() + hash], capture_output=True, text=True, timeout=120
    )
    assert "CONSOLE" not in done.stderr, done.stderr
    found = re.search(r'<pre id="result">(.+?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stdout[-2000:]
    return json.loads(html.unescape(found[1]))
