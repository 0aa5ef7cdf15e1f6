"""The text renderer: what stands where, how much room it takes, and that foreign strings stay plain text."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from torchvet.finding import Edit, Finding, Holder, Location, NotChecked, Related, Remedy, Report
from torchvet.renderers import renderer_for

TEXT = renderer_for("text")
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def with_(struct: object, **changes: object) -> object:
    return msgspec.structs.replace(struct, **changes)


def test_the_verdict_is_the_first_line(report: Report) -> None:
    first = TEXT.render(report).splitlines()[0]
    assert first == "1 leak: `trainer.stats.losses` keeps 4.2 MB per step alive; out of memory at step 5,700 (24.0 GiB)"


def test_the_parts_come_in_their_order(report: Report) -> None:
    text = TEXT.render(report)
    parts = [
        "1 leak:", "error MEM101 graph-retained", "losses that own their graphs", "train.py:4 in Trainer.evaluate",
        "self.stats.losses.append(loss)", "^^^^", "why ", "held by ", "allocated ", "also held by ", "measured ",
        "what to do ", "Also", "info MEM104", "What was seen", "peak ", "activations", "own cost", "Not checked",
        "CUDA allocator: no CUDA device was used", "Next", "torchvet explain MEM101",
        "torchvet report '/elsewhere/my run.vet' -o report.json",
    ]  # fmt: skip
    at = -1
    for part in parts:
        found = text.find(part, at + 1)
        assert found > at, f"{part!r} is missing or out of order in\n{text}"
        at = found


def test_a_fix_that_source_has_is_offered(report: Report, leak: Finding, program: Path) -> None:
    edit = Edit(path=str(program), start=(4, 1), end=(4, 5), text="x")
    module = {"kind": "run", "path": "pkg.train", "argv": ["-m", "pkg.train"]}
    for safe, flags in ((True, "--diff"), (False, "--diff --unsafe-fixes")):
        fixed = with_(leak, remedy=Remedy(summary="s", safe=safe, edits=[edit]))
        text = TEXT.render(msgspec.structs.replace(report, findings=[fixed]))  # type: ignore[list-item]
        assert "\n  torchvet fix train.py MEM101 --verify -- --name 'a b'\n" in text
        text = TEXT.render(msgspec.structs.replace(report, findings=[fixed], subject=module))  # type: ignore[list-item]
        assert f"\n  torchvet check {flags} --select MEM101 train.py\n" in text
    assert "torchvet check" not in TEXT.render(report) and "torchvet fix" not in TEXT.render(report)


def test_a_command_that_is_offered_runs_what_was_run(report: Report, leak: Finding, program: Path) -> None:
    edit = Edit(path=str(program), start=(4, 1), end=(4, 5), text="x")
    fixed = with_(leak, remedy=Remedy(summary="s", safe=True, edits=[edit]))

    def offered(found: object = fixed, **facts: object) -> str:
        shown = with_(report, findings=[found], facts={**report.facts, **facts})
        return TEXT.render(shown).partition("\nNext\n")[2]  # type: ignore[arg-type]

    simulated = ["--simulate-gpu", "l4", "--gpus", "2"]
    assert "fix train.py MEM101 --verify --simulate-gpu l4 --gpus 2 -- --name 'a b'" in offered(simulated_by=simulated)
    row = {"rank": 0, "host": "h", "steps": 9, "seconds_per_step": None, "phases": {}, "peak_bytes": None}
    row |= {"bytes_per_step": None, "how": "finished", "status": 0}
    # A run that has not shown a fault proves no fix of it, and one process is not what several are.
    for text in (offered(with_(fixed, evidence="suspected")), offered(ranks=[row], rank=0)):
        assert "--verify" not in text and "torchvet check --diff --select MEM101 train.py" in text
    # Code on the command line is in no file.
    there = with_(fixed, remedy=Remedy(summary="s", edits=[with_(edit, path="<string>")]))  # type: ignore[list-item]
    assert "check" not in offered(there) and "fix" not in offered(there)


def test_facts_are_written_for_people(report: Report) -> None:
    text = " ".join(TEXT.render(report).split())
    assert "200 training steps, 100 evaluation steps; the run took 12.3 s" in text
    assert "backward 56 %, forward 40 %, data 4 %" in text
    assert "activations 495.0 MB 99 % parameters 5.0 MB 1 %" in text
    assert "4.2 MB per step, 98 % of it explained; 84.0 kB per step has no name" in text
    assert "resident set +4.3 MB per step, heap +4.2 MB per step" in text
    assert "24.0 GiB of memory (--memory-limit)" in text
    assert "300 ms of the run, 1.02 times the program alone (window 200 ms, census 100 ms)" in text
    assert "train.py --name 'a b'" in text


def test_the_quote_shows_three_lines_and_a_caret_under_the_marked_one(report: Report) -> None:
    lines = TEXT.render(report).splitlines()
    marked = next(i for i, line in enumerate(lines) if line.lstrip().startswith("4 | "))
    assert lines[marked - 1].split(" | ")[1].strip() == "loss = self.criterion(self.model(x), y)"
    assert lines[marked + 2].split(" | ")[1].strip() == "return self.stats"
    carets = lines[marked + 1]
    assert carets.strip(" |") == "^" * len("self.stats.losses.append(loss)")
    assert carets.index("^") == lines[marked].index("self.stats")


def test_a_column_moves_the_caret(report: Report, leak: Finding, program: Path) -> None:
    place = Location(path=str(program), line=4, column=len("        self.stats.losses.append(") + 1)
    lines = TEXT.render(with_(report, findings=[with_(leak, location=place)])).splitlines()
    marked = next(i for i, line in enumerate(lines) if line.lstrip().startswith("4 | "))
    assert lines[marked + 1].index("^") == lines[marked].index("loss)")
    assert lines[marked + 1].strip(" |") == "^" * len("loss)")


def test_the_reports_own_copy_of_the_source_wins_over_the_disk(report: Report, program: Path) -> None:
    facts = {**report.facts, "sources": {str(program): {"start": 3, "lines": ["before", "as it ran", "after"]}}}
    text = TEXT.render(with_(report, facts=facts))
    assert "4 | as it ran" in text and "losses.append(loss)" not in text


@pytest.mark.parametrize("path", ["/no/such/file.py", "<string>", "\0"])
def test_a_source_that_is_not_to_be_had_is_left_out(report: Report, leak: Finding, path: str) -> None:
    text = TEXT.render(with_(report, findings=[with_(leak, location=Location(path=path, line=4))]))
    assert "MEM101" in text and " | " not in text


def test_a_line_past_the_end_of_the_file_is_not_quoted(report: Report, leak: Finding, program: Path) -> None:
    text = TEXT.render(with_(report, findings=[with_(leak, location=Location(path=str(program), line=999))]))
    assert "train.py:999" in text and " | " not in text


def test_paths_below_the_working_directory_are_relative(
    report: Report, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "\n  train.py:4 in Trainer.evaluate\n" in TEXT.render(report)
    monkeypatch.chdir("/")
    assert f"\n  {str(program)[1:]}:4 in Trainer.evaluate\n" in TEXT.render(report, width=300)
    monkeypatch.chdir(Path(__file__).parent)
    assert f"\n  {program}:4 in Trainer.evaluate\n" in TEXT.render(report, width=300)


def test_a_working_directory_that_is_gone_costs_no_report(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert f"\n  {tmp_path}/train.py:4 in Trainer.evaluate\n" in TEXT.render(report, width=300)


def test_a_finding_with_everything_too_long_fits_one_screen(report: Report, leak: Finding, program: Path) -> None:
    long = "a very long explanation indeed " * 80
    grown = with_(
        leak,
        message=long,
        cause=long,
        remedy=Remedy(summary=long),
        holder=Holder(name="x" * 500, kind="local", path=[f".part{i}" for i in range(400)]),
        related=[Related(role="allocated", message=long, path=str(program), line=i) for i in range(1, 60)],
        location=Location(path=str(program), line=4, function="inner." * 40),
    )
    text = TEXT.render(with_(report, findings=[grown]), width=100)
    block = text[text.index("error MEM101") : text.index("What was seen")].rstrip().splitlines()
    assert len(block) <= 40
    assert all(cell_len(line) <= 100 for line in text.splitlines())
    assert "..." in text and "and 56 more; JSON has all of them" in text
    assert " more;" not in TEXT.render(report)


def test_many_findings_are_shown_briefly_after_the_first_five(report: Report, leak: Finding, note: Finding) -> None:
    text = TEXT.render(with_(report, findings=[note] * 30 + [leak] * 7))
    assert text.startswith("7 leaks, the worst: ")
    assert text.count("what to do ") == 5
    assert text.count("\n  error MEM101") == 2
    assert "and 20 more; JSON has all of them" in text
    assert text.index("\n  error MEM101") < text.index("info MEM104")


def test_empty_sections_are_left_out() -> None:
    text = TEXT.render(Report(subject={}, verdict="clean"))
    assert text == "No fault found\n"


def test_what_was_not_checked_is_said_without_findings() -> None:
    report = Report(
        subject={"kind": "run"}, verdict="clean", facts={"steps": 12},
        not_checked=[NotChecked(check="evaluation", reason="there was none")],
    )  # fmt: skip
    text = TEXT.render(report)
    assert text.startswith("No fault found in 12 steps\n")
    assert "evaluation: there was none" in text


def test_colour_changes_nothing_but_the_colours(report: Report) -> None:
    plain, coloured = TEXT.render(report), TEXT.render(report, color=True)
    assert "\x1b" not in plain
    assert "\x1b[1;31merror" in coloured
    assert ANSI.sub("", coloured) == plain


def test_the_environment_does_not_decide_on_colour(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "CLICOLOR_FORCE"):
        monkeypatch.setenv(name, "1")
    assert "\x1b" not in TEXT.render(report, color=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b[" in TEXT.render(report, color=True)


def test_brackets_and_emoji_codes_in_names_are_no_markup(report: Report, leak: Finding) -> None:
    name = "cache['[bold]x[/bold]'][0][/][link=evil] :smile:"
    holder = Holder(name=name, kind="cache", path=["[red]root", name])
    facts = {**report.facts, "peak": {"bytes": 10, "categories": {"[bold]x": 10}}}
    changed = with_(report, findings=[with_(leak, holder=holder, message=name)], facts=facts)
    text = " ".join(TEXT.render(changed, width=200).split())
    assert f"1 leak: `{name}` keeps" in text
    assert f"[red]root -> {name}" in text
    assert "[bold]x 10 bytes 100 %" in text


@pytest.mark.parametrize(("rate", "said"), [(0, False), (4096, True)])
def test_a_peak_says_where_it_leaves_a_leak_out(report: Report, rate: int, said: bool) -> None:
    facts = {**report.facts, "peak": {"bytes": 10}, "growth": {"bytes_per_step": rate}}
    text = " ".join(TEXT.render(with_(report, facts=facts), width=200).split())
    assert ("peak 10 bytes in a step, without what the steps before it left behind" in text) is said


anything = st.text(max_size=60)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=anything, path=anything, column=st.none() | st.integers(-3, 200), width=st.integers(20, 160))
def test_no_string_breaks_the_page(
    report: Report, leak: Finding, text: str, path: str, column: int | None, width: int
) -> None:
    place = Location(path=path, line=1, column=column, function=text)
    changed = with_(
        leak, message=text, cause=text, location=place, remedy=Remedy(summary=text),
        related=[Related(role=text or "x", message=text, path=path, line=2)],
        holder=Holder(name=text, kind="unknown", path=[text, path]),
    )  # fmt: skip
    facts = {
        "sources": {path: {"start": 1, "lines": [text, text]}},
        "peak": {"bytes": 5, "categories": {text: 5}},
        "outcome": {"how": "exception", "status": 1, "error": text},
    }
    page = TEXT.render(with_(report, findings=[changed], facts=facts), width=width)
    assert not set(page) & {*map(chr, range(10)), *map(chr, range(11, 32)), "\x7f", "\x9b", "\u202e"}
    page.encode("utf-8")
    verbatim = page[: page.index("\nNext\n")].splitlines()
    assert max(map(cell_len, verbatim)) <= max(width, 40)
