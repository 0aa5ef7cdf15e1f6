"""DST112: ranks run unlike code, or unlike versions of torch."""

from __future__ import annotations

from torchvet.analysis.unlike_ranks import UnlikeFile, unlike_files, unlike_versions
from torchvet.rules.kit import Finding, Findings, RankRecording, Recording, Rule, records


class RanksUnlike(Rule):
    """Ranks run unlike code, or unlike versions of torch."""

    severity = "warning"
    found_with = ("run", "--nproc", "2")
    fix_changes_results = True

    def in_recording(self, recording: Recording) -> Findings:
        """By the texts of the program's modules as each rank has read them, and by torch's versions."""
        ranks = recording.members
        files = unlike_files(ranks) if len(ranks) > 1 else []
        if files:
            yield self._code(files)
        versions = unlike_versions(ranks).get("torch") if len(ranks) > 1 else None
        if versions:
            yield self._torch(ranks, versions)

    def _code(self, files: list[UnlikeFile]) -> Finding:
        first = files[0]
        more = f", and {len(files) - 1} more" if len(files) > 1 else ""
        groups = ", another on ".join(_names(group) for group in first.ranks)
        return self.observed(
            first.other,
            records.base.Place(first.path, first.line, ""),
            f"ranks run unlike code: module `{first.module}` has one text on {groups}{more}",
            cause=f"line {first.line} is the first that differs: hosts have unlike copies of the program, or the file "
            "was changed while the ranks started",
            advice="give all ranks one copy: a shared folder, an image, or one commit that each host checks out",
        )

    def _torch(self, ranks: list[RankRecording], versions: dict[str, list[int]]) -> Finding:
        parts = [f"{version} on {_names(group)}" for version, group in versions.items()]
        odd = list(versions.values())[-1][0]
        return self.observed(
            next(one for one in ranks if one.rank == odd),
            None,
            f"ranks have unlike versions of torch: {', '.join(parts)}",
            cause="kernels and defaults differ between versions, so that replicas drift apart or wait for each other",
            advice="install the same version of torch on every host",
        )


def _names(ranks: list[int]) -> str:
    return f"rank{'' if len(ranks) == 1 else 's'} {', '.join(map(str, ranks))}"
