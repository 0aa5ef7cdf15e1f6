"""Reports of checks for the renderers' tests: everything that a finding may have, and texts that mean harm."""

from __future__ import annotations

from hypothesis import strategies as st

from torchvet.finding import Edit, Finding, Location, NotChecked, Related, Remedy, Report

HOSTILE = "a|b `c|d` %0A::error::x <b> *s* [l](u) \n\r\t\x1b[31m \u202e \udcff ,:; __i__"
TEXTS = st.text(max_size=30) | st.sampled_from([HOSTILE, "", "::", "%25", "`", "``|``", "|"])
PATHS = st.sampled_from(["a.py", "sub dir/ä%.py", "/abs/b.py", "nb.ipynb:cell 3", "a:b,c.py", "\udcff.py"])


def finding(message: str = "m", path: str = "src/a.py", edits: bool = True, summary: str = "do it") -> Finding:
    made = [
        Edit(path=path, start=(3, 5), end=(3, 9), text="x()"),
        Edit(path=path, start=(4, 1), end=(4, 1), text="y\n"),
    ]
    return Finding(
        code="AMP101", name="clip-before-unscale", severity="error", evidence="suspected", message=message,
        location=Location(path=path, line=3, column=5, end_line=4, function="train"), cause="why",
        remedy=Remedy(summary=summary, safe=True, edits=made if edits else []),
        related=[Related(role="called-from", message="here", path=path, line=9), Related(role="also", message="there")],
    )  # fmt: skip


def report(*findings: Finding, missed: tuple[str, ...] = ()) -> Report:
    return Report(
        subject={"kind": "check", "paths": ["."]}, verdict="findings" if findings else "clean", findings=list(findings),
        not_checked=[NotChecked(check="b.py", reason=reason) for reason in missed],
        facts={
            "files": 4, "files_with_findings": len({f.location.path for f in findings if f.location}),
            "files_not_checked": len(missed), "lines": {"src/a.py": {"3": "    clip(model)"}},
            "fixable": {"safe": len(findings), "unsafe": 0},
        },
    )  # fmt: skip
