"""Whether a fault is gone, by its measure in two runs."""

from __future__ import annotations

import msgspec
import pytest
from trials_by_hand import FILE, TEXT, finding, trial

from torchvet.finding import Location, Measured, Related
from torchvet.verifying.lines import lines_after
from torchvet.verifying.trial import Trial
from torchvet.verifying.verdicts import judge, new_findings, remains

LEAK = finding(rate=1000.0, name="total")


@pytest.mark.parametrize(
    ("left", "unexplained", "gone"),
    [(0.0, 0.0, True), (10.0, 0.0, True), (11.0, 0.0, False), (40.0, 40.0, True), (60.0, 900.0, False)],
)
def test_growth_is_gone_within_the_noise_of_the_runs(left: float, unexplained: float, gone: bool) -> None:
    after = trial(rates={"total": left, "other": 5000.0}, unexplained=unexplained)
    found = judge(LEAK, trial(LEAK), after)
    assert found.gone is gone
    assert found.before == "1.0 kB per step"
    assert found.why == "" if gone else "total still grows" in found.why


@pytest.mark.parametrize(("preds", "target", "gone"), [(0.0, 0.0, True), (0.0, 500.0, False), (500.0, 0.0, False)])
def test_a_fault_of_several_names_is_gone_when_all_of_them_are(preds: float, target: float, gone: bool) -> None:
    both = finding(rate=1000.0, name="preds")
    before = trial(both, rates={"preds": 500.0, "target": 500.0}, names={"preds": ["preds", "target"]})
    rest = finding(rate=preds + target, name="preds" if preds else "target")
    after = trial(*(() if gone else (rest,)), rates={"preds": preds, "target": target})
    assert judge(both, before, after).gone is gone
    assert not list(new_findings(before, after))


@pytest.mark.parametrize(
    ("left", "saved", "gone"), [(200.0, 0.0, True), (205.0, 8.0, True), (220.0, 0.0, False), (200.0, 200.0, False)]
)
def test_where_graphs_were_kept_what_a_name_stores_itself_may_go_on_growing(
    left: float, saved: float, gone: bool
) -> None:
    before = trial(LEAK, graphs={"total": 800.0})
    after = trial(rates={"total": left}, graphs={"total": saved})
    assert judge(LEAK, before, after).gone is gone
    others = finding("MEM102", rate=1000.0, name="total")
    assert not judge(others, before, after).gone


@pytest.mark.parametrize(("left", "gone"), [(0.0, True), (12.0, False)])
def test_where_nodes_in_host_memory_are_what_grows_nodes_are_counted(left: float, gone: bool) -> None:
    small = finding("MEM112", rate=4.0, name="losses")
    found = judge(small, trial(small, nodes={"losses": 12.0}), trial(rates={"losses": 4.0}, nodes={"losses": left}))
    assert found.gone is gone and found.before == "12 autograd nodes per step"


def test_a_few_steps_say_nothing_of_growth() -> None:
    found = judge(LEAK, trial(LEAK), trial(steps=5))
    assert not found.gone and "too few" in found.why
    found = judge(LEAK, trial(LEAK), trial(windows=1))
    assert not found.gone and "not sampled" in found.why


def test_an_edit_above_moves_a_finding_and_does_not_fix_it() -> None:
    fault = finding("AMP106", location=Location(path=FILE, line=4, function="step"))
    moved = TEXT.replace("for x", "import gc\nfor x")
    same = msgspec.structs.replace(fault, location=Location(path=FILE, line=5, function="step"))
    assert not judge(fault, trial(fault), trial(same, sources={FILE: moved})).gone
    other = msgspec.structs.replace(fault, location=Location(path=FILE, line=2, function="other"))
    assert judge(fault, trial(fault), trial(other, sources={FILE: moved})).gone


def test_a_fault_that_moves_a_line_within_its_function_is_not_gone() -> None:
    fault = finding("MEM104", location=Location(path=FILE, line=3, function="evaluate"))
    moved = finding("MEM104", location=Location(path=FILE, line=4, function="evaluate"))
    assert not judge(fault, trial(fault), trial(moved)).gone
    both = trial(fault, moved)
    assert judge(fault, both, trial(moved)).gone


def test_what_source_still_suspects_and_the_run_found_harmless_is_gone() -> None:
    fault = finding("TRN101")
    harmless = msgspec.structs.replace(fault, evidence="suspected", severity="info")
    assert judge(fault, trial(fault), trial(harmless)).gone
    suspected = msgspec.structs.replace(fault, evidence="suspected")
    assert not judge(fault, trial(fault), trial(suspected)).gone


def fresh(before: Trial, after: Trial) -> list[str]:
    return [f.code for f in new_findings(before, after)]


