"""The skill keeps to the specification of agent skills (agentskills.io), and to the rules."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from torchvet.docgen.rule_pages import SYMPTOMS
from torchvet.rules import all_rules, rule
from torchvet.skill import NAME, documents, install, measured
from torchvet.skill.documents import DESCRIPTION, _filled
from torchvet.skill.families import FAMILIES
from torchvet.skill.installing import marked
from torchvet.skill.routes import FIRST

TEXTS = documents()
KEYS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")


def front_matter(text: str) -> dict[str, str]:
    """The plain `key: value` rows between the first two fences."""
    head = re.fullmatch(r"---\n(.*?)\n---\n.*", text, re.DOTALL)
    assert head is not None
    return dict(re.findall(r"^([^\s:]+):[ ]?(.*)$", head[1], re.MULTILINE))


def tokens(text: str) -> int:
    """At least as many as tokenizers make of English and code: four letters a token, and one for each sign."""
    words = re.findall(r"\w+|[^\w\s]", text)
    return sum(math.ceil(len(word) / 4) for word in words)


def test_the_front_matter_keeps_to_the_specification() -> None:
    found = front_matter(TEXTS["SKILL.md"])
    assert set(found) <= set(KEYS)
    assert found["name"] == NAME and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", NAME) and len(NAME) <= 64
    description = json.loads(found["description"])
    assert description == DESCRIPTION and 1 <= len(description) <= 1024 and "<" not in description
    assert 1 <= len(json.loads(found["compatibility"])) <= 500


def test_the_description_says_when_and_not_how() -> None:
    assert " Use when " in DESCRIPTION
    assert not re.search(r"`|torchvet \w+ \w|\b(first|then|next) ", DESCRIPTION)


def test_the_body_is_short() -> None:
    text = marked(TEXTS["SKILL.md"])
    assert len(text.splitlines()) < 500
    assert tokens(text) < 5000


@pytest.mark.skipif(sys.version_info < (3, 11), reason="skills-ref wants Python 3.11")
def test_the_reference_validator_passes_it(tmp_path: Path) -> None:
    validator = pytest.importorskip("skills_ref")
    install([tmp_path])
    assert validator.validate(tmp_path / NAME) == []
    assert validator.read_properties(tmp_path / NAME).description == DESCRIPTION
    (tmp_path / NAME).rename(tmp_path / "other")
    assert validator.validate(tmp_path / "other") != []


def test_references_are_one_level_deep_and_all_are_reached() -> None:
    links = set(re.findall(r"\]\(([^)]+)\)", TEXTS["SKILL.md"]))
    assert links == set(TEXTS) - {"SKILL.md"}
    assert all(name.count("/") == 1 for name in links)
    for name in links:
        prose = re.sub(r"```.*?```|`[^`]*`", "", TEXTS[name], flags=re.DOTALL)
        beside = re.findall(r"\]\(([^)]+)\)", prose)
        assert all(f"references/{link}" in TEXTS for link in beside)


@pytest.mark.parametrize("name", TEXTS)
def test_every_code_is_a_rule_by_its_name(name: str) -> None:
    known = {r.code: r.name for r in all_rules()}
    for code in re.findall(r"\b(?:MEM|OPS|DEV|AMP|NUM|TRN|DST)\d{3}\b", TEXTS[name]):
        assert code in known
    for code, called in re.findall(r"\b([A-Z]{3}\d{3}) ([a-z0-9]+-[a-z0-9-]+)\b", TEXTS[name]):
        assert known[code] == called
    assert "{{" not in TEXTS[name] and TEXTS[name].endswith("\n") and not TEXTS[name].endswith("\n\n")


def test_every_rule_is_in_one_family_with_its_knowledge() -> None:
    listed = [r.code for family in FAMILIES for r in family.rules()]
    assert sorted(listed) == [r.code for r in all_rules()]
    for family in FAMILIES:
        text = TEXTS[f"references/{family.file}"]
        for one in family.rules():
            assert f"| {one.code} | {one.name} | {one.severity} |" in text
            assert f"## {one.code} {one.name}\n" in text and " ".join(one.remedy.split()) in text


def test_every_symptom_has_a_command_and_references() -> None:
    assert set(FIRST) == set(SYMPTOMS)
    for symptom in SYMPTOMS:
        (row,) = (line for line in TEXTS["SKILL.md"].splitlines() if line.startswith(f"| {symptom} |"))
        assert "`torchvet " in row and "](references/" in row


def test_a_field_that_is_none_is_an_error() -> None:
    assert _filled("see {{MEM101}}") == f"see MEM101 {rule('MEM101').name}"
    for field in ("{{MEM999}}", "{{step nothing}}", "{{nothing}}", "{{code MEM101}}"):
        with pytest.raises(KeyError):
            _filled(field)


def test_half_the_batch_dies_in_the_same_epoch() -> None:
    """What the text says of the figures."""
    by = {shortcut.said: shortcut for shortcut in measured.SHORTCUTS}
    as_is, half = by["as it is"], by["half the batch"]
    assert half.epoch == as_is.epoch and by["empty_cache() at every step"].step == as_is.step
    assert by["bfloat16 autocast"].step < as_is.step < by["twice the memory"].step
    assert by["the fix: `norm.item()`"].step == measured.LAST_STEP


def test_the_skill_is_the_same_every_time() -> None:
    code = "import hashlib, sys; from torchvet.skill import documents; d = documents(); "
    code += "assert 'torch' not in sys.modules; print(hashlib.sha256(repr(sorted(d.items())).encode()).hexdigest())"
    ran = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                       env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(ran) == 1
