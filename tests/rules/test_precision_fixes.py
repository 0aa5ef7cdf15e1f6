"""Edits of the rules about mixed precision: what they make of programs of other shapes, and where they make nothing."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import msgspec
import pytest

from torchvet.finding import Finding, Location, Related, Remedy
from torchvet.fixing.edits import apply
from torchvet.rules import rule
from torchvet.source.model import SourceFile

FILE = "train.py"
HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn
net = nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
"""
SCALER = HEAD + 'scaler = torch.amp.GradScaler("cuda")\n'
PLANTED = sorted((Path(__file__).parents[2] / "casebook" / "planted").glob("amp*_bad.py"))


def edited(code: str, text: str) -> str:
    """A text with all the edits that a rule's own findings have."""
    found = [f for f in rule(code).in_source(SourceFile(FILE, text)) if f.remedy.edits]
    assert not any(f.remedy.safe for f in found)
    return apply({FILE: text}, found)[0][FILE]


def body(code: str, text: str, head: str = HEAD) -> str:
    """A program without its head, edited; it stays one, and a second look changes nothing."""
    whole = head + textwrap.dedent(text)
    assert list(rule(code).in_source(SourceFile(FILE, whole))), "the rule finds nothing here"
    after = edited(code, whole)
    ast.parse(after)
    assert edited(code, after) == after
    return after.removeprefix(head)


def is_left(code: str, text: str, head: str = HEAD) -> bool:
    """Whether a program that the rule finds is left as it is."""
    return body(code, text, head) == textwrap.dedent(text)


def observed(code: str, text: str, line: str, **others: str) -> str:
    """A text with the edits that a rule has where a run has named the line that holds `line`."""
    text = textwrap.dedent(text)

    def number(part: str) -> int:
        return next(n for n, one in enumerate(text.splitlines(), start=1) if part in one)

    finding = Finding(
        code=code, name="x", severity="error", evidence="observed", message="m", cause="c",
        location=Location(path=FILE, line=number(line)), remedy=Remedy(summary=""),
        related=[Related(role=r, message="", path=FILE, line=number(at)) for r, at in others.items()],
    )  # fmt: skip
    edits = list(rule(code).fixes(finding, SourceFile(FILE, text)))
    after = apply({FILE: text}, [msgspec.structs.replace(finding, remedy=Remedy(summary="", edits=edits))])[0][FILE]
    ast.parse(after)
    return after


# Planted programs: those that are edited are found no more, whatever their line ends ----------------------------------


@pytest.mark.parametrize("path", PLANTED, ids=lambda p: p.stem)
def test_what_is_edited_is_found_no_more(path: Path) -> None:
    code, text = path.stem.partition("_")[0].upper(), path.read_text("utf-8")
    found = list(rule(code).in_source(SourceFile(FILE, text)))
    after, made = apply({FILE: text}, [f for f in found if f.remedy.edits])
    ast.parse(after[FILE])
    if made:
        assert not [f for f in rule(code).in_source(SourceFile(FILE, after[FILE])) if f.remedy.edits]
        windows = text.replace("\n", "\r\n")
        offered = [f for f in rule(code).in_source(SourceFile(FILE, windows)) if f.remedy.edits]
        assert apply({FILE: windows}, offered)[0][FILE] == after[FILE].replace("\n", "\r\n")


def test_most_planted_faults_with_an_edit_have_it_made() -> None:
    made = {}
    for path in PLANTED:
        code, text = path.stem.partition("_")[0].upper(), path.read_text("utf-8")
        made[path.stem] = any(f.remedy.edits for f in rule(code).in_source(SourceFile(FILE, text)))
    for code in ("amp103", "amp110", "amp111", "amp114", "amp117", "amp119", "amp203", "amp204", "amp209"):
        assert all(done for name, done in made.items() if name.startswith(code))


# AMP203 --------------------------------------------------------------------------------------------------------------


