"""The documents say what the code says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from torchvet.docgen import documents as docs
from torchvet.docgen import rule_pages
from torchvet.rules import all_rules

ROOT = Path(__file__).parent.parent
PAGES = sorted(p for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of the documents alone, as the working directory."""
    for name in ("README.md", "pyproject.toml", docs.EXAMPLE):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(docs.main, arguments)
    return result.exit_code, result.output


def with_demo(root: Path, block: str) -> None:
    before, _, after = docs.split_demo((root / "README.md").read_text("utf-8"))
    (root / "README.md").write_text(f"{before}{docs.DEMO[0]}{block}{docs.DEMO[1]}{after}", "utf-8")


def quoted(number: int) -> str:
    line = (ROOT / docs.EXAMPLE).read_text("utf-8").splitlines()[number - 1]
    return f"\n    {number} | {line.strip()}\n"


def test_the_generated_documents_are_fresh() -> None:
    assert docs.stale(ROOT) == []


def test_what_is_written_is_fresh_and_what_is_changed_is_stale(copy: Path) -> None:
    with_demo(copy, quoted(42))
    assert run("--check")[0] == 1
    number = len(all_rules()) + 1
    assert run() == (0, f"wrote {docs.MANIFEST}, docs/report.schema.json and {number} pages below docs/rules\n")
    assert run("--check") == (0, "")
    with (copy / "docs/rules/MEM101.md").open("a") as page:
        page.write("by hand\n")
    (copy / "docs/rules/MEM999.md").write_text("of old\n")
    said = run("--check")
    assert said[0] == 1 and [line.partition(":")[0] for line in said[1].splitlines()] == [
        "docs/rules/MEM101.md", "docs/rules/MEM999.md",
    ]  # fmt: skip
    run()
    assert run("--check") == (0, "")


def test_a_rule_missing_in_the_manifest_is_reported_with_the_command_that_adds_it(copy: Path) -> None:
    with_demo(copy, quoted(42))
    run()
    rows = (copy / docs.MANIFEST).read_text("utf-8").splitlines(keepends=True)
    (copy / docs.MANIFEST).write_text("".join(rows[:1] + rows[2:]), "utf-8")
    assert run("--check") == (1, f"{docs.MANIFEST}: is stale; run `make docs`\n")


def test_every_rule_has_a_symptom() -> None:
    listed = tuple(prefix for prefixes in rule_pages.SYMPTOMS.values() for prefix in prefixes)
    assert [r.code for r in all_rules() if not r.code.startswith(listed)] == []
    assert [r.code for r in all_rules() if not r.code.startswith(tuple(rule_pages.FAMILIES))] == []


@pytest.mark.parametrize(
    ("block", "fault"),
    [
        (quoted(42), None),
        ("\n", "quotes no line"),
        ("\n    42 | loss.backward()\n", "line 42 of examples/leaky.py is not 'loss.backward()'"),
        ("\n    9999 | x\n", "line 9999"),
        (quoted(42) + "error MEM101 graph-retained (observed)\n", None),
        (quoted(42) + "error MEM101 other-name (observed)\n", "names MEM101 other-name"),
    ],
)
def test_the_demonstration_must_fit_the_example(copy: Path, block: str, fault: str | None) -> None:
    with_demo(copy, block)
    faults = list(docs.demo_faults(copy))
    assert len(faults) == (fault is not None)
    assert fault is None or fault in faults[0]


def test_a_readme_without_a_demonstration_is_stale(copy: Path) -> None:
    (copy / "README.md").write_text("# torchvet\n")
    assert list(docs.demo_faults(copy)) == ["has no demonstration between its marks"]


def test_it_wants_the_repositorys_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    status, output = run()
    assert status == 1 and "not the root" in output
    assert list(tmp_path.iterdir()) == []


def test_the_schema_is_one() -> None:
    schema = json.loads(docs.schema())
    jsonschema.Draft202012Validator.check_schema(schema)
    assert "torchvet.report/1" in schema["title"]
    # Before 0.23, msgspec left the indentation of docstrings in descriptions.
    assert "\n   " not in schema["$defs"]["Finding"]["description"]


def test_every_rule_has_a_page_that_the_index_links_to() -> None:
    pages = rule_pages.pages(all_rules())
    for rule in all_rules():
        assert f"# {rule.code} {rule.name}\n" in pages[f"docs/rules/{rule.code}.md"]
        assert f"| [{rule.code}]({rule.code}.md) | {rule.name} | {rule.severity} |" in pages["docs/rules/README.md"]


def test_the_demonstration_is_the_verdict_and_the_first_finding() -> None:
    finding = ["error MEM101 graph-retained (observed)", "  a grows", ""]
    after = ["warning MEM104 other (observed)", "  b", "", "What was seen"]
    lines = ["epoch 1", "epoch 2", "2 faults: a", "", *finding]
    assert docs.abridge("\n".join(lines + after)).splitlines() == ["...", *lines[1:-1], "", "..."]
    assert docs.abridge("\n".join([*lines, "What was seen"])).splitlines() == ["...", *lines[1:-1], "", "..."]
    assert docs.abridge("epoch 1\n1 leak\n") == "epoch 1\n1 leak"
