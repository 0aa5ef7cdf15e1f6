"""Every rule carries its knowledge, and its examples are programs that run."""

from __future__ import annotations

import ast
import math
import re
import shutil
import sys

import pytest
from example_runs import printed_by

from torchvet.finding import SEVERITIES
from torchvet.rules import Rule, all_rules, rule
from torchvet.source.model import SourceFile

RULES = all_rules()
TEXTS = ("what", "why", "when_not", "proof", "remedy")
EXAMPLES = ("BAD", "GOOD")
ON_CPU = [r for r in RULES if r.runs_on == "cpu"]

FIX_CHANGES_RESULTS = {"MEM116", "TRN101", "TRN104", "TRN105"}
"""Rules whose fault is (also) in the mathematics: mending it has to change the losses."""

each_that_runs = pytest.mark.parametrize("subject", ON_CPU, ids=lambda r: r.code)
each_rule = pytest.mark.parametrize("subject", RULES, ids=lambda r: r.code)
each_example = pytest.mark.parametrize("kind", EXAMPLES)


def printed(subject: Rule, kind: str) -> tuple[str, str | None]:
    """What a rule's example prints and how it fails. Each has a process of its own: some start threads or workers."""
    ranks = int(subject.found_with[2]) if "--nproc" in subject.found_with else 1
    return printed_by(getattr(subject, kind), f"{subject.code}_{kind}.py", ranks)


def losses(printed: str) -> list[float]:
    return [float(figure) for figure in re.findall(r"\bloss (\S+)", printed)]


@each_rule
def test_code_and_name_are_those_of_the_file(subject: Rule) -> None:
    folder, module = type(subject).__module__.split(".")[-2:]
    assert re.fullmatch(r"(MEM|OPS|DEV|AMP|NUM|TRN|DST)\d{3}", subject.code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", subject.name)
    assert (folder, module) == (f"{subject.code}_{subject.name}".lower().replace("-", "_"), "rule")
    assert type(subject).__name__.lower() == subject.name.replace("-", "")
    assert rule(subject.code) is rule(subject.name) is subject


def test_codes_and_names_are_unique() -> None:
    assert len({r.code for r in RULES}) == len({r.name for r in RULES}) == len(RULES) > 0


@each_rule
def test_summary_is_one_line(subject: Rule) -> None:
    assert "\n" not in subject.summary
    assert not subject.summary.endswith(".")
    assert 20 <= len(subject.summary) <= 100
    assert subject.severity in SEVERITIES


@each_rule
@pytest.mark.parametrize("text", TEXTS)
def test_texts_are_short_paragraphs(subject: Rule, text: str) -> None:
    value = getattr(subject, text)
    assert 60 <= len(value) <= 700
    assert value == " ".join(value.split()), "stray white space, or two pieces joined wrongly"
    assert value.endswith((".", ".)"))
    assert not re.search(r"[a-z][.,;:][A-Z][a-z]", re.sub(r"`[^`]*`", "", value)), "a space is missing between pieces"
    assert value.count("`") % 2 == 0


@each_rule
def test_proof_gives_figures_and_the_version(subject: Rule) -> None:
    assert re.match(r"(torch \d+\.\d+\.\d+, (CPU|CUDA)|Not measured)", subject.proof)
    assert subject.proof.startswith("Not measured") or len(re.findall(r"\d[\d,.]*", subject.proof)) >= 4


@each_rule
@each_example
def test_example_is_a_short_program_that_needs_only_torch(subject: Rule, kind: str) -> None:
    text = getattr(subject, kind)
    tree = ast.parse(text)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    roots = {name.split(".")[0] for name in imported}
    assert "torch" in roots
    assert roots - {"torch"} <= set(sys.stdlib_module_names)
    assert 12 <= len(text.splitlines()) <= 40
    assert max(map(len, text.splitlines())) <= 110
    assert "manual_seed(" in text
    assert text.endswith("\n") and not text.startswith("\n")


@each_rule
def test_fix_is_small(subject: Rule) -> None:
    bad, good = (set(text.splitlines()) for text in (subject.BAD, subject.GOOD))
    assert subject.BAD != subject.GOOD
    assert len(good - bad) <= 6
    assert len(bad - good) <= 6


@each_that_runs
@each_example
def test_example_runs_and_prints_finite_losses(subject: Rule, kind: str) -> None:
    out, error = printed(subject, kind)
    if kind == "BAD" and subject.bad_raises:
        # Some end in an error only where there is no GPU.
        assert (error is None and shutil.which("nvidia-smi")) or subject.bad_raises in (error or "")
        return
    assert error is None, error
    assert len(losses(out)) >= 4
    assert kind == "BAD" or all(map(math.isfinite, losses(out)))


@each_that_runs
def test_fix_changes_results_only_where_these_were_wrong(subject: Rule) -> None:
    if subject.bad_raises:
        return
    bad, good = (printed(subject, kind)[0] for kind in EXAMPLES)
    if subject.code in FIX_CHANGES_RESULTS or subject.fix_changes_results:
        assert losses(bad) != losses(good)
    else:
        assert bad == good


FROM_SOURCE = [r for r in RULES if "in_source" in r.inputs()]


@pytest.mark.parametrize("subject", FROM_SOURCE, ids=lambda r: r.code)
def test_source_tells_the_faulty_program_from_the_fixed_one(subject: Rule) -> None:
    bad, good = (SourceFile("train.py", getattr(subject, kind)) for kind in EXAMPLES)
    assert list(subject.in_source(bad)), "not found in BAD"
    alarms = [f for r in FROM_SOURCE for f in r.in_source(good) if f.severity != "info"]
    assert not list(subject.in_source(good)) and not alarms, [(f.code, f.message) for f in alarms]
