"""What a buffer is told: by its project's configuration, in the client's units, with edits that can be made."""

from __future__ import annotations

from pathlib import Path

import pytest
from lsprotocol import types
from pygls.workspace import PositionCodec

from torchvet.commands import main
from torchvet.editors.buffers import Checks
from torchvet.editors.translation import Translator, page
from torchvet.errors import BadInput

SCALER = "import torch\n\n\nscaler = torch.cuda.amp.GradScaler()\n"


def translator(
    path: Path, text: str, encoding: types.PositionEncodingKind = types.PositionEncodingKind.Utf16
) -> Translator:
    return Translator(path.as_uri(), Checks().check(str(path), text), PositionCodec(encoding))


def actions(found: Translator, line: int, only: list[str] | None = None) -> list[types.CodeAction]:
    at = types.Position(line, 0)
    return list(found.actions(types.Range(at, at), only, Checks()))


def applied(text: str, action: types.CodeAction) -> str:
    """A text after an action's edits, counted in UTF-16 as an editor does."""
    (edits,) = (action.edit.changes or {}).values() if action.edit else [[]]
    lines = text.split("\n")
    for edit in sorted(edits, key=lambda e: (e.range.start.line, e.range.start.character), reverse=True):
        flat, offsets = "\n".join(lines), []
        for place in (edit.range.start, edit.range.end):
            before = sum(len(line) + 1 for line in lines[: place.line])
            raw = lines[place.line].encode("utf-16-le")[: 2 * place.character]
            offsets.append(before + len(raw.decode("utf-16-le")))
        lines = (flat[: offsets[0]] + edit.new_text + flat[offsets[1] :]).split("\n")
    return "\n".join(lines)


def test_the_buffer_counts_and_not_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SCALER)
    assert Checks().check(str(tmp_path / "a.py"), "import torch\n").findings == []
    (found,) = translator(tmp_path / "nowhere.py", SCALER).diagnostics()
    assert (found.code, found.source, found.severity) == ("AMP210", "torchvet", types.DiagnosticSeverity.Information)
    assert (found.range.start, found.range.end) == (types.Position(3, 9), types.Position(3, 36))


@pytest.mark.parametrize(
    ("encoding", "column"),
    [
        (types.PositionEncodingKind.Utf8, 14),
        (types.PositionEncodingKind.Utf16, 12),
        (types.PositionEncodingKind.Utf32, 11),
    ],
)
def test_columns_are_in_the_clients_units(tmp_path: Path, encoding: types.PositionEncodingKind, column: int) -> None:
    text = "import torch\nx = '😀'; y = torch.cuda.amp.GradScaler()\n"
    (found,) = translator(tmp_path / "a.py", text, encoding).diagnostics()
    assert found.range.start == types.Position(1, column + 2)


