"""The site builds, holds every page, and every link in it leads to a file and a place of the site. No network.

usage: site_test.py FOLDER     (scratch)"""

import html.parser
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import unittest
import urllib.parse

import pages

sys.path.insert(0, str(pages.ROOT / "docs" / "site"))
import build  # noqa: E402

FOLDER = pathlib.Path()
# The theme's own page for addresses that do not exist is meant for a server.
LEFT_OUT = {"404.html"}


class Page(html.parser.HTMLParser):
    """The links and the places of an HTML page."""

    def __init__(self, file):
        super().__init__()
        self.links, self.menu, self.places, self.words = [], [], set(), []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and tag != "link" or name == "href" and ("rel", "stylesheet") in attributes:
                self.links.append(value)
                if "md-nav__link" in (dict(attributes).get("class") or ""):
                    self.menu.append(value)
            if name in ("id", "name"):
                self.places.add(value)

    def handle_data(self, data):
        self.words.append(data)


@unittest.skipUnless(importlib.util.find_spec("mkdocs"), "mkdocs is not installed")
class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(FOLDER, ignore_errors=True)
        cls.built = subprocess.run([sys.executable, pages.ROOT / "docs" / "site" / "build.py", FOLDER], capture_output=True,
                                   text=True)
        cls.site = FOLDER / "site"
        cls.pages = {file: Page(file) for file in cls.site.rglob("*.html") if file.name not in LEFT_OUT}

    def test_it_builds_without_a_warning(self):
        self.assertEqual(self.built.returncode, 0, self.built.stderr)
        self.assertNotRegex(self.built.stderr, "WARNING|ERROR")

    def test_every_page_of_the_tree_is_in_the_menu(self):
        start = self.pages[self.site / "index.html"]
        for page in build.site_pages():
            name = build.place_of(page)
            name = name.with_name({"README.md": "index.html"}.get(name.name, name.stem + ".html"))
            with self.subTest(page=str(page.relative_to(pages.ROOT))):
                self.assertIn(str(name), start.menu)

    def test_every_link_leads_somewhere(self):
        faults = []
        for file, page in self.pages.items():
            for link in page.links:
                name, _, place = urllib.parse.unquote(link).partition("#")
                if re.match(r"[a-z]+:", name):
                    continue
                target = (file.parent / name.partition("?")[0]).resolve() if name else file
                where = f"{file.relative_to(self.site)}: {link}"
                if not target.is_file():
                    faults.append(f"{where} does not exist")
                elif place and target in self.pages and place not in self.pages[target].places | {"__top"}:
                    faults.append(f"{where} names no place")
        self.assertEqual(faults, [])
        self.assertGreater(sum(len(page.links) for page in self.pages.values()), 500)

    def test_every_picture_is_the_trees(self):
        pictures = [file for file in self.site.rglob("*") if file.suffix in build.PICTURES and "assets" not in file.parts]
        self.assertGreater(len(pictures), 10)
        for file in pictures:
            with self.subTest(picture=file.name):
                self.assertEqual(file.read_bytes(), (pages.ROOT / file.relative_to(self.site)).read_bytes())

    def test_nothing_is_fetched_from_elsewhere(self):
        fetched = r"<(?:script|img)[^>]*src=\"https?:[^\"]*|<link[^>]*rel=\"stylesheet\"[^>]*href=\"https?:[^\"]*"
        self.assertEqual([found for file in self.pages for found in re.findall(fetched, file.read_text(encoding="utf-8"))], [])

    def test_no_formula_is_left_as_dollars(self):
        left = [f"{file.relative_to(self.site)}: {words}" for file, page in self.pages.items() if file.parent.name == "docs"
                for words in page.words if re.search(r"\$[^$\n]*\\[a-z]+[^$\n]*\$|\$\$", words)]
        self.assertEqual(left, [])


if __name__ == "__main__":
    FOLDER = pathlib.Path(sys.argv.pop()).resolve()
    unittest.main(verbosity=2)