def test_a_region_moves_into_the_loop_with_its_lines_and_comments() -> None:
    made = body("AMP203", """\
        def train(loader):
            net.train()
            with torch.autocast(  # mixed
                "cpu",
                dtype=torch.bfloat16,
            ):
                # every batch
                for x, y in loader:
                    if x.shape[0] == 1:
                        continue
                    # forward
                    out = net(
                        x
                    )
                    loss = F.cross_entropy(out, y)  # the loss

                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    print(f\"\"\"
                    {loss.item()}\"\"\")
            return loss
        """)  # fmt: skip
    assert made == textwrap.dedent("""\
        def train(loader):
            net.train()
            # every batch
            for x, y in loader:
                if x.shape[0] == 1:
                    continue
                # forward
                with torch.autocast(  # mixed
                    "cpu",
                    dtype=torch.bfloat16,
                ):
                    out = net(
                        x
                    )
                    loss = F.cross_entropy(out, y)  # the loss

                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                print(f\"\"\"
                    {loss.item()}\"\"\")
            return loss
        """)


def test_a_region_ends_before_a_backward_in_a_branch() -> None:
    made = body("AMP203", """\
        def train(loader, scaler):
            with torch.autocast("cuda"):
                for epoch in range(3):
                    for x, y in loader:
                        out = net(x)
                        loss = F.cross_entropy(out, y) / 4
                        if scaler is not None:
                            scaler.scale(loss).backward()
                        else:
                            loss.backward()
                        optimizer.step()
        """)  # fmt: skip
    assert made == textwrap.dedent("""\
        def train(loader, scaler):
            for epoch in range(3):
                for x, y in loader:
                    with torch.autocast("cuda"):
                        out = net(x)
                        loss = F.cross_entropy(out, y) / 4
                    if scaler is not None:
                        scaler.scale(loss).backward()
                    else:
                        loss.backward()
                    optimizer.step()
        """)


def test_a_region_moves_with_tabs() -> None:
    loop = "for x, y in loader:\n{0}loss = F.cross_entropy(net(x), y)\n\t\t\tloss.backward()\n\t\t\toptimizer.step()\n"
    before = "def train(loader):\n\twith torch.autocast('cpu'):\n\t\t" + loop.format("\t\t\t")
    after = (
        "def train(loader):\n\tfor x, y in loader:\n\t\twith torch.autocast('cpu'):\n\t\t\tloss = F.cross_entropy("
        "net(x), y)\n\t\tloss.backward()\n\t\toptimizer.step()\n"
    )
    assert body("AMP203", before) == after


@pytest.mark.parametrize(
    ("opens", "within"),
    [
        ("with torch.autograd.detect_anomaly(), torch.autocast('cpu'):", ""),
        ("with torch.autocast('cpu') as region:", ""),
        ("with torch.autocast('cpu'):", "yield net(x)"),
        ("with torch.autocast('cpu'):", "score = evaluate(net)"),
        ("with torch.autocast('cpu'):", "score = (net(x) > 0).sum()"),
        ("with torch.autocast(device):", "device = x.device.type"),
        ("with torch.autocast('cpu'):", "loss = F.cross_entropy(net(x), y); loss.backward()"),
    ],
)
def test_a_region_is_left_where_more_than_the_forward_pass_depends_on_it(opens: str, within: str) -> None:
    assert is_left("AMP203", f"""\
def train(loader):
    {opens}
        for x, y in loader:
            loss = F.cross_entropy(net(x), y)
            {"" if "backward" in within else "loss.backward()"}
            optimizer.step()
            {within}
""")  # fmt: skip


LOOP = """\
def train(loader):
    for x, y in loader:
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()


"""


@pytest.mark.parametrize(
    "calls",
    [
        "with torch.autocast('cpu'): train([])\n",
        "with torch.autocast('cpu'):\n    train([])\ntrain([])\n",
        "with torch.autocast('cpu'):\n    train([])\n    print(net(x))\n",
        "def main(device):\n    with torch.autocast(device):\n        train([])\n",
    ],
)
def test_a_region_around_a_call_is_left_where_it_cannot_move(calls: str) -> None:
    assert is_left("AMP203", LOOP + calls)


# AMP204 --------------------------------------------------------------------------------------------------------------


def test_a_region_is_opened_anew_after_each_step() -> None:
    made = body("AMP204", """\
        def both(x):
            with torch.autocast("cuda"):
                a = net(x).mean()
                optimizer.zero_grad()
                # the first
                a.backward()
                optimizer.step()
                b = net(2 * x).mean()
                optimizer.zero_grad()
            b.backward()
        """)  # fmt: skip
    assert made == textwrap.dedent("""\
        def both(x):
            with torch.autocast("cuda"):
                a = net(x).mean()
            optimizer.zero_grad()
            # the first
            a.backward()
            optimizer.step()
            with torch.autocast("cuda"):
                b = net(2 * x).mean()
                optimizer.zero_grad()
            b.backward()
        """)


