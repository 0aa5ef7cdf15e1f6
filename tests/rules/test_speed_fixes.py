"""Edits of faults of speed from source alone: what they write, and the shapes in which none is made."""

from __future__ import annotations

import textwrap

import pytest

from torchvet.fixing.edits import apply
from torchvet.rules import rule
from torchvet.source.model import SourceFile

FILE = "train.py"


def fixed(code: str, text: str) -> str:
    """The text with all edits of a rule made: they parse, and leave the rule nothing to mend."""
    found = [f for f in rule(code).in_source(SourceFile(FILE, text)) if f.remedy.edits]
    after = apply({FILE: text}, found)[0][FILE]
    assert not [f for f in rule(code).in_source(SourceFile(FILE, after)) if f.remedy.edits]
    return after


def filled(template: str, **parts: str) -> str:
    """A template with parts in the places of its `{names}`, all their lines as far to the right."""
    lines = []
    for line in textwrap.dedent(template).splitlines():
        only = line.strip()
        part = parts.get(only[1:-1]) if only.startswith("{") and only.endswith("}") else None
        margin = line[: len(line) - len(line.lstrip())]
        lines.append(line.format(**parts) if part is None else textwrap.indent(part, margin))
    return "\n".join(lines) + "\n"


def new_lines(code: str, text: str) -> list[str]:
    """The lines of the mended text that the text has not, in their order."""
    return [line.strip() for line in fixed(code, text).splitlines() if line not in text.splitlines()]


WINDOWS = """
    import torch
    from torch.nn.parallel import DistributedDataParallel as DDP

    def train(net, loader, optimizer, n, last_one):
        {wrap}
        for epoch in range(3):
            for i, (x, y) in {over}:
                {pass_}
                if {test}:
                    optimizer.step()
                    optimizer.zero_grad()
    """
PASS = "loss = (model(x) - y).pow(2).mean() / n\nloss.backward()"
PLAIN = {"wrap": "model = DDP(net)", "over": "enumerate(loader)", "pass_": PASS, "test": "(i + 1) % n == 0"}
HELD = "with contextlib.nullcontext() if (i + 1) % n == 0 else model.no_sync():"


def windows(**other: str) -> str:
    return filled(WINDOWS, **{**PLAIN, **other})


@pytest.mark.parametrize(
    ("other", "head"),
    [
        ({}, HELD),
        ({"test": "(i + 1) % n == 0 or i + 1 == len(loader)"},
         "with contextlib.nullcontext() if (i + 1) % n == 0 or i + 1 == len(loader) else model.no_sync():"),
        ({"pass_": "with torch.autocast('cuda'):\n    loss = model(x).mean()\n\n"
                   "# scaled by hand\n(loss / n).backward()"}, HELD),
        ({"wrap": "model = net\nif last_one:\n    model = DDP(net)"},
         "with contextlib.nullcontext() if (i + 1) % n == 0 or not isinstance(model, DDP) else model.no_sync():"),
        ({"over": "tqdm(enumerate(loader))", "pass_": "x = x.cuda()\n" + PASS}, HELD),
        # What a pass is, or whether it is the last one, is not sure.
        ({"pass_": PASS + "\nn = n + 0"}, ""),
        ({"pass_": "if i:\n    loss = model(x).mean()\n    loss.backward()"}, ""),
        ({"pass_": "try:\n    model(x).mean().backward()\nfinally:\n"
                   "    pass"}, ""),
        ({"pass_": PASS + "\nshown = model(x)"}, ""),
        ({"pass_": 'note = """a\nb"""\n' + PASS}, HELD),
        ({"pass_": 'loss = model(x).mean()\nnote = """a\nb"""\nloss.backward()'}, HELD),  # the string stays as it is
        ({"pass_": "loss = model(x).mean(); loss.backward()"}, ""),
        ({"wrap": "model = DDP(net, static_graph=True)"}, ""),
        ({"test": "(i + 1) % n == 0 and last_one()"}, ""),
    ],
)  # fmt: skip
def test_gradients_are_held_back_until_the_last_pass(other: dict[str, str], head: str) -> None:
    text = windows(**other)
    lines = new_lines("DST105", text)
    assert [line for line in lines if line.startswith("with contextlib")] == ([head] if head else [])
    assert ("import contextlib" in lines) is bool(head)


