"""The documentation builds without a warning, and every link in it leads somewhere."""

import re
import runpy
import subprocess
import sys
import types
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXPLORER = "explorer.html"
FRONT = ("index.md", "performance.md")


class Page(HTMLParser):
    """What a page links to, and the places in it that can be linked to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.links, self.places = path, [], set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.links += [found[name] for name in ("href", "src") if found.get(name)]
        self.places |= {found[name] for name in ("id", "name") if found.get(name)}

    links: list[str | None]
    places: set[str | None]


class Site:
    """A built site, its pages read when they are first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def pages(self) -> dict[Path, Page]:
        return {path: Page(path) for path in sorted(self.folder.rglob("*.html"))}

    def broken(self) -> list[str]:
        """Links to files or places that are not there; addresses on the network are not tried."""
        found = []
        for path, page in self.pages.items():
            for link in page.links:
                parts = urlsplit(link or "")
                if parts.scheme or parts.netloc:
                    continue
                target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
                there = target.is_file()
                if there and parts.fragment and target in self.pages:
                    there = unquote(parts.fragment) in self.pages[target].places
                if not there:
                    found.append(f"{path.relative_to(self.folder)}: {link}")
        return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    pytest.importorskip("sphinx", reason="the documentation is built by Sphinx: extra 'docs'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    command += ["-d", str(folder / "cache"), str(ROOT / "docs"), str(folder / "html")]
    result = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert result.returncode == 0, result.stderr
    return Site((folder / "html").resolve())


def test_every_link_leads_somewhere(site: Site) -> None:
    assert site.broken() == []


def test_every_page_is_in_the_site(site: Site) -> None:
    sources = {p.relative_to(ROOT / "docs").with_suffix(".html") for p in ROOT.glob("docs/**/*.md")}
    assert sources <= {path.relative_to(site.folder) for path in site.pages}


def test_the_reference_has_the_public_names(site: Site) -> None:
    import s4d_torch

    places = {place for page in site.pages.values() for place in page.places}
    last = {str(place).rsplit(".", 1)[-1] for place in places}
    missing = set(s4d_torch.__all__) - last - {"__version__", "METHODS"}
    assert missing == set()


def test_nothing_comes_from_a_network(site: Site) -> None:
    """Formulas, the explorer and all scripts are in the site itself."""
    for path, page in site.pages.items():
        text = path.read_text("utf-8")
        assert not re.search(r'<(script|img|iframe)[^>]* src="(https?:)?//', text), path
        assert not re.search(r'<link[^>]* rel="stylesheet"[^>]* href="(https?:)?//', text), path
        assert "Alias for field number" not in text, path
        assert EXPLORER not in page.links or (path.parent / EXPLORER).is_file()
    assert "<math " in (site.folder / "mathematics.html").read_text("utf-8")
    assert EXPLORER in site.pages[site.folder / "explore.html"].links
    for name in ("words.html", "mnist.html"):
        assert name in site.pages[site.folder / "models.html"].links
        assert (site.folder / name).is_file()


def test_every_command_and_example_has_its_place(site: Site) -> None:
    from s4d_torch.cli import COMMANDS

    commands = site.pages[site.folder / "commands.html"]
    assert {f"s4d-{name}" for name in COMMANDS} <= commands.places
    assert "--checkpoint-minutes" in commands.path.read_text("utf-8")
    gallery = (ROOT / "docs" / "gallery.md").read_text("utf-8")
    assert [p.name for p in ROOT.glob("examples/*.py") if f"examples/{p.name}" not in gallery] == []


def test_parameters_of_layers_are_explained(site: Site) -> None:
    text = (site.folder / "reference" / "nn.html").read_text("utf-8")
    assert text.count("<strong>d_state</strong>") >= 5  # S4D, S4, DSS, SSM, Layer, SequenceModel


def test_numbers_of_the_front_page_are_those_that_were_measured() -> None:
    index, measured = ((ROOT / "docs" / name).read_text("utf-8") for name in FRONT)
    shown = re.findall(r"^- \*\*(.+?)\*\*.*\(`(s4d bench --work \w+)`\)$", index, re.MULTILINE)
    assert len(shown) == 3
    for number, command in shown:
        (row,) = (line for line in measured.splitlines() if line.endswith(f"| `{command}` |"))
        assert number in row


def test_the_readme_of_a_package_index_has_no_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    place = "hatchling.metadata.plugin.interface"  # only builds have it
    for depth in range(1, 5):
        name = ".".join(place.split(".")[:depth])
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setattr(sys.modules[place], "MetadataHookInterface", object, raising=False)
    readme_for_index = runpy.run_path(str(ROOT / "hatch_build.py"))["readme_for_index"]
    text = "![a picture](docs/a.png) [here](docs/b.md#c) [there](https://example.org) [up](#top)"
    assert readme_for_index(text, None) == " here [there](https://example.org) [up](#top)"
    found = readme_for_index(text, "https://example.org/us/it/")
    assert "![a picture](https://example.org/us/it/raw/main/docs/a.png)" in found
    assert "[here](https://example.org/us/it/blob/main/docs/b.md#c)" in found


def test_the_links_of_the_readme_lead_somewhere() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)[^)]*\)", readme) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "b.html").write_text('<p id="here">', "utf-8")
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here"><a href="b.html#gone"><a href="c.html"><img src="no.png">'
        '<a href="#"><a href="https://example.org/x">',
        "utf-8",
    )
    assert Site(tmp_path).broken() == ["a.html: b.html#gone", "a.html: c.html", "a.html: no.png"]