@pytest.mark.parametrize("line", ["meter.update(net(x))", "optimizer.step(closure)", "optimizer.step(lambda: net(x))"])
def test_a_forward_pass_within_a_call_that_acts_stays_in_its_region(line: str) -> None:
    text = """\
with torch.autocast("cuda"):
    a = net(x).mean()
    a.backward()
    optimizer.step()
    {}
    b = net(2 * x).mean()
"""
    after = """\
with torch.autocast("cuda"):
    a = net(x).mean()
a.backward()
optimizer.step()
with torch.autocast("cuda"):
    {}
    b = net(2 * x).mean()
"""
    assert edited("AMP204", HEAD + text.format(line)) == HEAD + after.format(line)


SWAPPED = """\
    def swap(model, other):
        for p, q in zip(model.parameters(), other):
            p.copy_(q)

    def train(x):
        with torch.autocast("cpu"):
            a = net(x)
            swap(net, average)
            b = net(x)
        return a, b
    """


def test_a_region_ends_where_a_run_has_seen_weights_change() -> None:
    made = observed("AMP204", HEAD + textwrap.dedent(SWAPPED), "p.copy_(q)", region="with torch", stale="b = net(x)")
    assert made.endswith(
        '    with torch.autocast("cpu"):\n        a = net(x)\n    swap(net, average)\n    with torch.autocast("cpu"):\n'
        "        b = net(x)\n    return a, b\n"
    )


def test_a_region_ends_before_the_forward_pass_that_a_run_has_seen_stale() -> None:
    made = observed("AMP204", HEAD + textwrap.dedent(SWAPPED), "b = net(x)", region="with torch", stale="b = net(x)")
    assert made.endswith(
        '    with torch.autocast("cpu"):\n        a = net(x)\n        swap(net, average)\n'
        '    with torch.autocast("cpu"):\n        b = net(x)\n    return a, b\n'
    )


def test_another_forward_pass_is_not_taken_out_with_a_backward() -> None:
    """AMP202 moved whatever followed the backward out of the region, be it a forward pass."""
    text = """\
        with torch.autocast("cpu"):
            a = net(x).mean()
            a.backward()
            b = net(2 * x).mean()
        b.backward()
        """
    assert edited("AMP202", HEAD + textwrap.dedent(text)) == HEAD + textwrap.dedent(text)


# AMP209 --------------------------------------------------------------------------------------------------------------


def trained(loss: str, before: str = "", after: str = "") -> str:
    """A loop with a loss under autocast."""
    lines = textwrap.indent(loss, "        ")
    return f'{before}for x, y in loader:\n    with torch.autocast("cuda"):\n{lines}\n    loss.backward()\n{after}'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("loss = F.binary_cross_entropy(net(x).sigmoid(), y, reduction='sum')",
         "loss = F.binary_cross_entropy_with_logits(net(x), y, reduction='sum')"),
        ("loss = F.binary_cross_entropy(\n    torch.sigmoid(net(x) / t),  # soft\n    y,\n)",
         "loss = F.binary_cross_entropy_with_logits(\n    net(x) / t,  # soft\n    y,\n)"),
        ("loss = F.binary_cross_entropy(torch.sigmoid(net(x) + 1).view(-1), y)",
         "loss = F.binary_cross_entropy_with_logits((net(x) + 1).view(-1), y)"),
        ("z = net(x)\np = torch.sigmoid(z)\nloss = F.binary_cross_entropy(p, y)\nhits = (p > 0.5).sum()",
         "z = net(x)\np = torch.sigmoid(z)\nloss = F.binary_cross_entropy_with_logits(z, y)\nhits = (p > 0.5).sum()"),
        ("p = nn.Sigmoid()(net(x))\nloss = nn.BCELoss()(p, y)", "p = net(x)\nloss = nn.BCEWithLogitsLoss()(p, y)"),
    ],
)  # fmt: skip
def test_the_sigmoid_goes_into_the_loss(before: str, after: str) -> None:
    assert body("AMP209", trained(before)) == trained(after)