def test_passes_of_a_counted_inner_loop_and_other_indentation() -> None:
    text = (
        "import contextlib\nfrom torch.nn.parallel import DistributedDataParallel\n\n"
        "class Trainer:\n\tdef __init__(self, net, optimizer, n):\n\t\tself.n, self.optimizer = n, optimizer\n"
        "\t\tself.net = DistributedDataParallel(net)\n\n\tdef fit(self, batches):\n\t\tfor batch in batches:\n"
        "\t\t\tself.optimizer.zero_grad()\n\t\t\tfor micro_step in range(self.n):\n"
        "\t\t\t\tloss = self.net(batch[micro_step]).mean()\n\n\t\t\t\t(loss / self.n).backward()\n"
        "\t\t\tself.optimizer.step()\n"
    ).replace("\n", "\r\n")
    after = fixed("DST105", text)
    assert "\t\t\t\twith contextlib.nullcontext() if micro_step == self.n - 1 else self.net.no_sync():\r\n" in after
    assert (
        "\t\t\t\t\tloss = self.net(batch[micro_step]).mean()\r\n\r\n\t\t\t\t\t(loss / self.n).backward()\r\n" in after
    )
    assert after.count("import contextlib") == 1 and "\n" not in after.replace("\r\n", "")
    assert fixed(
        "DST105", text.replace("\t\t\t\t(loss", "\t\t\t\tif not loss:\r\n\t\t\t\t\tbreak\r\n\t\t\t\t(loss")
    ) == (text.replace("\t\t\t\t(loss", "\t\t\t\tif not loss:\r\n\t\t\t\t\tbreak\r\n\t\t\t\t(loss"))


STEP = """
    import torch
    from torch import nn
    import torch.nn.functional as F

    def train(model, optimizer, loader, device, width, keep):
        {before}
        for x, y in loader:
            {top}
            loss = F.mse_loss({given}, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            {end}
        {after}
    """
CALM = {"before": "seen = 0", "top": "mask = torch.ones(8, 8)", "given": "model(x) * mask", "end": "seen += 1",
        "after": "return seen"}  # fmt: skip


@pytest.mark.parametrize(
    ("other", "put"),
    [
        ({}, ["mask = torch.ones(8, 8)"]),
        ({"top": "mask = torch.ones(width, device=device)"}, ["mask = torch.ones(width, device=device)"]),
        ({"top": "mask = torch.full((8, 8), 0.5, dtype=torch.half).tril()", "given": "model(x).masked_fill(mask, 0)"},
         ["mask = torch.full((8, 8), 0.5, dtype=torch.half).tril()"]),
        ({"given": "F.linear(model(x), weight=mask)"}, ["mask = torch.ones(8, 8)"]),
        # Something may write to it, keep it, or find another value in the name.
        ({"given": "model(x, mask)"}, []),
        ({"end": "keep.append(mask)"}, []),
        ({"end": "mask[0] = 2"}, []),
        ({"end": "view = mask[0]\nview += 1"}, []),
        ({"end": "mask.view(-1)[0] = 1"}, []),
        ({"end": "torch.add(x, x, out=mask)"}, []),
        ({"after": "return mask"}, []),
        ({"before": "mask = None"}, []),
        ({"top": "print(mask); mask = torch.ones(8, 8)"}, []),
        ({"top": "if len(x):\n    mask = torch.ones(8, 8)"}, []),
        ({"top": "mask = torch.ones(model.width)"}, []),
        ({"end": "later = lambda: mask"}, []),
    ],
)  # fmt: skip
def test_a_constant_is_made_before_the_loop(other: dict[str, str], put: list[str]) -> None:
    text = filled(STEP, **{**CALM, **other})
    after = fixed("OPS203", text)
    assert (after != text) is bool(put)
    for line in put:
        assert f"    {line}\n    for x, y in loader:\n" in after and after.count(line) == 1


GATHER = """
    import torch

    @torch.no_grad()
    def predict(model, loader, other):
        {start}
        {loop}
            {turn}
        {after}
    """
