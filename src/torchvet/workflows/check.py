"""What `torchvet check` does with its options, step by step: configure, find files, check, fix, compare, report."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchvet.checking.checker import Checker
from torchvet.checking.project import cache_for, check_files, report_on
from torchvet.formatting import count
from torchvet.workflows.check_options import Asked, configured
from torchvet.workflows.report_output import FINDINGS, Delivery

if TYPE_CHECKING:
    from torchvet.checking.discovery import Target
    from torchvet.checking.engine import FileResult
    from torchvet.finding import Report


def run(asked: Asked) -> int:
    """Do it. Gives the exit status; raises `BadInput` and click's usage errors."""
    asked.refuse()
    configuration = configured(asked)
    delivery = replace(asked.delivery, select=(), ignore=(), fail_on=configuration.fail_on)
    delivery.check()
    checker = Checker(configuration)
    return _Stdin(asked, checker, delivery).run() if asked.stdin else _Files(asked, checker, delivery).run()


class _Check:
    """What checks of files and of stdin have in common."""

    def __init__(self, asked: Asked, checker: Checker, delivery: Delivery) -> None:
        self.asked, self.checker, self.delivery = asked, checker, delivery
        self.fixed: Counter[str] = Counter()
        self.refused: list[str] = []

    def finish(self, results: list[FileResult]) -> int:
        """Compare with the baseline, report, and give the status."""
        if self.asked.write_baseline is not None:
            return self._write_baseline(Path(self.asked.write_baseline), results)
        results, facts = self._without_known(results)
        report = report_on(results, self.asked.paths)
        report.facts.update(facts)
        if self.fixed:
            report.facts["fixed"] = dict(self.fixed)
        if self.refused:
            report.facts["not_fixed"] = self.refused
        self._describe_rules(report)
        self.show(report)
        return self.delivery.status(report)

    def show(self, report: Report) -> None:
        """Write the files, then print."""
        if self.asked.statistics and self.delivery.format in (None, "text"):
            from torchvet.renderers.listing import statistics
            from torchvet.workflows.report_output import color, print_text

            self.delivery.write(report)
            if not self.delivery.quiet:
                print_text(statistics(report, color()))
        else:
            self.delivery.deliver(report)

    def _without_known(self, results: list[FileResult]) -> tuple[list[FileResult], Mapping[str, Any]]:
        file = self.checker.configuration.baseline
        if file is None:
            return results, {}
        from torchvet.checking.baseline import read_baseline, without_known

        results, matched = without_known(results, read_baseline(file), file.parent)
        return results, {"baseline": {"path": str(file), "matched": matched}}

    def _write_baseline(self, file: Path, results: list[FileResult]) -> int:
        from torchvet.checking.baseline import write_baseline

        number = write_baseline(file, results)
        if not self.delivery.quiet:
            click.echo(f"torchvet: saved {count(number, 'finding')} to the baseline {file}", err=True)
        return 0

    def _describe_rules(self, report: Report) -> None:
        """Say in the facts what the codes mean, where a format tells it; elsewhere rules need not be loaded for it."""
        if self.delivery.format == "sarif" or any(name.lower().endswith(".sarif") for name in self.delivery.outputs):
            from torchvet.checking.codes import described
            from torchvet.rules import all_rules

            report.facts["rules"] = described(report, all_rules())


class _Files(_Check):
    """Files and folders."""

    def run(self) -> int:
        from torchvet.checking.discovery import discover

        configuration = self.checker.configuration
        targets = discover(self.asked.paths, configuration.exclude, configuration.root)
        folder = Path(self.asked.cache_dir) if self.asked.cache_dir else None
        cache = None if self.asked.no_cache else cache_for(configuration, folder)
        results = check_files(targets, self.checker, cache, self.asked.jobs)
        if not (self.asked.fix or self.asked.diff):
            return self.finish(results)
        fixed, differences = self._fix(targets, results)
        if self.asked.diff:
            return self._show_differences(results, differences)
        return self.finish(fixed)

    def _fix(self, targets: list[Target], results: list[FileResult]) -> tuple[list[FileResult], list[str]]:
        from torchvet.fixing.files import fix_file, is_fixable

        # A file is not changed if its fixable findings are all in the baseline.
        unknown = self._without_known(results)[0]
        out, differences = [], []
        for target, result, new in zip(targets, results, unknown, strict=True):
            if is_fixable(new, self.asked.unsafe_fixes):
                fixed, difference = fix_file(target, self.checker, self.asked.unsafe_fixes, write=not self.asked.diff)
                self.fixed += fixed.counts
                self.refused += fixed.refused
                differences.append(difference)
                result = fixed.result
            out.append(result)
        return out, differences

    def _show_differences(self, results: list[FileResult], differences: list[str]) -> int:
        from torchvet.workflows.report_output import print_text

        report = report_on(self._without_known(results)[0], self.asked.paths)
        self.delivery.write(report)
        changed = [d for d in differences if d]
        if changed and not self.delivery.quiet:
            print_text("".join(changed))
        for text in self.refused:
            click.echo(text, err=True)
        if not self.delivery.quiet:
            would = f"{count(self.fixed.total(), 'finding')} would be fixed in {count(len(changed), 'file')}"
            click.echo(would if changed else "Nothing would be fixed", err=True)
        status = self.delivery.status(report)
        return FINDINGS if changed and not self.delivery.exit_zero and status == 0 else status


class _Stdin(_Check):
    """One text from stdin. With --fix the fixed text goes to stdout, and the report to stderr."""

    def run(self) -> int:
        from torchvet.fixing.files import fix_bytes, is_fixable

        shown = self.asked.stdin_filename or "<stdin>"
        data = sys.stdin.buffer.read()
        _ = self.checker.scope
        result = self.checker.check_bytes(shown, data)
        if not (self.asked.fix or self.asked.diff):
            return self.finish([result])
        content, difference = data, ""
        if is_fixable(result, self.asked.unsafe_fixes):
            from torchvet.fixing.files import difference as difference_of

            before, fixed, content = fix_bytes(shown, data, self.checker, self.asked.unsafe_fixes)
            self.fixed, self.refused = fixed.counts, fixed.refused
            difference = difference_of(before, fixed.document)
            after = fixed.result
        else:
            after = result
        _write(difference.encode("utf-8", "backslashreplace") if self.asked.diff else content)
        report = report_on([result if self.asked.diff else after], self.asked.paths)
        self.delivery.write(report)
        if not self.delivery.quiet:
            self._tell(report)
        return self.delivery.status(report)

    def _tell(self, report: Report) -> None:
        from torchvet.renderers.listing import listing

        if self.fixed:
            report.facts["fixed"] = dict(self.fixed)
        click.echo(listing(report), err=True, nl=False)


def _write(content: bytes) -> None:
    sys.stdout.flush()
    try:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        from torchvet.workflows.streams import drop_stdout

        drop_stdout()