@pytest.mark.parametrize(
    "loss",
    [
        "p = torch.sigmoid(net(x))\np.clamp_(1e-4, 1 - 1e-4)\nloss = F.binary_cross_entropy(p, y)",
        "loss = F.binary_cross_entropy(torch.sigmoid(net(x)).clamp(1e-4, 1 - 1e-4), y)",
        "p = torch.sigmoid(net(x))\nloss = F.binary_cross_entropy(p, y)\nhits = (p > 0.5).sum()",
        "z = net(x)\np = torch.sigmoid(z)\nz = z + 1\nloss = F.binary_cross_entropy(p, y)",
        "if probable:\n    p = torch.sigmoid(net(x))\nelse:\n    p = net(x)\nloss = F.binary_cross_entropy(p, y)",
        "loss = F.binary_cross_entropy(net(x), y)",
    ],
)
def test_a_loss_is_left_whose_sigmoid_is_not_its_own(loss: str) -> None:
    assert is_left("AMP209", trained(loss))


CRITERION = "criterion = nn.BCELoss(weight=w)\n"
MODEL = "model = nn.Sequential(\n    nn.Linear(4, 1),\n    nn.Sigmoid(),\n).cuda()\n"


def test_the_last_layer_goes_into_the_criterion() -> None:
    aside = "torch.save(model.state_dict(), 'm.pt')\n"
    made = body("AMP209", trained("loss = criterion(model(x).view(-1), y)", MODEL + CRITERION, aside))
    model, criterion = MODEL.replace("    nn.Sigmoid(),\n", ""), CRITERION.replace("BCELoss", "BCEWithLogitsLoss")
    assert made == trained("loss = criterion(model(x).view(-1), y)", model + criterion, aside)


@pytest.mark.parametrize("after", ["print(model(x) > 0.5)\n", "evaluate(model)\n", "best = model\n", "model = None\n"])
def test_a_last_layer_is_left_where_something_else_reads_it(after: str) -> None:
    assert is_left("AMP209", trained("loss = criterion(model(x), y)", MODEL + CRITERION, after))


@pytest.mark.parametrize("after", ["print(criterion(p, y))\n", "evaluate(criterion)\n", "criterion = nn.MSELoss()\n"])
def test_a_criterion_is_left_that_has_other_uses(after: str) -> None:
    text = HEAD + trained("loss = criterion(torch.sigmoid(net(x)), y)", CRITERION, after)
    assert edited("AMP209", text) == text


# AMP103 --------------------------------------------------------------------------------------------------------------

LATE = """\
for x, y in loader:
    scaler.scale(net(x).mean()).backward()
    scaler.unscale_(optimizer)
{between}
    scaler.scale(net(y).mean()).backward()
{more}    scaler.step(optimizer)
    scaler.update()
"""


def test_unscaling_and_clipping_move_below_every_backward() -> None:
    clip = "    nn.utils.clip_grad_norm_(\n        net.parameters(), 1.0,\n    )"
    more = "    if extra:\n        scaler.scale(net(x + y).mean()).backward()\n"
    made = body("AMP103", LATE.format(between=f"{clip}\n    print(1)", more=more), SCALER)
    assert made == (
        "for x, y in loader:\n    scaler.scale(net(x).mean()).backward()\n    print(1)\n"
        f"    scaler.scale(net(y).mean()).backward()\n{more}    scaler.unscale_(optimizer)\n{clip}\n"
        "    scaler.step(optimizer)\n    scaler.update()\n"
    )


@pytest.mark.parametrize(
    "between", ["    print(net.weight.grad.norm())", "    n = nn.utils.clip_grad_norm_([], 1)\n    print(n)"]
)
def test_unscaling_is_left_where_its_gradients_are_read_before(between: str) -> None:
    assert is_left("AMP103", LATE.format(between=between, more=""), SCALER)


# AMP102 --------------------------------------------------------------------------------------------------------------

MICRO = """\
for i, (x, y) in enumerate(loader):
    scaler.scale(net(x).mean() / 4).backward()
    scaler.unscale_(optimizer)
    {clip}
    if i % 4 == 3:  # the last
        lr = rate(i)
        {more}scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
"""
CLIP = "nn.utils.clip_grad_norm_(\n{0}    net.parameters(),\n{0}    1.0,\n{0})"