IN_TURNS = {"start": "found = torch.empty(0, 4)", "loop": "for x, y in loader:",
            "turn": "found = torch.cat([found, model(x).softmax(1)])", "after": "return found"}  # fmt: skip


@pytest.mark.parametrize(
    ("other", "lines"),
    [
        ({}, ["found = [torch.empty(0, 4)]", "found.append(model(x).softmax(1))", "found = torch.cat(found)"]),
        ({"turn": "out = model(x).sigmoid()\nfound = torch.cat((found, out), dim=0)"},
         ["found = [torch.empty(0, 4)]", "found.append(out)", "found = torch.cat(found, dim=0)"]),
        ({"turn": "if len(y):\n    found = torch.cat([found, y * 2], 0)"},
         ["found = [torch.empty(0, 4)]", "found.append(y * 2)", "found = torch.cat(found, 0)"]),
        ({"start": "found = None",
          "turn": "found = x * 2 if found is None else torch.cat([found, x * 2])"},
         ["found = []", "found.append(x * 2)", "found = torch.cat(found) if found else None"]),
        ({"start": "found = None",
          "turn": "if found is None:\n    found = x + 1\nelse:\n"
                  "    found = torch.cat([found, x + 1])"},
         ["found = []", "found.append(x + 1)", "found = torch.cat(found) if found else None"]),
        ({"loop": "for batch in loader:",
          "turn": 'y = batch["y"].to(other.device)\nfound = torch.cat([found, y], dim=0)'},
         ["found = [torch.empty(0, 4)]", "found.append(y)", "found = torch.cat(found, dim=0)"]),
        # The order is another, the part may be written to or be a part of something larger, or the name is read.
        ({"turn": "found = torch.cat([model(x).softmax(1), found])"}, []),
        ({"turn": "other.copy_(x)\nfound = torch.cat([found, other])"}, []),
        ({"turn": "out = model(x).exp()\nfound = torch.cat([found, out])\nout.zero_()"}, []),
        ({"turn": "found = torch.cat([found, model(x)[:, 0]])"}, []),
        ({"turn": "found = torch.cat([found, other.next()])"}, []),
        ({"loop": "model = torch.compile(model, mode='reduce-overhead')\nfor x, y in loader:"}, []),
        ({"turn": "found = torch.cat([found, x * 2], dim=len(y))"}, []),
        ({"start": "found = torch.empty(0, 4)\nprint(found.shape)\nshown = lambda: found"}, []),
        ({"start": "found = torch.empty(0, 4)\nkept = found"}, []),
        ({"start": "found: torch.Tensor = torch.empty(0, 4)"}, []),
        ({"start": "found = kept = torch.empty(0, 4)"}, []),
        ({"loop": "for epoch in range(9):\n  for x, y in loader:", "turn": "  " + IN_TURNS["turn"]}, []),
    ],
)  # fmt: skip
def test_parts_are_joined_once(other: dict[str, str], lines: list[str]) -> None:
    assert new_lines("OPS204", filled(GATHER, **{**IN_TURNS, **other})) == lines


def test_a_loop_in_a_try_joins_as_it_did() -> None:
    text = filled(GATHER, **IN_TURNS).replace("    for x", "    try:\n     for x")
    text = text.replace("    return", "    except ValueError:\n        pass\n    return")
    text = text.replace("        found = torch.cat", "         found = torch.cat")
    assert not new_lines("OPS204", text)


