"""Writes what is generated: the rules' manifest, pages and patches, the report's JSON Schema, README's demonstration.

`python -m torchvet.docgen` (`make docs`) writes the manifest, docs/report.schema.json and docs/rules/ below the working
directory, and turns each rule's `good.py` into `good.patch`. `--check` names the stale ones (exit status 1). `--demo`
runs examples/leaky.py and puts its output into README.md.
"""

from __future__ import annotations

import difflib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from torchvet.docgen import rule_pages
from torchvet.finding import SCHEMA, Report
from torchvet.patches import made
from torchvet.rules.core import manifest

DEMO = ("<!-- demo: written by `python -m torchvet.docgen --demo` -->", "<!-- end of demo -->")
EXAMPLE = "examples/leaky.py"
ALIKE = 0.5
"""Share of equal lines from which a patch is easier to read than a second program."""
RULES = "src/torchvet/rules"
MANIFEST = f"{RULES}/{manifest.FILE}"


def schema() -> str:
    """The JSON Schema of a report, made from the types."""
    known = msgspec.json.schema(Report)
    for part in known["$defs"].values():  # msgspec before 0.23 keeps the indentation of docstrings
        if "description" in part:
            part["description"] = inspect.cleandoc(part["description"])
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"torchvet report ({SCHEMA})"}
    return msgspec.json.format(msgspec.json.encode({**head, **known}), indent=2).decode() + "\n"


def documents() -> dict[str, str]:
    """The text of each generated file, by its path below the repository's root."""
    rules = manifest.discovered()
    return {MANIFEST: manifest.text(rules), "docs/report.schema.json": schema(), **rule_pages.pages(rules)}


def stale(root: Path) -> list[str]:
    """What of the generated documents does not say what the code says; empty when all of it does."""
    wrong = [
        f"{path}: is stale; run `make docs`"
        for path, text in documents().items()
        if not (root / path).is_file() or (root / path).read_text("utf-8") != text
    ]
    wrong += [f"{path}: is no rule's page; run `make docs`" for path in left_over(root)]
    wrong += unpatched(root)
    return wrong + [f"README.md: {fault}; run `python -m torchvet.docgen --demo`" for fault in demo_faults(root)]


def patches(root: Path) -> dict[Path, str]:
    """The good programs that can be kept as patches of the faulty ones, each with the text of its good.patch."""
    found = {}
    for good in sorted((root / RULES).glob("*/*/good.py")):
        before, after = (path.read_text("utf-8") for path in (good.with_name("bad.py"), good))
        alike = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False).ratio()
        if alike >= ALIKE:
            found[good] = made(before, after, f"{good.parent.name}.py")
    return found


def unpatched(root: Path) -> list[str]:
    """What `stale` says of good programs that `make docs` turns into patches."""
    return [f"{good.relative_to(root).as_posix()}: is not yet a patch; run `make docs`" for good in patches(root)]


def left_over(root: Path) -> list[str]:
    """Pages of rules that are no more."""
    known = documents()
    there = (f"{rule_pages.FOLDER}/{page.name}" for page in (root / rule_pages.FOLDER).glob("*.md"))
    return sorted(path for path in there if path not in known)


def demo_faults(root: Path) -> Iterator[str]:
    """How README's demonstration contradicts the example and the rules. Figures may differ, names and lines may not."""
    before, block, _ = split_demo((root / "README.md").read_text("utf-8"))
    if not before:
        yield "has no demonstration between its marks"
        return
    source = (root / EXAMPLE).read_text("utf-8").splitlines()
    quoted = re.findall(r"^ +(\d+) \| (.*)$", block, re.MULTILINE)
    if not quoted:
        yield f"quotes no line of {EXAMPLE}"
    for number, text in quoted:
        if int(number) > len(source) or text.strip() not in ("", source[int(number) - 1].strip()):
            yield f"line {number} of {EXAMPLE} is not {text.strip()!r}"
    known = {(r.code, r.name) for r in manifest.discovered()}
    for code, name in re.findall(r"^\s*(?:error|warning|info) ([A-Z]+\d+) ([a-z-]+)", block, re.MULTILINE):
        if (code, name) not in known:
            yield f"names {code} {name}, which is no rule"


def split_demo(readme: str) -> tuple[str, str, str]:
    """README's text before the demonstration, within it, and after; the first is empty when the marks are missing."""
    before, found, rest = readme.partition(DEMO[0])
    block, ended, after = rest.partition(DEMO[1])
    return (before, block, after) if found and ended else ("", "", readme)


def write_demo(root: Path) -> None:
    """Run the example under torchvet and put its output into README.md. Raises ClickException when it goes wrong."""
    command = [sys.executable, "-m", "torchvet", "run", EXAMPLE]
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if ran.returncode != 1:
        raise click.ClickException(f"expected findings (exit status 1), got {ran.returncode}\n{ran.stderr}")
    before, _, after = split_demo((root / "README.md").read_text("utf-8"))
    if not before:
        raise click.ClickException(f"README.md: no line {DEMO[0]!r} followed by {DEMO[1]!r}")
    block = f"\n```console\n$ torchvet run {EXAMPLE}\n{abridge(ran.stdout)}\n```\n"
    (root / "README.md").write_text(before + DEMO[0] + block + DEMO[1] + after, "utf-8")


def abridge(output: str) -> str:
    """The last of the example's own lines, the verdict and the first finding; an ellipsis for what is left out."""
    lines = output.rstrip().splitlines()
    own = [i for i, line in enumerate(lines) if line.startswith("epoch ")]
    start = own[-1] if own else 0
    findings = [i for i, line in enumerate(lines) if re.match(r"(error|warning|info) [A-Z]+\d+ ", line)]
    # The first finding ends where the second begins, else where the facts of the run do.
    facts = next((i for i, line in enumerate(lines) if line == "What was seen"), len(lines))
    end = findings[1] if len(findings) > 1 else facts
    kept = "\n".join(lines[start:end]).rstrip()
    return ("...\n" if start else "") + kept + ("\n\n..." if end < len(lines) else "")


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 when a document is stale.")
@click.option("--demo", is_flag=True, help="Run the example (needs torch) and put its output into README.md.")
def main(check: bool, demo: bool) -> None:
    """Write the generated documents below the working directory, the repository's root."""
    root = Path.cwd()
    if not (root / "pyproject.toml").is_file() or not (root / "README.md").is_file():
        raise click.ClickException(f"{root}: not the root of torchvet's repository; change to it first")
    if check:
        faults = stale(root)
        for fault in faults:
            click.echo(fault, err=True)
        sys.exit(1 if faults else 0)
    if demo:
        write_demo(root)
    for path in left_over(root):
        (root / path).unlink()
    for good, patch in patches(root).items():
        good.with_suffix(".patch").write_text(patch, "utf-8")
        good.unlink()
    for path, text in documents().items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, "utf-8")
    number = len(manifest.discovered()) + 1
    click.echo(f"wrote {MANIFEST}, docs/report.schema.json and {number} pages below {rule_pages.FOLDER}")