def test_unscaling_and_clipping_move_into_the_branch_that_steps() -> None:
    made = body("AMP102", MICRO.format(clip=CLIP.format("    "), more=""), SCALER)
    clip = f"scaler.unscale_(optimizer)\n        {CLIP.format('        ')}\n        "
    assert made == MICRO.format(clip="", more=clip).replace("    scaler.unscale_(optimizer)\n    \n", "", 1)


@pytest.mark.parametrize(
    ("clip", "more"),
    [
        ("norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)", ""),
        ("print(net.weight.grad.norm())", ""),
        ("pass", "print(net.weight.grad.norm())\n        "),
        ("pass", "print(1); "),
    ],
)
def test_unscaling_is_left_at_each_micro_step_where_more_depends_on_it(clip: str, more: str) -> None:
    assert is_left("AMP102", MICRO.format(clip=clip, more=more), SCALER)


# AMP117 --------------------------------------------------------------------------------------------------------------


def inspected(middle: str) -> str:
    """A step through a scaler."""
    lines = textwrap.indent(textwrap.dedent(middle), "    ")
    return f"for i, (x, y) in enumerate(loader):\n    loss = net(x).mean()\n{lines}"


STEP = "scaler.step(optimizer)\nscaler.update()\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("big = scaler.scale(loss)\nbig.backward()\ntotal += big.detach().item()\n",
         "big = scaler.scale(loss)\nbig.backward()\ntotal += loss.detach().item()\n"),
        ("loss = scaler.scale(loss)\nloss.backward(retain_graph=True)\nprint(loss.item())\n",
         "scaler.scale(loss).backward(retain_graph=True)\nprint(loss.item())\n"),
        ("scaler.scale(loss).backward()\nif i % 9 == 0:\n    print(net.weight.grad.norm())\n",
         "scaler.scale(loss).backward()\nscaler.unscale_(optimizer)\nif i % 9 == 0:\n"
         "    print(net.weight.grad.norm())\n"),
    ],
)  # fmt: skip
def test_what_is_read_is_not_scaled(before: str, after: str) -> None:
    assert body("AMP117", inspected(before + STEP), SCALER) == inspected(after + STEP)


def test_unscaling_moves_up_to_the_first_measure() -> None:
    before = "scaler.scale(loss).backward()\na = net.weight.grad.norm()\nb = net.bias.grad.abs().max()\n"
    made = body("AMP117", inspected(f"{before}scaler.unscale_(optimizer)\n{STEP}"), SCALER)
    assert made == inspected(before.replace("a = net", "scaler.unscale_(optimizer)\na = net") + STEP)


@pytest.mark.parametrize(
    "middle",
    [
        f"big = scaler.scale(loss)\nbig.backward()\nloss = 2 * loss\nprint(big.item())\n{STEP}",
        f"if amp:\n    loss = scaler.scale(loss)\nloss.backward()\nprint(loss.item())\n{STEP}",
        f"loss = scaler.scale(loss)\nif two:\n    loss.backward()\nloss.backward()\nprint(loss.item())\n{STEP}",
        f"scaler.scale(loss).backward()\nn = net.weight.grad.norm()\nif n > 9:\n    continue\n{STEP}",
        "scaler.scale(loss).backward()\nn = net.weight.grad.norm()\nif i % 4 == 3:\n    scaler.step(optimizer)\n"
        "    scaler.update()\n",
        f"scaler.scale(loss).backward()\nn = net.weight.grad.norm()\nnn.utils.clip_grad_norm_(n, 1.0)\n{STEP}",
    ],
)
def test_what_is_read_is_left_where_a_step_would_go_wrong(middle: str) -> None:
    text = SCALER + inspected(middle)
    assert edited("AMP117", text) == text


def test_a_loss_that_is_scaled_only_to_be_read_is_read_as_it_is() -> None:
    text = "losses.update(scaler.scale(loss).item(), n)\n"
    assert observed("AMP117", text, "losses") == "losses.update(loss.item(), n)\n"
    assert observed("AMP117", "a.update(other.scale(loss).item())\n", "a.") == "a.update(other.scale(loss).item())\n"


# The scaler itself ---------------------------------------------------------------------------------------------------


