"""The Markdown pages of the tree, and what stands in them: headings, links, and blocks of code."""

import pathlib
import re
import subprocess
import unicodedata
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]


def pages():
    """Every Markdown file of the tree that is not ignored."""
    names = subprocess.run(["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
                           capture_output=True, text=True)
    if names.returncode == 0:
        found = [ROOT / name for name in names.stdout.splitlines()]
    else:  # an archive without a repository
        skipped = {"build", "node_modules", "runs", "install"}
        found = [path for path in ROOT.rglob("*.md") if not skipped & set(path.relative_to(ROOT).parts)]
    return sorted(path for path in found if path.is_file())


def without_blocks(text):
    """The page with blocks of code and comments blanked out, lines kept."""
    blank = lambda match: "\n" * match.group(0).count("\n")
    text = re.sub(r"^( *)(```+|~~~+).*?^\1\2`*[ \t]*$", blank, text, flags=re.S | re.M)
    return re.sub(r"<!--.*?-->", blank, text, flags=re.S)


def without_code(text):
    """The page with all code blanked out, lines kept."""
    blank = lambda match: "\n" * match.group(0).count("\n")
    text = without_blocks(text)
    return re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", blank, text, flags=re.S)


def plain(heading):
    """A heading's words, without the marks of links, code and emphasis."""
    heading = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[`*]", "", heading).strip()


def anchor(heading):
    """As GitHub makes it: lower case, no punctuation, hyphens for spaces."""
    kept = [c for c in plain(heading).lower()
            if c in " -_" or unicodedata.category(c)[0] in "LM" or unicodedata.category(c) in ("Nd", "Nl")]
    return "".join(kept).replace(" ", "-")


def anchors(text):
    """Every #anchor of a page."""
    seen, all_of_them = {}, set()
    for heading in re.findall(r"^#{1,6}[ \t]+(.+?)[ \t]*#*$", without_blocks(text), flags=re.M):
        name = anchor(heading)
        count = seen.get(name, 0)
        seen[name] = count + 1
        all_of_them.add(f"{name}-{count}" if count else name)
    return all_of_them | set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))


def links(text):
    """(line, target) of every link and picture of a page."""
    shown = without_code(text)
    patterns = [r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)",  # [words](target "title")
                r"^\[[^\]]+\]:\s*(\S+)",  # [words]: target
                r"(?:href|src)=\"([^\"]+)\""]
    for pattern in patterns:
        for match in re.finditer(pattern, shown, flags=re.M):
            yield shown.count("\n", 0, match.start()) + 1, urllib.parse.unquote(match.group(1))


class Block:
    """A block of code that the page marks to be run: `<!-- run NAME -->` on the line before its fence, or
    `<!-- run NAME after OTHER -->` if it goes on where another one ended."""

    def __init__(self, page, name, after, language, text):
        self.page, self.name, self.after, self.language, self.text = page, name, after, language, text


def blocks_to_run(page):
    """The marked blocks of a page, in order."""
    pattern = r"^( *)<!-- run ([a-z0-9_]+)(?: after ([a-z0-9_]+))? -->\n+\1```(\w+)\n(.*?)^\1```[ \t]*$"
    text = page.read_text(encoding="utf-8")
    found = [Block(page, name, after, language, re.sub(rf"^{indent}", "", code, flags=re.M))
             for indent, name, after, language, code in re.findall(pattern, text, flags=re.S | re.M)]
    marks = len(re.findall(r"^ *<!-- run ", text, flags=re.M))
    if marks != len(found):
        raise ValueError(f"{page}: {marks} marks <!-- run NAME -->, but {len(found)} blocks of code behind them")
    return found
