"""What a test may expect of a watched run, and how it is told that a report falls short of that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from torchvet.finding import Finding, Report
from torchvet.formatting import count, limit, parse_size
from torchvet.formatting import size as written
from torchvet.renderers.places import at
from torchvet.renderers.verdict import could_not_judge

Expectation = Callable[[Report], "Iterator[str | Finding]"]
"""Given a report: the faults, as findings, or in words where there is no finding."""

_WIDTH = 100
_LEAKS = ("live storages", "device memory", "graph nodes")
"""The witnesses of growth that a short test satisfies too. The heap needs more steps: growth that was seen there is a
finding, and that it was not seen well enough is none."""

_FEWEST = 2
"""Steps from which on a wait is a step's: what stands before the end of the first is the program's setting up."""


def failure_text(report: Report, expected: Sequence[Expectation], findings_only: bool = False) -> str:
    """What a report falls short of, as text; empty where it does not. `findings_only` for a test that has failed
    anyway: what could not be judged then is no news."""
    faults = [fault for check in expected for fault in check(report)]
    texts = [] if findings_only else [fault for fault in faults if isinstance(fault, str)]
    found = [f for f in report.findings if f in [fault for fault in faults if not isinstance(fault, str)]]
    if found:
        from torchvet.renderers.text import findings_page  # rich is slow to load

        texts.append(findings_page(report, found, _WIDTH))
    return "\n".join(["torchvet: " + texts[0].lstrip(), *texts[1:]]) if texts else ""


def not_judged(report: Report) -> str:
    """Why a report is no evidence; empty where it is."""
    return could_not_judge(report) if report.verdict == "undetermined" else ""


def only_findings(report: Report) -> Iterator[str | Finding]:
    """No finding of any kind; a run that cannot be judged passes."""
    yield from _serious(report)


def no_fault(report: Report) -> Iterator[str | Finding]:
    """No finding of any kind."""
    found = _serious(report)
    yield from found or _unseen_growth(report, steps=0)


def no_leak(steps: int = 20) -> Expectation:
    """Over at least so many steps, nothing grows from step to step. Raises ValueError for no number of steps."""
    if not isinstance(steps, int) or steps < 1:
        raise ValueError(f"no_leak(steps={steps!r}): steps must be a whole number, at least 1")

    def check(report: Report) -> Iterator[str | Finding]:
        leaks = [f for f in _serious(report) if (f.measured.bytes_per_step or 0) > 0]
        yield from leaks
        if not leaks:
            yield from _unseen_growth(report, steps)

    return check


def limit_peak(size: str | int) -> Expectation:
    """At most so many bytes of tensors at a time: on the device where one is used, else on the host. `size` is a number
    of bytes or a text as "1.5 GiB". Raises ValueError for what is no size."""
    most = parse_size(str(size))

    def check(report: Report) -> Iterator[str | Finding]:
        device, sampled = report.part("device_peak"), report.part("peak")
        if device:
            where = "of the simulated GPU's allocator" if report.facts.get("simulated_gpu") else "of CUDA's allocator"
            if device["bytes"] > most and not device["exact"]:
                yield f"the peak {where} is not known: it had held {written(device['bytes'])} before the test"
                return
        elif sampled:
            device, where = sampled, "of the tensors on the CPU, in the steps that torchvet has seen"
        else:
            yield f"the peak was not measured. {could_not_judge(report)}"
            return
        if device["bytes"] > most:
            over = written(device["bytes"] - most)
            yield f"the peak {where} is {written(device['bytes'])}, {over} over {limit(most)}"
            yield from (f for f in _serious(report) if f.code.startswith("MEM"))

    return check


def no_sync() -> Expectation:
    """In no step does the host wait for the device."""
    return _no_wait


def _no_wait(report: Report) -> Iterator[str | Finding]:
    told = [f for f in report.findings if f.code in ("OPS101", "OPS102") and f.evidence != "suspected"]
    lines = list(_waits_besides(report, told))
    yield from told
    yield from lines
    if told or lines:
        return
    if not report.part("device_peak"):
        yield "could not judge: no GPU was used; --torchvet-gpu l4 simulates one"
    elif int(report.facts.get("steps") or 0) < _FEWEST:
        yield f"could not judge: {_FEWEST} steps are needed; call `torchvet.step()` where a step ends"


def _waits_besides(report: Report, told: Sequence[Finding]) -> Iterator[str]:
    """The lines that wait and that no finding is about: those that do so in a few steps only."""
    places = {(p.path, p.line) for f in told for p in (f.location, *f.related) if p is not None}
    for row in report.facts.get("waits") or []:
        if (row["path"], row["line"]) not in places:
            often = f"in {row['steps']} of {count(row['sampled'], 'step')}"
            within = f" in {row['function']}" if row["function"] else ""
            yield f"{at(row['path'], row['line'])}{within}: {row['what']} makes the host wait for the device {often}"


def _unseen_growth(report: Report, steps: int) -> Iterator[str]:
    """Why it is not known whether memory grows; nothing where it is known."""
    seen = int(report.facts.get("steps") or 0)
    if seen < steps:
        yield f"{count(seen, 'step')} seen, {count(steps)} expected; call `torchvet.step()` where a step ends"
        return
    for row in report.part("verdict").get("evidence") or []:
        # A test is about the process that it runs in: other ranks have theirs.
        of_growth = (row.get("unit") is None and row["witness"] != "ranks") or row["witness"] in _LEAKS
        if of_growth and row["state"] != "flat":
            yield "; ".join(filter(None, (f"could not judge: {row['reason']}", row.get("fix"))))
            return
    if report.verdict == "undetermined" and not report.part("verdict").get("evidence"):
        yield could_not_judge(report)


def _serious(report: Report) -> list[Finding]:
    return [f for f in report.findings if f.severity != "info"]
