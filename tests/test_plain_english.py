"""What users and newcomers read is plain English: no private words, no long sentences."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from torchvet.commands import VERBS, cli

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "casebook/README.md")
DOCS = [
    *("check", "decisions", "doctor", "editors", "fix", "fleet", "glossary", "inspect", "integrations", "limits"),
    *("mcp", "mechanisms", "nonfinite", "pytest", "python-api", "run", "simulated-gpu", "skill"),
]
TEXTS = [*PAGES, *(f"docs/{name}.md" for name in DOCS)]
LONGEST = 30
"""Words of a sentence."""
BANNED = re.compile(
    r"\b(mend(s|ed|ing|able)?|lest|be it|told of|by the way|let(s|ting)? go of|"
    r"(leave|leaves|left) (away|out of it)|mishaps?)\b",
    re.IGNORECASE,
)
"""Words that torchvet had for itself: it is *fix*, *report*, *skip*, *fault*."""
SOURCES = sorted(p for p in (ROOT / "src").rglob("*.py") if p.name not in ("bad.py", "good.py", "proof.py"))


def sentences(text: str) -> Iterator[str]:
    """The sentences of Markdown's prose, code spans and links as one word."""
    text = re.sub(r"<!--.*?-->|```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"(?m)^( {4,}|\t).*$", "", text)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*#|]|\d+\.) ?)", text):
        if not block.lstrip().startswith(("#", "|")):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "X", block)).replace("**", "")
            yield from (s for s in re.split(r"(?<=[.!?:;])\s+", " ".join(plain.split())) if s)


def too_long(text: str) -> list[str]:
    return [s for s in sentences(text) if len(re.findall(r"[\w'’-]+", s)) > LONGEST]


@pytest.mark.parametrize("name", TEXTS)
def test_a_page_is_plain(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    assert too_long(text) == []
    assert [m[0] for m in BANNED.finditer(text)] == []


def test_the_readme_fits_on_two_pages() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").split()) < 1200


@pytest.mark.parametrize("verb", VERBS)
def test_a_verbs_help_is_plain(verb: str) -> None:
    text = CliRunner().invoke(cli, [verb, "--help"]).output
    assert "Options:" in text or "Commands:" in text
    assert [m[0] for m in BANNED.finditer(text)] == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT / "src" / "torchvet")))
def test_texts_in_the_source_have_no_private_words(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    # A key of the report is a contract: `facts.fix.mended`.
    assert [m[0] for text in texts if " " in text for m in BANNED.finditer(text)] == []


@pytest.mark.parametrize(
    ("text", "long"),
    [
        (" ".join(["word"] * 31) + ".", 1),
        (" ".join(["word"] * 30) + ". One more.", 0),
        ("- " + " ".join(["word"] * 20) + "\n- " + " ".join(["word"] * 20), 0),
        ("```\n" + " ".join(["word"] * 40) + "\n```", 0),
        ("| " + " ".join(["word"] * 40) + " |", 0),
    ],
)
def test_a_long_sentence_is_seen(text: str, long: int) -> None:
    assert len(too_long(text)) == long


def test_a_private_word_is_seen() -> None:
    assert BANNED.search("It would be mended.") and not BANNED.search("We recommend amending it.")