def test_a_scaler_is_made_before_the_loop_and_keeps_its_comment() -> None:
    made = "scaler = torch.amp.GradScaler('cuda', init_scale=4.0)  # small\n"
    text = (
        f"for epoch in range(3):\n    {made}    for x, y in loader:\n        scaler.scale(net(x).mean()).backward()\n"
    )
    rest = "        scaler.step(optimizer)\n        scaler.update()\n"
    assert body("AMP110", text + rest) == made + text.replace(f"    {made}", "") + rest
    for other in ("init_scale=2.0**epoch", "init_scale=f(epoch)"):
        assert is_left("AMP110", text.replace("init_scale=4.0", other) + rest)
    shared = text.replace("  # small", "; x = 1") + rest
    assert edited("AMP110", HEAD + shared) == HEAD + shared


PASSES = """\
def epoch(
    model,
    opt,{default}
):
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        scaler.scale(model(x).mean()).backward()
        scaler.step(opt)
        scaler.update()


def main():
    for number in range(3):
        epoch(
            net,
            optimizer,  # it
        )
"""


def test_a_scaler_is_handed_to_the_function_that_made_it() -> None:
    made = body("AMP110", PASSES.format(default=""))
    assert "    opt, scaler,\n):\n    for x, y in loader:" in made
    assert '    scaler = torch.amp.GradScaler("cuda")\n    for number in range(3):' in made
    assert "            optimizer, scaler=scaler,  # it\n" in made


@pytest.mark.parametrize("change", [("opt,{default}", "opt, clip=1.0,"), ("opt,{default}", "opt, *more,"),
                                    ("main():", "main(scaler):")])  # fmt: skip
def test_a_scaler_is_not_handed_over_where_that_is_not_sure(change: tuple[str, str]) -> None:
    assert is_left("AMP110", PASSES.replace(*change).format(default=""))
    assert is_left("AMP110", PASSES.format(default="") + "    epoch(net, optimizer)\n")


def with_made(call: str, dtype: str, device: str = "cpu") -> str:
    """A program that makes a scaler and trains through it under autocast."""
    step = textwrap.indent(f"scaler.scale(loss).backward()\n{STEP}", "    ")
    region = f"    with torch.autocast('{device}', dtype=torch.{dtype}):\n        loss = net(x).mean()\n"
    return f"scaler = {call}\nfor x, y in loader:\n{region}{step}"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch.amp.GradScaler()", "torch.amp.GradScaler(enabled=False)"),
        ("torch.amp.GradScaler('cpu', init_scale=2.0)", "torch.amp.GradScaler('cpu', init_scale=2.0, enabled=False)"),
        ("torch.amp.GradScaler(\n    'cpu',  # here\n)", "torch.amp.GradScaler(\n    'cpu', enabled=False,  # here\n)"),
        ("torch.amp.GradScaler('cpu', enabled=True)", "torch.amp.GradScaler('cpu', enabled=False)"),
        ("torch.amp.GradScaler(**options)", ""),
    ],
)
def test_a_scaler_of_bf16_is_switched_off(before: str, after: str) -> None:
    if before.endswith("enabled=True)"):
        text = with_made(before, "bfloat16").replace("bfloat16)", "bfloat16, enabled=True)")
        assert body("AMP114", text) == text.replace(before, after)
    else:
        assert body("AMP114", with_made(before, "bfloat16")) == with_made(after or before, "bfloat16")
    if after:
        assert not list(rule("AMP119").in_source(SourceFile(FILE, HEAD + with_made(after, "bfloat16"))))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch.amp.GradScaler()", 'torch.amp.GradScaler("cpu")'),
        ("torch.amp.GradScaler(init_scale=2.0)", 'torch.amp.GradScaler("cpu", init_scale=2.0)'),
        ("torch.amp.GradScaler('cuda', 2.0)", 'torch.amp.GradScaler("cpu", 2.0)'),
        ("torch.amp.GradScaler(device='cuda')", 'torch.amp.GradScaler(device="cpu")'),
        ("torch.amp.GradScaler('cpu', enabled=False)", "torch.amp.GradScaler('cpu')"),
        ("torch.cuda.amp.GradScaler()", "torch.cuda.amp.GradScaler()"),
    ],
)
def test_a_scaler_is_made_for_the_device_that_is_trained_on(before: str, after: str) -> None:
    assert body("AMP119", with_made(before, "float16")) == with_made(after, "float16")


