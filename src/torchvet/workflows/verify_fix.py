"""`torchvet fix --verify`: a run as it is, runs with fixes, and what they prove."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchvet.errors import BadInput
from torchvet.fixing.chosen import chosen, difference
from torchvet.formatting import count
from torchvet.supervisor import preflight
from torchvet.supervisor.preflight import Program
from torchvet.workflows.fix_options import Asked, deliver, write
from torchvet.workflows.repeat import LONGER, MUCH_LONGER, SEED, STEPS, Bench
from torchvet.workflows.report_output import CLEAN, FINDINGS

if TYPE_CHECKING:
    from torchvet.checking.checker import Checker
    from torchvet.finding import Finding, Report
    from torchvet.fixing.documents import Document
    from torchvet.rules import Rule
    from torchvet.verifying.search import Fix, Proof, Verified
    from torchvet.verifying.trial import Trial


def verify(asked: Asked) -> int:
    """Run and compare. Gives the exit status; raises `BadInput` for what cannot be run twice and compared."""
    target = Program(None if asked.module else asked.script, asked.module, asked.arguments)
    _refuse(asked)
    preflight.check(target)
    if not asked.delivery.quiet:
        _warn(asked)
    bench = Bench(target, asked.delivery, asked.steps, asked.show_output, _probes(asked), longer=LONGER)
    runner = _Timed(bench.run)
    plan = Plan(asked, runner({}, "as it is"))
    if asked.steps is None and plan.before.stopped and not plan.candidates:
        bench.steps, bench.longer = None, MUCH_LONGER
        _say_that_it_goes_on(asked, plan.before.steps)
        plan = Plan(asked, runner({}, "as it is"))
    verified = plan.verified(runner, lambda fixes: None if asked.delivery.quiet else _announce(fixes, runner.seconds))
    verified.runs = runner.runs
    report = plan.report(verified)
    report.facts["fix"].update(run_seconds=runner.seconds, not_undone=list(bench.outside))
    if asked.apply:
        report.facts["fix"]["written"] = plan.write(verified)
    deliver(report, asked)
    return plan.status(verified, report)


Runner = Callable[[Mapping[str, bytes], str], "Trial"]
"""Runs the program with other contents in the place of files, and is told what they are."""


class _Timed:
    """Runs the program, and knows how many runs there were and how long they took."""

    def __init__(self, run: Runner) -> None:
        self._run = run
        self.seconds, self.runs = 0.0, 0

    def __call__(self, contents: Mapping[str, bytes], change: str) -> Trial:
        began = time.monotonic()
        self.runs += 1
        trial = self._run(contents, change)
        self.seconds += time.monotonic() - began
        return trial


def _refuse(asked: Asked) -> None:
    if asked.script.lower().endswith(".ipynb"):
        raise BadInput(
            f"{asked.script}: --verify does not run notebooks; fix it without --verify, or export it as a script: "
            "jupyter nbconvert --to script"
        )
    world = os.environ.get("WORLD_SIZE", "1")
    if world.isdecimal() and int(world) > 1:
        raise BadInput(
            f"WORLD_SIZE is {world}: --verify compares single processes; run it on one rank, without torchrun"
        )


def _warn(asked: Asked) -> None:
    """Announce, before anything runs, that the program runs more than once."""
    most = f"{STEPS} steps and {LONGER:.0f} seconds more" if asked.steps is None else count(asked.steps, "step")
    click.echo(
        f"torchvet: {asked.script} runs once as it is, and again with the fixes for what that shows, up to {most} "
        "each, without a terminal. The files that it writes are restored after each run "
        "(exceptions: docs/fix.md)",
        err=True,
    )


def _say_that_it_goes_on(asked: Asked, steps: int) -> None:
    if not asked.delivery.quiet:
        click.echo(
            f"torchvet: {count(steps, 'step')} have shown nothing to fix: it runs again, up to {MUCH_LONGER:.0f} "
            "seconds longer",
            err=True,
        )


def _announce(fixes: Sequence[Fix], took: float) -> None:
    """Say after the first run what is to come: how many more depends on what they show."""
    from torchvet.renderers.wording import seconds

    # Fixes that change losses have a run of their own.
    runs = len({fix.changes for fix in fixes})
    if runs:
        click.echo(
            f"torchvet: that run took {seconds(took)}; {count(len(fixes), 'fix', 'fixes')} to try, in "
            f"{count(runs, 'more run', 'more runs')} at least",
            err=True,
        )


def _probes(asked: Asked) -> dict[str, Any]:
    if asked.simulate_gpu is None:
        return {}
    preflight.check_card(asked.simulate_gpu)
    return {"simulated_gpu": asked.simulate_gpu, "simulated_gpus": asked.gpus}


class Plan:
    """What to fix in one program, by what its run without fixes shows."""

    def __init__(self, asked: Asked, before: Trial) -> None:
        from torchvet.checking.checker import Checker

        self.asked, self.before = asked, before
        # Of what is asked for all may be what only a run can show.
        self.checker = Checker(asked.chosen(asked.delivery.configuration), reads=False)
        self.codes = self.checker.scope.wanted
        self.wanted = [f for f in before.findings if f.code in self.codes]
        self.candidates = _distinct([f for f in self.wanted if self._may_be_tried(f)])
        self.documents: dict[str, Document] = {}
        self.data: dict[str, bytes] = {}
        self._open(self.candidates)

    def _is_own(self, path: str) -> bool:
        """Whether a file lies in the user's tree: below the working directory, the script's folder or the project's."""
        roots = (
            os.getcwd(),
            os.path.dirname(os.path.realpath(self.asked.script)),
            self.asked.delivery.configuration.root,
        )
        return any(Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)) for root in roots)

    def verified(self, run: Runner, tell: Callable[[Sequence[Fix]], None]) -> Verified:
        """Try the fixes. `tell` hears of them before."""
        from torchvet.verifying.search import Fix, Search

        def runner(fixes: Sequence[Finding]) -> Trial:
            return run(self.contents(fixes), _change(fixes))

        search = Search(self.before, runner, self.asked.tolerance, self._uncovered, self.asked.unsafe_fixes)
        possible = chosen(self.documents, self.candidates)
        for number, why in possible.refused.items():
            search.result.refused.append((Fix(self.candidates[number]), why))
        fixes = [_fix(f) for f in possible.made]
        tell(fixes)
        return search.run(fixes)

    def _uncovered(self, after: Trial, made: Sequence[Finding]) -> list[Fix]:
        """The fixes for what a run shows in which some findings' edits were made, as edits of the files on the disk."""
        from msgspec.structs import replace

        from torchvet.finding import Remedy
        from torchvet.fixing.edits import line_before, rebased

        shown = _distinct([f for f in after.findings if self._may_be_tried(f)])
        self._open(shown)
        texts = {path: text for document in self.documents.values() for path, text in document.texts.items()}
        found: list[Fix] = []
        for finding in shown:
            edits = rebased(finding.remedy.edits, texts, made)
            at = finding.location
            line = line_before(at.path, at.line, texts, made) if at is not None else None
            remedy = Remedy(summary=finding.remedy.summary, edits=edits or [])
            own = replace(finding, remedy=remedy, location=replace(at, line=line or at.line) if at else None)
            before = [*made, *(m.finding for m in found)]
            if edits and own in chosen(self.documents, [*before, own]).made:
                found.append(_fix(own, after, finding))
        return found

    def _may_be_tried(self, finding: Finding) -> bool:
        return bool(finding.remedy.edits) and finding.evidence == "observed" and finding.code in self.codes

    def _open(self, findings: Sequence[Finding]) -> None:
        """Read the files that edits speak of and that no document has been made of."""
        fresh = {e.path for f in findings for e in f.remedy.edits} - self.documents.keys()
        documents, data = _documents(fresh, self.before.sources, self.checker, self._is_own)
        self.documents.update(documents)
        self.data.update(data)

    def contents(self, fixes: Sequence[Finding]) -> dict[str, bytes]:
        """The files that fixes change, by path, with their new contents."""
        after = chosen(self.documents, fixes).changed(self.documents)
        return {path: document.encode() for path, document in after.items()}

    def written(self, verified: Verified) -> list[Fix]:
        """What --apply writes: proven, and either the losses are the same or --unsafe-fixes is given."""
        return [m for m, proof in verified.proven if self.asked.unsafe_fixes or not m.changes or self._kept(m, proof)]

    def _kept(self, fix: Fix, proof: Proof) -> bool:
        """Whether a fix that may change losses, and is not made to, has left them and the output as they were."""
        from torchvet.rules import rule

        same = proof.agreement.within(self.asked.tolerance) and proof.output.same
        return rule(fix.finding.code).fix_may_change_losses and same

    def write(self, verified: Verified) -> list[str]:
        """Write it. Gives the files."""
        new = self.contents([fix.finding for fix in self.written(verified)])
        write({path: (self.data[path], content) for path, content in new.items()}, self.asked.keep_original)
        return sorted(new)

    def difference(self, verified: Verified) -> str:
        """The diff of everything proven."""
        after = chosen(self.documents, [fix.finding for fix, _ in verified.proven]).documents
        return difference(self.documents, after, {path: os.path.relpath(path) for path in self.documents})

    def report(self, verified: Verified) -> Report:
        """The report of the run as it is, what was proven said of its findings."""
        from torchvet.verifying.report import Told, report_of

        asked = self.asked
        told = Told(asked.subject(), self.before, self.wanted, self.difference(verified), SEED, asked.tolerance)
        report = report_of(told, verified)
        held = [m.finding for m, _ in verified.proven if m not in self.written(verified)]
        report.facts["fix"]["again"] = asked.again()
        report.facts["fix"]["needs_unsafe_fixes"] = [f.code for f in held]
        return report

    def status(self, verified: Verified, report: Report) -> int:
        """0 where all is proven, 1 where something was refused or remains, 3 where nothing could be judged."""
        from msgspec.structs import replace

        left = [f for f in report.findings if f.evidence != "proven"]
        verdict = report.verdict if report.verdict == "undetermined" else "findings" if left else "clean"
        status = self.asked.delivery.status(replace(report, findings=left, verdict=verdict))
        held = self.asked.apply and report.facts["fix"]["needs_unsafe_fixes"]
        refused = verified.refused or held
        return FINDINGS if refused and status == CLEAN and not self.asked.delivery.exit_zero else status