AVERAGE = """
    import copy
    import torch

    def follow(net, average, decay, shadow):
        {start}
        with torch.no_grad():
            for name, (p, q) in enumerate(zip(average.{all_}(), net.{all_}())):
                {line}
    """


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("p.data = p.data * decay + q.data * (1 - decay)", "p.data.mul_(decay).add_(q.data * (1 - decay))"),
        ("p.data = (1 - decay) * q.data + decay * p.data", "p.data.mul_(decay).add_((1 - decay) * q.data)"),
        ("p.data = p.data - 0.1 * q.grad", "p.data.sub_(0.1 * q.grad)"),
        ("p.data = p.data * decay  # slowly", "p.data.mul_(decay)  # slowly"),
        ("p.copy_(decay * p + (1 - decay) * q)", "p.mul_(decay).add_((1 - decay) * q)"),
        ("p.data = q.data - p.data * decay", ""),
        ("p.data = p.data * decay + p.data * q.data", ""),
        ("p.data = p.data / decay + q.data", ""),
        ("p.data = p.data * decay + q.data; print(p)", "p.data.mul_(decay).add_(q.data); print(p)"),
    ],
)
def test_an_average_is_kept_in_place(line: str, expected: str) -> None:
    text = filled(AVERAGE, start="pass", all_="parameters", line=line)
    assert new_lines("OPS207", text) == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("start", "all_"),
    [("for a in average.parameters():\n    a.data = net.weight.data", "parameters"), ("pass", "buffers")],
)
def test_what_may_be_shared_or_counted_in_whole_numbers_is_made_anew(start: str, all_: str) -> None:
    line = "p.data = p.data * decay + q.data * (1 - decay)"
    assert not new_lines("OPS207", filled(AVERAGE, start=start, all_=all_, line=line))


NORMS = """
    import torch

    def train(model, optimizer, loader, device, log):
        for x in loader:
            x = x.to(device)
            loss = model(x).mean()
            loss.backward()
            {norms}
            optimizer.step()
            optimizer.zero_grad()
            log(norm)
    """
TOTAL = "norm = 0.0\nfor p in model.parameters():\n    {}"


@pytest.mark.parametrize(
    ("norms", "lines"),
    [
        (TOTAL.format("norm += p.grad.norm().item() ** 2"), ["norm += p.grad.norm() ** 2", "norm = float(norm)"]),
        (TOTAL.format("norm += p.norm(2).item()"), ["norm += p.norm(2).detach()", "norm = float(norm)"]),
        ("norm = [p.grad.norm().item() for p in model.parameters()]",
         ["norm = torch.stack([p.grad.norm() for p in model.parameters()]).tolist()"]),
        (TOTAL.format("norm += p.grad.norm(dim=0).item()"), []),
        (TOTAL.format("norm += p.grad.view(1).item()"), []),
        (TOTAL.format("norm += p.grad.norm().item() * norm"), []),
        (TOTAL.format("norm += p.grad.norm().item()\n    log(norm)"), []),
        (TOTAL.replace("0.0", "x.sum()").format("norm += p.grad.norm().item()"), []),
        ("norm = [p.grad.norm().item() for p in model.parameters() if p.grad is not None]", []),
    ],
)  # fmt: skip
def test_numbers_of_parameters_are_read_once(norms: str, lines: list[str]) -> None:
    assert new_lines("OPS101", filled(NORMS, norms=norms)) == lines


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("y = model(x).cpu().clamp(0, 1).to(device)", "y = model(x).clamp(0, 1).to(device)"),
        ("y = (model(x) + 1).cpu().sort(dim=1).values.to(device)", "y = (model(x) + 1).sort(dim=1).values.to(device)"),
        ("y = model(x).detach().cpu().abs().cuda()", "y = model(x).detach().abs().cuda()"),
        ("y = torch.from_numpy(model(x).cpu().numpy().clip(0, 1)).to(device)", ""),
        ("y = model(x).cpu().clamp(min=table).to(device)", ""),
        ("y = (model(x).cpu() * table).to(device)", ""),
    ],
)
def test_what_torch_does_stays_on_the_device(line: str, expected: str) -> None:
    text = f"""
import torch

def train(model, optimizer, loader, device, table):
    for x in loader:
        {line}
        loss = y.mean()
        loss.backward()
        optimizer.step()
"""
    assert new_lines("OPS102", text) == ([expected] if expected else [])


@pytest.mark.parametrize("code", ["OPS101", "OPS102", "OPS203", "OPS204", "OPS207", "DST105", "DEV103"])
def test_line_ends_and_tabs_stay_what_they_are(code: str) -> None:
    text = rule(code).BAD
    after = fixed(code, text)
    assert after != text
    for old, new in (("\n", "\r\n"), ("    ", "\t")):
        assert fixed(code, text.replace(old, new)) == after.replace(old, new)