@pytest.mark.parametrize(
    ("device", "region", "call", "after"),
    [
        ("device = pick()", "device", "torch.amp.GradScaler()", "torch.amp.GradScaler(device)"),
        ("device = pick()", "device.type", "torch.amp.GradScaler(init_scale=2.0)",
         "torch.amp.GradScaler(device.type, init_scale=2.0)"),
        ("", "pick()", "torch.amp.GradScaler()", ""),
        ("", "device", "torch.amp.GradScaler()", ""),
        ("device = pick()", "device", "torch.amp.GradScaler(enabled=amp)", ""),
        ("device = pick()", "device", "torch.amp.GradScaler(other)", ""),
    ],
)  # fmt: skip
def test_a_scaler_that_a_run_saw_off_is_made_for_the_regions_device(
    device: str, region: str, call: str, after: str
) -> None:
    text = f"{HEAD}{device}\n{with_made(call, 'float16')}".replace("autocast('cpu'", f"autocast({region}")
    assert observed("AMP119", text, "GradScaler") == text.replace(call, after or call)


def test_a_run_that_names_the_step_has_the_only_scaler_switched_off() -> None:
    text = with_made("torch.amp.GradScaler('cpu')", "bfloat16")
    made = with_made("torch.amp.GradScaler('cpu', enabled=False)", "bfloat16")
    assert observed("AMP114", HEAD + text, "scaler.step") == HEAD + made
    two = HEAD + text + "other = torch.amp.GradScaler('cpu')\n"
    assert observed("AMP114", two, "scaler.step") == two


# A step through it ---------------------------------------------------------------------------------------------------


def test_one_object_is_unscaled_and_stepped() -> None:
    text = "import torch\nscaler = torch.amp.GradScaler()\nscaler.unscale_(outer)\nscaler.step(outer.inner)\n"
    made = observed("AMP112", text, "scaler.step", divided="unscale_")
    assert made == text.replace("unscale_(outer)", "unscale_(outer.inner)")
    both = text + "scaler.step(outer)\n"
    assert observed("AMP112", both, "scaler.step(outer.inner)", divided="unscale_") == both


SCHEDULED = """\
warm = torch.optim.lr_scheduler.LambdaLR(optimizer, f)
slow = torch.optim.lr_scheduler.StepLR(optimizer, 9)
for i, (x, y) in enumerate(loader):
    scale = 2
    scaler.scale(scale * net(x).mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    warm.step()
    if i > 9:
        slow.step()
"""


def test_schedules_wait_for_steps_that_were_made() -> None:
    made = body("AMP116", SCHEDULED, SCALER)
    assert "    scale_before = scaler.get_scale()\n    scaler.step(optimizer)\n    scaler.update()\n" in made
    assert "    if scaler.get_scale() >= scale_before:\n        warm.step()\n" in made
    assert "    if i > 9:\n        if scaler.get_scale() >= scale_before:\n            slow.step()\n" in made


def test_lines_at_a_files_own_level_are_indented_as_its_blocks_are() -> None:
    tabs = SCALER + SCHEDULED.replace("    ", "\t")
    made = edited("AMP116", tabs)
    assert "\tif scaler.get_scale() >= scale_before:\n\t\twarm.step()\n" in made
    compile(made, FILE, "exec")


def test_a_schedule_is_left_that_steps_before_the_scale_is_settled() -> None:
    early = SCHEDULED.replace("    scaler.update()\n    warm.step()\n", "    warm.step()\n    scaler.update()\n")
    assert is_left("AMP116", early, SCALER)
    assert is_left("AMP116", SCHEDULED.replace("    warm.step()", "    print(1); warm.step()"), SCALER)


UNSCALED = """\
for fold in range(4):
    model = nn.Linear(4, 4)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, (x, y) in enumerate(loader):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x).mean()
        loss.backward(retain_graph=False)
        if i % 4 == 3:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            sgd.step()
            sgd.zero_grad()
"""