def test_a_fix_is_preferred_if_it_is_safe_and_named_if_it_is_not(tmp_path: Path) -> None:
    safe = "import torch\nx = '😀'; y = torch.cuda.amp.GradScaler()\n"
    found = translator(tmp_path / "a.py", safe)
    fix, ignore, everything = actions(found, 1)
    assert fix.is_preferred and fix.title.startswith("AMP210: ") and fix.kind == types.CodeActionKind.QuickFix
    assert applied(safe, fix) == "import torch\nx = '😀'; y = torch.amp.GradScaler(\"cuda\")\n"
    assert applied(safe, everything) == applied(safe, fix) and everything.kind == "source.fixAll.torchvet"
    assert ignore.title == "Ignore AMP210 on this line" and not ignore.is_preferred
    assert actions(found, 0, ["quickfix"]) == [] and len(actions(found, 1, ["source"])) == 1
    text = (
        "import torch\n\nmodel = torch.nn.Linear(2, 2)\nlosses = []\noptimizer = torch.optim.SGD(model.parameters())\n"
        "for x in data:\n    loss = model(x).sum()\n    loss.backward()\n    optimizer.step()\n"
    )
    (unsafe, _) = [a for a in actions(translator(tmp_path / "a.py", text), 7) if "TRN101" in a.title]
    assert unsafe.title.startswith("TRN101 (may change results): ") and not unsafe.is_preferred
    assert "zero_grad" in applied(text, unsafe)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("y = torch.cuda.amp.GradScaler()", "y = torch.cuda.amp.GradScaler()  # torchvet: ignore[AMP210]"),
        ("y = torch.cuda.amp.GradScaler()  # ok", "y = torch.cuda.amp.GradScaler()  # ok  # torchvet: ignore[AMP210]"),
        (
            "y = torch.cuda.amp.GradScaler()  # torchvet: ignore[MEM101]",
            "y = torch.cuda.amp.GradScaler()  # torchvet: ignore[MEM101, AMP210]",
        ),
        (
            "y = [torch.cuda.amp.GradScaler(), \\\n 2]",
            "y = [torch.cuda.amp.GradScaler(), \\\n 2]  # torchvet: ignore[AMP210]",
        ),
        (
            "y = f(torch.cuda.amp.GradScaler(), '''\n''')",
            "y = f(torch.cuda.amp.GradScaler(), '''\n''')  # torchvet: ignore[AMP210]",
        ),
    ],
)
def test_a_suppression_stands_where_it_counts(tmp_path: Path, text: str, after: str) -> None:
    text, after = f"import torch\n{text}\n", f"import torch\n{after}\n"
    ignore = next(a for a in actions(translator(tmp_path / "a.py", text), 1) if a.title.startswith("Ignore AMP210"))
    assert applied(text, ignore) == after
    assert "AMP210" not in [f.code for f in Checks().check(str(tmp_path / "a.py"), after).findings]


def test_the_projects_configuration_and_baseline_count(tmp_path: Path) -> None:
    checks, file, settings = Checks(), tmp_path / "lib/a.py", tmp_path / "pyproject.toml"
    file.parent.mkdir()

    def codes() -> list[str]:
        return [f.code for f in checks.check(str(file), SCALER).findings]

    assert codes() == ["AMP210"]
    for section in ("ignore = ['AMP']", "exclude = ['lib']", "per-file-ignores = {'lib/*.py' = ['AMP210']}"):
        settings.write_text(f"[tool.torchvet]\n{section}\n")
        assert codes() == []
    settings.write_text("[tool.torchvet]\nbaseline = 'known.json'\n")
    file.write_text(SCALER)
    assert main(["check", str(file), "--write-baseline", str(tmp_path / "known.json"), "-q"]) == 0
    assert codes() == []
    settings.write_text("[tool.torchvet]\nselect = ['ZZZ']\n")
    with pytest.raises(BadInput, match="ZZZ"):
        codes()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "import torch\ndef (",
        "import torch\n\x00",
        "import torch\r\nx = 1\x0c\r\n",
        "# coding: latin-1\ntorch = 'é'\n",
    ],
)
def test_any_text_is_taken(tmp_path: Path, text: str) -> None:
    found = translator(tmp_path / "a.py", text)
    for diagnostic in found.diagnostics():
        assert diagnostic.message and diagnostic.range.start.line <= text.count("\n")
    for line in range(text.count("\n") + 1):
        assert [a for a in actions(found, line) if "fix all" in a.title] == []


def test_what_could_not_be_checked_is_shown(tmp_path: Path) -> None:
    (found,) = translator(tmp_path / "a.py", "import torch\n\x00").diagnostics()
    assert found.message.startswith("not checked: ") and found.severity == types.DiagnosticSeverity.Information


def test_a_hover_explains(tmp_path: Path) -> None:
    found = translator(tmp_path / "a.py", SCALER)
    shown = found.hover(types.Position(3, 12))
    assert shown is not None and isinstance(shown.contents, types.MarkupContent)
    assert shown.contents.value.startswith("### AMP210 ") and "What to do." in shown.contents.value
    assert found.hover(types.Position(0, 0)) is None
    assert "SUP001" in page("SUP001")