def test_new_findings() -> None:
    noted = msgspec.structs.replace(LEAK, severity="info")
    assert fresh(trial(LEAK), trial()) == []
    assert fresh(trial(), trial(LEAK)) == ["MEM101"]
    assert fresh(trial(), trial(noted)) == []
    assert fresh(trial(LEAK), trial(LEAK)) == []
    suspected = msgspec.structs.replace(finding("AMP101"), severity="info", evidence="suspected")
    assert fresh(trial(suspected), trial(finding("AMP101"))) == ["AMP101"]


def test_what_a_graver_fault_of_its_function_had_hidden_is_not_new_and_is_not_gone() -> None:
    """An evaluation that collects its graphs, detached: what is left is that it builds them."""
    inside = Location(path=FILE, line=4, function="run")
    collected = finding("MEM104", name="out", rate=9.0, location=inside, severity="warning")
    built = finding("MEM104", location=msgspec.structs.replace(inside, line=3), severity="warning")
    assert fresh(trial(collected), trial(built)) == []
    assert remains(collected, trial(built))
    elsewhere = msgspec.structs.replace(built, location=Location(path=FILE, line=1, function="f"))
    assert fresh(trial(collected), trial(elsewhere)) == ["MEM104"]
    assert fresh(trial(msgspec.structs.replace(collected, severity="info")), trial(built)) == ["MEM104"]
    assert not remains(collected, trial(msgspec.structs.replace(built, severity="info")))


def test_a_leak_that_goes_over_to_another_name_of_its_function_is_new() -> None:
    inside = Location(path=FILE, line=4, function="run")
    first, second = (finding("MEM101", name=n, rate=9.0, location=inside) for n in ("losses", "outputs"))
    assert fresh(trial(first), trial(second)) == ["MEM101"]


def test_lines_after() -> None:
    assert list(lines_after("a\nb\nc", "a\nb\nc", 2)) == [2]
    assert list(lines_after("a\nb\nc", "a\nx\nb\nc", 2)) == [3]
    assert list(lines_after("a\nb\nc", "a\nc", 2)) == []
    assert list(lines_after("a\nb\nc", "a\nx\ny\nc", 2)) == [2, 3]
    assert list(lines_after("a\nb", "c\na\nb", 9)) == []


def test_what_a_fix_leaves_of_a_growth_is_no_new_fault() -> None:
    pinned = finding("MEM113", rate=1e6, name="gallery.rows")
    rest = finding("MEM102", rate=512.0, name="gallery.rows")
    assert list(new_findings(trial(pinned), trial(rest))) == []
    more, other = (finding("MEM102", rate=r, name=n) for r, n in ((2e6, "gallery.rows"), (512.0, "others")))
    assert list(new_findings(trial(pinned), trial(more))) == [more]
    assert list(new_findings(trial(pinned), trial(other))) == [other]


def test_what_a_leak_had_kept_and_is_only_built_now_is_not_new() -> None:
    """An average that took in errors with their graphs, detached: the evaluation still builds them."""
    computed = Related(role="allocated", message="aten.addmm", path=FILE, line=3)
    leak = finding(rate=1000.0, name="total", related=[computed])
    fixed = TEXT.replace("loss = f(x)", "\n    loss = f(x)")
    at = Location(path=FILE, line=4, function="evaluate")
    built = finding("MEM104", location=at, severity="warning", measured=Measured(bytes=500))
    after = trial(built, sources={FILE: fixed})
    assert fresh(trial(leak), after) == []
    assert fresh(trial(), after) == ["MEM104"]
    elsewhere = msgspec.structs.replace(leak, related=[])
    assert fresh(trial(elsewhere), after) == ["MEM104"]
    whole = msgspec.structs.replace(built, measured=Measured(bytes=990))
    assert fresh(trial(elsewhere), trial(whole, sources={FILE: fixed})) == []
    more = msgspec.structs.replace(built, measured=Measured(bytes=2000))
    assert fresh(trial(leak), trial(more, sources={FILE: fixed})) == ["MEM104"]


def test_a_growth_that_a_fix_has_left_as_it_is_under_another_rule_is_not_new() -> None:
    """Outputs whose graphs' nodes were the greater part: the outputs are still collected."""
    nodes = finding("MEM112", rate=1000.0, name="total")
    assert fresh(trial(nodes), trial(finding("MEM102", rate=1000.0, name="total"))) == []
    assert fresh(trial(nodes), trial(finding("MEM102", rate=1100.0, name="total"))) == ["MEM102"]
    assert fresh(trial(nodes), trial(finding("MEM102", rate=1000.0, name="other"))) == ["MEM102"]


@pytest.mark.parametrize(("left", "pinned", "gone"), [(20.0, 0.0, True), (20.0, 15.0, False), (500.0, 0.0, False)])
def test_where_views_pinned_storages_what_they_show_may_go_on_growing(left: float, pinned: float, gone: bool) -> None:
    before = trial(msgspec.structs.replace(LEAK, code="MEM113"), pinned={"total": 980.0})
    after = trial(rates={"total": left}, pinned={"total": pinned})
    assert judge(before.findings[0], before, after).gone is gone