def test_a_step_gets_a_scaler() -> None:
    made = body("AMP115", UNSCALED)
    changed = {
        "lr=0.1)\n    for i": 'lr=0.1)\n    scaler = torch.amp.GradScaler("cuda")\n    for i',
        "loss.backward(": "scaler.scale(loss).backward(",
        "            nn.utils": "            scaler.unscale_(sgd)\n            nn.utils",
        "sgd.step()\n": "scaler.step(sgd)\n            scaler.update()\n",
    }
    expected = UNSCALED
    for old, new in changed.items():
        expected = expected.replace(old, new)
    assert made == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("            sgd.step()", "            print(model.weight.grad)\n            sgd.step()"),
        ("            sgd.step()", "            sgd.step(); print(1)"),
        ("        if i % 4 == 3:\n            nn.utils", "        nn.utils.clip_grad_norm_(model, 1)\n"
         "        if i % 4 == 3:\n            nn.utils"),
        ("loss.backward(retain_graph=False)", "loss.backward(retain_graph=True)\n        loss.backward()"),
        ("    sgd = ", "    if fold:\n        sgd = "),
    ],
)  # fmt: skip
def test_a_step_of_another_shape_gets_no_scaler(old: str, new: str) -> None:
    assert is_left("AMP115", UNSCALED.replace(old, new))


THREADED = """\
import threading


def work(x, out):
    if x is None:
        return
    z = net(x)
    out.append(
        net(z)
    )
    print("done")


def step(x, out):
{dtype}    with torch.autocast("cpu", dtype={name}):
        thread = threading.Thread(target=work, args=(x, out))
        thread.start()
"""


def test_a_region_is_opened_in_the_thread_too() -> None:
    made = body("AMP208", THREADED.format(dtype="", name="torch.bfloat16"))
    assert (
        '    with torch.autocast("cpu", dtype=torch.bfloat16):\n        z = net(x)\n        out.append(\n'
        '            net(z)\n        )\n    print("done")\n'
    ) in made
    assert is_left("AMP208", THREADED.format(dtype="    half = torch.bfloat16\n", name="half"))


# AMP111 --------------------------------------------------------------------------------------------------------------

RESUMED = """\
import os
if os.path.exists("c.pt"):
    state = torch.load("c.pt")
    optimizer.load_state_dict(state['opt'])
for x, y in loader:
    with torch.autocast("cuda"):
        loss = net(x).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
{save}
"""


@pytest.mark.parametrize(
    ("save", "made"),
    [
        ("torch.save({'opt': optimizer.state_dict(), 'x': 1}, 'c.pt')",
         "torch.save({'opt': optimizer.state_dict(), 'scaler': scaler.state_dict(), 'x': 1}, 'c.pt')"),
        ("torch.save({\n    'opt': optimizer.state_dict()\n}, 'c.pt')",
         "torch.save({\n    'opt': optimizer.state_dict(),\n    'scaler': scaler.state_dict()\n}, 'c.pt')"),
        ("torch.save(dict(opt=optimizer.state_dict()), 'c.pt')",
         "torch.save(dict(opt=optimizer.state_dict(), scaler=scaler.state_dict()), 'c.pt')"),
        ("kept = {}\nkept['opt'] = optimizer.state_dict()\ntorch.save(kept, 'c.pt')",
         "kept = {}\nkept['opt'] = optimizer.state_dict()\nkept['scaler'] = scaler.state_dict()\n"
         "torch.save(kept, 'c.pt')"),
    ],
)  # fmt: skip
def test_the_scalers_state_is_kept_beside_its_optimizers(save: str, made: str) -> None:
    loaded = "    optimizer.load_state_dict(state['opt'])\n"
    kept = f"{loaded}    if state.get('scaler'):\n        scaler.load_state_dict(state['scaler'])\n"
    assert body("AMP111", RESUMED.format(save=save), SCALER) == RESUMED.format(save=made).replace(loaded, kept)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("state['opt']", "state['other']"),
        ("state['opt']", "read('c.pt')"),
        ("torch.load", "torch.load  # }\n    scaler = torch.load"),
        ("    optimizer.load_state_dict(state['opt'])\n", ""),
    ],
)
def test_a_scalers_state_is_left_out_where_it_could_not_be_loaded(old: str, new: str) -> None:
    text = RESUMED.format(save="torch.save({'opt': optimizer.state_dict()}, 'c.pt')").replace(old, new)
    assert edited("AMP111", SCALER + text) == SCALER + text


def test_a_scaler_that_may_not_be_there_is_not_saved() -> None:
    head = SCALER.replace("scaler = ", "if amp:\n    scaler = ")
    text = RESUMED.format(save="torch.save({'opt': optimizer.state_dict()}, 'c.pt')")
    assert edited("AMP111", head + text) == head + text