def _change(fixes: Sequence[Finding]) -> str:
    """What a run tries, in a few words."""
    codes = list(dict.fromkeys(f.code for f in fixes))
    more = f" and {len(codes) - 3} more" if len(codes) > 3 else ""
    return f"with {count(len(fixes), 'fix', 'fixes')}: {', '.join(codes[:3])}{more}" if fixes else "as it is again"


def _fix(finding: Finding, seen: Trial | None = None, as_seen: Finding | None = None) -> Fix:
    """A finding's edits with what its rule says of them, and the run that uncovered it."""
    from torchvet.rules import rule
    from torchvet.verifying.search import Fix

    known = rule(finding.code)
    return Fix(finding, _changes(known), known.cost, seen, known.fix_keeps_finite, as_seen)


def _changes(rule: Rule) -> bool:
    """Whether a rule's fix may change losses."""
    return rule.fix_changes_results or rule.fix_may_change_losses


def _distinct(findings: Sequence[Finding]) -> list[Finding]:
    """One finding for each set of edits: the first."""
    seen: dict[Any, Finding] = {}
    for finding in findings:
        key = tuple((e.path, e.start, e.end, e.text) for e in finding.remedy.edits)
        seen.setdefault(key, finding)
    return list(seen.values())


def _documents(
    paths: Iterable[str], sources: Mapping[str, str], checker: Checker, is_own: Callable[[str], bool]
) -> tuple[dict[str, Document], dict[str, bytes]]:
    """Files that edits speak of, as documents and as read. Raises `BadInput` where one is no longer what ran."""
    from importlib.util import decode_source

    from torchvet.fixing.documents import open_document

    documents: dict[str, Document] = {}
    data: dict[str, bytes] = {}
    for path in sorted(paths):
        if path not in sources or not is_own(path):
            continue
        try:
            data[path] = Path(path).read_bytes()
            same = decode_source(data[path]) == sources[path]
            documents[path] = open_document(path, data[path], *checker.for_file(path))
        except (OSError, SyntaxError, ValueError, LookupError) as error:
            raise BadInput(f"{path}: cannot be read again: {error}") from error
        if not same:
            raise BadInput(f"{path}: changed while the program ran; start again")
    return documents, data
