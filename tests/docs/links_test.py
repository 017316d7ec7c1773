"""Every link of every page leads somewhere: files and folders exist, #anchors are headings. Paths of sources
that a page names in code style exist too. No network."""

import pathlib
import re
import tempfile
import unittest

import pages


def faults(page, root=pages.ROOT):
    """One sentence for each link of a page that leads nowhere."""
    text = page.read_text(encoding="utf-8")
    for line, target in pages.links(text):
        where = f"{page.relative_to(root)}:{line}"
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, fragment = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if name.startswith("/"):
            yield f"{where}: {target} is an absolute path"
        elif not file.exists():
            yield f"{where}: {target} does not exist"
        elif root not in file.parents and file != root:
            yield f"{where}: {target} lies outside of the tree"
        elif fragment and file.suffix == ".md" and fragment not in pages.anchors(file.read_text(encoding="utf-8")):
            yield f"{where}: {target} names no heading"


# Where a page's paths may begin, and what commands make rather than the tree holds.
ROOTS = ["", "src", "src/kernels", "include", "include/sape2"]
MADE = {"runs", "build", "install", "share", "photos"}


def missing_paths(page, root=pages.ROOT):
    """Paths in code style, such as `src/ops/dispatcher/schema.cpp`, that are not in the tree."""
    for path in re.findall(r"`((?:[\w.-]+/)+[\w-]+\.(?:md|py|cpp|h|cu|cuh|toml|json|safetensors))`",
                           pages.without_blocks(page.read_text(encoding="utf-8"))):
        places = [page.parent, *(root / folder for folder in ROOTS)]
        if path.split("/")[0] not in MADE and not any((place / path).exists() for place in places):
            yield f"{page.relative_to(root)}: `{path}` does not exist"


class Links(unittest.TestCase):
    def test_every_link_leads_somewhere(self):
        found = pages.pages()
        self.assertIn(pages.ROOT / "README.md", found)
        self.assertGreater(len(found), 10)
        self.assertEqual([fault for page in found for fault in faults(page)], [])

    def test_every_path_in_code_style_exists(self):
        self.assertEqual([fault for page in pages.pages() for fault in missing_paths(page)], [])

    def test_every_page_of_docs_can_be_reached_from_the_readme(self):
        reached, ahead = set(), [pages.ROOT / "README.md"]
        while ahead:
            page = ahead.pop()
            if page in reached:
                continue
            reached.add(page)
            for _, target in pages.links(page.read_text(encoding="utf-8")):
                file = (page.parent / target.partition("#")[0]).resolve()
                if file.suffix == ".md" and file.is_file():
                    ahead.append(file)
        lonely = [page.name for page in pages.pages() if page.parent == pages.ROOT / "docs" and page not in reached]
        self.assertEqual(lonely, [])

    def test_a_broken_link_is_found(self):
        """The checker itself: each kind of fault, and what is none."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            (root / "other.md").write_text("# A `b`: c, d²\n## Twice\n## Twice\n")
            page = root / "page.md"
            page.write_text("[a](other.md) [b](other.md#a-b-c-d) [c](other.md#twice-1) [d](#here) [e](https://example.org)\n"
                            "# Here\n`[f](code.md)`\n```\n[g](code.md)\n```\n")
            self.assertEqual(list(faults(page, root)), [])
            page.write_text("[a](none.md)\n![b](none.png)\n[c](other.md#none)\n[d](#none)\n[e](../outside.md)\n[f](/etc)\n")
            self.assertEqual([fault.split(":")[1] for fault in faults(page, root)], list("123456"))
            page.write_text("`docs/none.md`, `runs/one/log.json`, `other.md`, `a / b`\n")
            self.assertEqual(len(list(missing_paths(page, root))), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
