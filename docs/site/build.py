"""Builds the pages as a site that works from a folder, without a server or a network.

usage: build.py FOLDER     (the site is FOLDER/site; open FOLDER/site/index.html)

The pages are written for the tree: they link to each other, to sources and to folders. MkDocs wants all pages in
one folder, so they are copied there first. A source that a page links to becomes a page of its own, a folder a list of
its files. Debian: apt-get install mkdocs mkdocs-material python3-pymdownx libjs-katex; PyPI: the packages mkdocs and
mkdocs-material, with KaTeX from Debian.
"""

import os
import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
KATEX = pathlib.Path("/usr/share/javascript/katex")
sys.path.insert(0, str(ROOT / "tests" / "docs"))
import pages  # noqa: E402  what a link and an anchor are, as the tests have it

LANGUAGES = {".cpp": "cpp", ".h": "cpp", ".cu": "cpp", ".cuh": "cpp", ".py": "python", ".toml": "toml", ".json": "json",
             ".cff": "yaml", ".bash": "bash"}
PICTURES = {".png", ".svg", ".jpg"}


def site_pages():
    """The pages of the site. Those beside tests explain the tests, python/README.md is the package's; they stay in
    the tree."""
    return [page for page in pages.pages() if page.relative_to(ROOT).parts[0] not in ("tests", "python")]


def place_of(file):
    """Where a file of the tree stands in the site's folder of pages."""
    path = file.relative_to(ROOT)
    if path == pathlib.Path("README.md"):
        return pathlib.Path("index.md")
    if file.is_dir():
        return path / ("README.md" if (file / "README.md").is_file() else "folder.md")
    if path.suffix == ".md" or path.suffix in PICTURES:
        return path
    return path.with_name(path.name + ".md")


class Stage:
    """The folder that MkDocs reads."""

    def __init__(self, folder):
        self.folder, self.done = folder, set()

    def write(self, place, text):
        file = self.folder / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def add_page(self, page):
        """A page, its links turned to where things stand in the site."""
        text = page.read_text(encoding="utf-8")
        place = place_of(page)
        for target in {target for _, target in pages.links(text)}:
            if re.match(r"[a-z]+:|#", target):
                continue
            name, mark, fragment = target.partition("#")
            file = (page.parent / name).resolve()
            if not file.exists():
                sys.exit(f"build.py: {page.relative_to(ROOT)} links to {target}, which does not exist")
            self.add(file)
            new = os.path.relpath(place_of(file), place.parent)
            text = text.replace(f"]({target})", f"]({new}{mark}{fragment})")
        # What GitHub understands by itself: its fence for formulas, Markdown inside <details>.
        text = re.sub(r"^```math\n(.*?)^```$", r"$$\n\1$$", text, flags=re.S | re.M)
        text = text.replace("<details>", "<details markdown>")
        self.write(place, text)

    def add(self, file):
        """Whatever a page links to."""
        if file in self.done:
            return
        self.done.add(file)
        if file.suffix == ".md" and file in site_pages():
            return  # is added by itself
        if file.suffix in PICTURES:
            target = self.folder / place_of(file)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
        elif file.is_dir():
            if not (file / "README.md").is_file():
                names = sorted(path.name + "/" * path.is_dir() for path in file.iterdir() if not path.name.startswith("."))
                self.write(place_of(file), f"# {file.relative_to(ROOT)}/\n\n" + "".join(f"- `{name}`\n" for name in names))
        else:
            try:
                code = file.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                code = "A binary file.\n"
            fence = "`" * 4
            self.write(place_of(file), f"# {file.relative_to(ROOT)}\n\n{fence}{LANGUAGES.get(file.suffix, 'text')}\n{code}{fence}\n")


def add_assets(folder):
    assets = folder / "assets"
    assets.mkdir(parents=True)
    for name in ("site.css", "site.js"):
        shutil.copy(HERE / name, assets)
    (assets / "katex" / "contrib").mkdir(parents=True)
    for name in ("katex.min.css", "katex.min.js", "contrib/auto-render.js"):
        shutil.copy(KATEX / name, assets / "katex" / name)
    fonts = (KATEX / "fonts").resolve()
    shutil.copytree(fonts, assets / "katex" / "fonts", ignore=shutil.ignore_patterns("*.ttf", "*.woff"))


def rest_of_menu(menu):
    """Pages that the menu of mkdocs.yml does not name, so that a new page is never out of reach."""
    named = re.findall(r"'([^']+\.md)'", str(menu))
    places = [str(place_of(page)) for page in site_pages()]
    rest = [place for place in places if place not in named]
    return [{"More": rest}] if rest else []


def build(folder):
    try:
        import mkdocs.commands.build
        import mkdocs.config
        import pymdownx  # noqa: F401
    except ImportError as error:
        sys.exit(f"build.py: there is no Python package {error.name}; "
                 "apt-get install mkdocs mkdocs-material python3-pymdownx libjs-katex")
    if not KATEX.is_dir():
        sys.exit(f"build.py: there is no KaTeX in {KATEX}; apt-get install libjs-katex")
    staged = folder / "pages"
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    add_assets(staged)
    stage = Stage(staged)
    for page in site_pages():
        stage.add_page(page)
    config = mkdocs.config.load_config(str(HERE / "mkdocs.yml"), docs_dir=str(staged), site_dir=str(folder / "site"))
    config["nav"] += rest_of_menu(config["nav"])
    config["mdx_configs"]["toc"]["slugify"] = lambda heading, separator: pages.anchor(heading)
    mkdocs.commands.build.build(config)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: build.py FOLDER")
    build(pathlib.Path(sys.argv[1]).resolve())
