"""The tools: each reads something and gives the JSON of `--format json`, or rows of the rules. None runs a program."""

from __future__ import annotations

import re
from typing import Any

from torchvet.agents.capping import ROWS, capped
from torchvet.agents.reach import Reach
from torchvet.errors import BadInput
from torchvet.source.text import name_set


class Tools:
    """What an agent may ask. Raises `TorchvetError` with a message for the agent."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach

    def check_source(
        self, path: str = "", text: str = "", filename: str = "train.py", select: list[str] | None = None
    ) -> dict[str, Any]:
        """Check Python source for faults of PyTorch programs, without running it.

        Give `path` (a file, notebook or folder), or `text` with the `filename` it would have. `select` takes beginnings
        of codes: MEM, AMP1, TRN101. Gives a report: findings with code, location, cause and remedy.edits.
        """
        from torchvet.checking.baseline import unknown
        from torchvet.checking.checker import Checker
        from torchvet.checking.discovery import discover
        from torchvet.checking.project import check_files, report_on
        from torchvet.configuration import Layer, codes_in, read_configuration

        if bool(path) == bool(text):
            raise BadInput("give either `path` or `text`")
        place = self.reach.path(path) if path else self.reach.folders[0] / filename
        configuration = read_configuration(place)
        if select:
            configuration = configuration.with_layer(Layer("select", codes_in(select)))
        checker = Checker(configuration)
        if text:
            _ = checker.scope
            results = [checker.check_bytes(filename, text.encode("utf-8", "surrogatepass"))]
        else:
            targets = discover([str(place)], configuration.exclude, configuration.root)
            results = check_files([t for t in targets if self.reach.covers(t.path)], checker, None, 1)
        return capped(report_on(unknown(results, configuration.baseline), [path or filename]))

    def inspect_file(self, paths: list[str], memory_limit: int | None = None) -> dict[str, Any]:
        """Report on files that a run left: CUDA memory snapshots, torch.profiler traces, or one recording (NAME.vet).

        Several paths are the ranks of one program. `memory_limit` is in bytes, for the forecast. Nothing in a file is
        executed.
        """
        from torchvet.inspecting import inspect_paths

        if not paths:
            raise BadInput("`paths` is empty: give at least one file")
        return capped(inspect_paths([self.reach.path(p) for p in paths], memory_limit=memory_limit))

    def read_report(self, recording: str, memory_limit: int | None = None) -> dict[str, Any]:
        """Diagnose the recording that `torchvet run --record NAME.vet` kept, or read a report.json again.

        Gives the verdict, the findings (cause, line, holder, bytes per step, edits) and what was not checked.
        """
        from torchvet.diagnosis.diagnose import diagnose
        from torchvet.recording import read

        path = self.reach.path(recording)
        if path.is_file() and path.suffix.lower() == ".json":
            return capped(_report_in(path))
        return capped(diagnose(read(path), memory_limit=memory_limit))

    def compare_runs(self, before: str, after: str) -> dict[str, Any]:
        """Compare two recordings, two snapshots or two traces: what changed, by how much, and where."""
        from torchvet.comparing.report import report_on
        from torchvet.workflows.comparison import compared

        return capped(report_on(compared(str(self.reach.path(before)), str(self.reach.path(after))), None))

    def explain_rule(self, code: str) -> dict[str, Any]:
        """Explain a rule by its code or name: what, why, when it does not matter, proof, remedy, a faulty and a fixed
        program."""
        from torchvet.docgen.rule_pages import found_by
        from torchvet.rules import rule

        try:
            one = rule(code)
        except KeyError:
            raise BadInput(f"{code}: no such rule; `search_rules` finds rules by a symptom") from None
        texts = {part: getattr(one, part) for part in ("summary", "what", "why", "when_not", "proof", "remedy")}
        programs = {"faulty": one.BAD, "fixed": one.GOOD}
        found = found_by(one).replace("`", "")
        return {"code": one.code, "name": one.name, "severity": one.severity, "found_by": found, **texts, **programs}

    def search_rules(self, symptom: str, limit: int = 10) -> dict[str, Any]:
        """Find rules by a symptom, an error message or a word: `memory grows`, `loss is NaN`, `view size`."""
        from torchvet.docgen.rule_pages import SYMPTOMS, found_by
        from torchvet.rules import all_rules

        words = {w for w in re.findall(r"[a-z0-9_]{2,}", symptom.lower()) if w not in _COMMON}
        scored = []
        for one in all_rules():
            headings = " ".join(s for s, prefixes in SYMPTOMS.items() if one.code.startswith(prefixes))
            near, far = f"{one.code} {one.name} {one.summary}".lower(), f"{headings} {one.what} {one.why}".lower()
            score = sum(3 * (w in near) + (w in far) for w in words)
            if score:
                scored.append((-score, one.code, one))
        shown = sorted(scored, key=lambda s: s[:2])[: max(1, min(limit, ROWS))]
        rows = [
            {
                "code": one.code,
                "name": one.name,
                "severity": one.severity,
                "summary": one.summary,
                "found_by": found_by(one).replace("`", ""),
            }
            for _, _, one in shown
        ]
        cut = [f"rules: {len(rows)} of {len(scored)} shown"] if len(scored) > len(rows) else []
        return {"rules": rows, "truncated": cut}


_COMMON = name_set(
    "the of in on at to by an is are was it its my me we and or not no as be do does after before with when from"
)


def _report_in(path: Any) -> Any:
    import msgspec

    from torchvet.finding import SCHEMA, Report

    try:
        found = msgspec.json.decode(path.read_bytes(), type=Report)
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        raise BadInput(f"{path}: is no report of torchvet: {error}") from error
    if found.schema != SCHEMA:
        raise BadInput(f"{path}: is a report of {found.schema!r}, expected {SCHEMA!r}")
    return found
