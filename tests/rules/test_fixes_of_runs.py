"""Edits for what a run has found, on a line that source alone says nothing sure of."""

from __future__ import annotations

import textwrap
from typing import Any

import msgspec
import pytest

from torchvet.finding import About, DetailedFinding, Finding, Holder, Location, Related, Remedy
from torchvet.fixing.edits import apply
from torchvet.rules import rule
from torchvet.source.model import SourceFile

FILE = "train.py"


def fixed(code: str, text: str, at: str, **more: Any) -> str:
    """The text with the edits that a rule has for an observed finding on the line that holds `at`."""
    text = "import torch\nfrom torch import nn\n" + textwrap.dedent(text)
    line = next(n for n, one in enumerate(text.splitlines(), start=1) if at in one)
    holder = more.pop("holder", "")
    facts: dict[str, Any] = {"message": "", "cause": "", **more}  # no fix goes by words
    finding = DetailedFinding(
        code=code, name="x", severity="error", evidence="observed", location=Location(path=FILE, line=line),
        holder=Holder(name=holder, kind="local") if holder else None, remedy=Remedy(summary=""),
        **facts,
    )  # fmt: skip
    edits = list(rule(code).fixes(finding, SourceFile(FILE, text)))
    made = msgspec.structs.replace(finding, remedy=Remedy(summary="", edits=edits))
    after, _ = apply({FILE: text}, [made])
    old, new = text.splitlines(), after[FILE].splitlines()
    return "\n".join(one for one in new if one not in old) or ("" if old == new else "- only")


@pytest.mark.parametrize(
    ("code", "line", "holder", "expected"),
    [
        ("MEM101", "self.stats.total += loss", "trainer.stats.total", "self.stats.total += loss.detach()"),
        ("MEM101", "losses.append(a - b)", "losses", "losses.append((a - b).detach())"),
        ("MEM101", "records[name].append(output)", "records", "records[name].append(output.detach())"),
        ("MEM101", "history[step] = loss", "history", "history[step] = loss.detach()"),
        ("MEM101", "self.avg = 0.9 * self.avg + loss", "t.avg", "self.avg = (0.9 * self.avg + loss).detach()"),
        ("MEM101", "losses.append(loss.item())", "losses", ""),
        ("MEM101", "losses.append((loss, step))", "losses", ""),
        ("MEM101", "losses.append(Record(step, loss))", "losses", ""),
        ("MEM101", "losses.append(torch.Tensor(loss))", "losses", "losses.append(torch.Tensor(loss).detach())"),
        ("MEM101", "losses.extend(parts)", "losses", ""),
        ("MEM101", "others.append(loss)", "losses", ""),
        ("MEM101", "losses.append(Transition(state, loss))", "losses", ""),
        ("MEM112", "total = total + loss", "total", "total = total + loss.detach()"),
        ("MEM113", "curve.append(out[0].detach())", "curve", "curve.append(out[0].detach().clone())"),
        ("MEM108", "failures.append(error)", "failures", "failures.append(error.with_traceback(None))"),
        ("MEM108", "failures.append(str(error))", "failures", ""),
        ("MEM108", "failures.setdefault(k, []).append(error)", "guard.failures['a.b']",
         "failures.setdefault(k, []).append(error.with_traceback(None))"),
        ("MEM101", "grads[name].append(total)", "grads['0.weight']", "grads[name].append(total.detach())"),
        ("MEM101", 'self.n = getattr(self, "n", 0) + loss', "net.n",
         'self.n = (getattr(self, "n", 0) + loss).detach()'),
    ],
)  # fmt: skip
def test_what_is_stored(code: str, line: str, holder: str, expected: str) -> None:
    assert fixed(code, f"for step in range(9):\n    {line}\n", line, holder=holder).strip() == expected


AGENT = """
    class Agent:
        def __init__(self):
            self.net, self._value = nn.Linear(3, 3), None
            self.history = []

        def act(self, state):
            values = self.net(state)
            self._value = values.max(dim=1).values
            return values.argmax(dim=1)

        def remember(self, state, action, reward):
            {stored}

    agent = Agent()
    for step in range(9):
        agent.remember(x, agent.act(x), 1.0)
    """


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("self.history.append(Turn(state, reward, self._value))",
         "self.history.append(Turn(state, reward, self._value.detach()))"),
        ("self.history.append((reward, self.net(state).sum()))",
         "self.history.append((reward, self.net(state).sum().detach()))"),
        ("self.history.append({'v': self._value, 'r': reward, 'a': action})",
         "self.history.append({'v': self._value.detach(), 'r': reward, 'a': action})"),
        ("self.history.append(Turn(value=self._value, rewards=[reward]))",
         "self.history.append(Turn(value=self._value.detach(), rewards=[reward]))"),
        ("self.history.append(Turn(state, action))", ""),
        ("self.history.append((reward, len(self._value), self._value.tolist()))", ""),
    ],
)  # fmt: skip
def test_of_what_an_object_is_made_the_parts_with_a_graph_are_detached(stored: str, expected: str) -> None:
    assert fixed("MEM101", AGENT.format(stored=stored), stored, holder="agent.history").strip() == expected


@pytest.mark.parametrize(
    ("fills", "expected"),
    [
        ("out['loss'] += loss; out['mae'].append((p - y).abs().mean())",
         "out['loss'] += loss.detach(); out['mae'].append((p - y).abs().mean().detach())"),
        ("out['loss'] = loss; out['n'] = loss.item()", "out['loss'] = loss.detach(); out['n'] = loss.item()"),
        ("out['n'] = len(x)", ""),
        ("out = make(loss)", ""),
        ("out['loss'] = (loss +\n            p)", ""),
    ],
)  # fmt: skip
def test_what_goes_into_a_container_that_is_stored_whole_is_detached(fills: str, expected: str) -> None:
    text = f"""
    def run(net, loader, history):
        out = {{"loss": 0.0, "mae": []}}
        for x, y in loader:
            p = net(x)
            loss = (p - y).square().mean()
            {fills}
        history.append(out)
    """
    assert fixed("MEM101", text, "history.append(out)", holder="history").strip() == expected


def test_a_list_that_was_joined_to_one_tensor_is_no_container() -> None:
    text = """
    def finish_episode(policy, returns, losses):
        policy_loss = []
        for log_prob, gain in zip(policy.log_probs, returns):
            policy_loss.append(-log_prob * gain)
        policy_loss = torch.cat(policy_loss).sum()
        policy_loss.backward()
        losses.append(policy_loss)
    """
    found = fixed("MEM112", text, "losses.append", holder="losses")
    assert found.strip() == "losses.append(policy_loss.detach())"


def test_an_object_that_is_handed_in_is_made_of_detached_parts() -> None:
    text = AGENT.format(stored="self.memory.push(Turn(state, self._value))")
    stored = Related(role="stored", message="self.rows.append(turn)", path="memory.py", line=90)
    found = fixed("MEM101", text, "memory.push", holder="agent.memory.rows", related=[stored])
    assert found.strip() == "self.memory.push(Turn(state, self._value.detach()))"


MEMORY = """
    class Memory:
        def push(self, key, item):
            self.rows[key] = item

    memory = Memory()
    for step in range(9):
        memory.push(step, model(x).mean())
    """


@pytest.mark.parametrize(("path", "line"), [(FILE, 6), ("memory.py", 90)])
def test_what_is_handed_to_a_method_that_stores_it(path: str, line: int) -> None:
    stored = Related(role="stored", message="self.rows[key] = item", path=path, line=line)
    found = fixed("MEM101", MEMORY, "memory.push", holder="memory.rows", related=[stored])
    one_tensor = "memory.push(step, model(x).mean().detach())"
    assert found.strip() == (one_tensor if path == FILE else "")


LOOP = """
    for step in range(9):
        output, state = model(x, state)
        loss = criterion(output, y)
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
    """
TUPLE = About("tuple")


@pytest.mark.parametrize(
    ("seen", "cut"),
    [(About(), "state = state.detach()"), (TUPLE, "state = tuple(t.detach() for t in state)")],
)
def test_state_is_cut_after_its_backward(seen: About, cut: str) -> None:
    found = fixed("MEM103", LOOP, "output, state", holder="state", about=seen)
    assert [one.strip() for one in found.splitlines()] == ["loss.backward()", cut]


ARMS = """
    def train(batches):
        hidden = model.init_hidden(8)
        for x, y in batches:
            if kind == "transformer":
                output = model(x)
            else:
                output, hidden = model(x, hidden)
            loss = criterion(output, y)
            loss.backward(retain_graph=True)
    """


def test_state_that_one_arm_alone_binds_is_cut_there_before_it_is_read() -> None:
    found = fixed("MEM103", ARMS, "output, hidden", holder="hidden", about=TUPLE)
    cut = "            hidden = tuple(t.detach() for t in hidden)"
    assert found.splitlines() == [cut, "        loss.backward()"]
    none_first = ARMS.replace("model.init_hidden(8)", "None")
    assert fixed("MEM103", none_first, "output, hidden", holder="hidden", about=TUPLE) == ""


EPOCH = """
    def train(epoch):
        model.train()
        optimizer.zero_grad()
        output = model(features)
        loss = criterion(output, labels)
        loss.backward()
        optimizer.step()
        if not fast:
            model.eval()
            output = model(held_out)
        print(criterion(output, wanted).item())
    """


def test_an_evaluation_within_a_training_function_is_taken_off_the_graph_by_itself() -> None:
    found = fixed("MEM104", EPOCH, "model(held_out)")
    assert found.splitlines() == ["        with torch.no_grad():", "            output = model(held_out)"]
    assert fixed("MEM104", EPOCH, "output = model(features)") == ""
    assert fixed("MEM104", EPOCH.replace("model.eval()", "model.train()"), "model(held_out)") == ""
    backward_later = EPOCH.replace("loss.backward()", "pass") + "    loss.backward()\n"
    assert fixed("MEM104", backward_later, "model(held_out)") == ""


def test_state_that_is_computed_from_itself_is_cut_where_it_is_read() -> None:
    text = "class M(nn.Module):\n    def forward(self, x):\n        self.memory = 0.9 * self.memory + self.write(x)\n"
    found = fixed("MEM103", text, "0.9", holder="model.memory")
    assert found.strip() == "self.memory = 0.9 * self.memory.detach() + self.write(x)"
    text = text.replace("0.9 * self.memory + self.write(x)", "self.rnn(x, self.memory)")
    found = fixed("MEM103", text, "self.rnn", holder="model.memory")
    assert found.strip() == "self.memory = self.rnn(x, self.memory.detach())"


def test_state_is_left_alone_where_several_backwards_may_need_it() -> None:
    text = LOOP.replace("optimizer.step()", "other.backward()")
    assert fixed("MEM103", text, "output, state", holder="state") == ""


FUNCTION = """
    class Gate(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, power):
            gate = torch.sigmoid(x)
            ctx.x = x
            ctx.gate = gate
            ctx.power = power
            return x * gate

        @staticmethod
        def backward(ctx, grad):
            x, gate = ctx.x, ctx.gate
            return grad * gate * (1 + x), None
    """


def test_tensors_on_ctx_are_saved_for_backward_and_numbers_stay() -> None:
    found = fixed("MEM107", FUNCTION, "ctx.x = x")
    assert [one.strip() for one in found.splitlines()] == [
        "ctx.save_for_backward(x, gate)", "x, gate = ctx.saved_tensors[0], ctx.saved_tensors[1]",
    ]  # fmt: skip
    assert fixed("MEM107", FUNCTION.replace("ctx.x = x", "ctx.save_for_backward(x)"), "ctx.gate = gate") == ""
    assert fixed("MEM107", FUNCTION.replace("x, gate = ctx.x", "ctx.x = None; x, gate = ctx.x"), "ctx.x = x") == ""


def test_a_cache_is_dropped_where_nothing_asks_for_its_figures() -> None:
    text = "import functools\n\n@functools.lru_cache(maxsize=None)\ndef encode(x):\n    return x.view(-1)\n"
    assert fixed("MEM111", text, "lru_cache") == "- only"
    assert fixed("MEM111", text + "encode.cache_clear()\n", "lru_cache") == ""


def test_an_evaluation_is_decorated() -> None:
    text = "def evaluate(model, batches):\n    model.eval()\n    for x in batches:\n        model(x)\n"
    assert fixed("MEM104", text, "model(x)") == "@torch.no_grad()"


STEP = """
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.step()
    """


def test_a_backward_that_is_missing_is_put_in() -> None:
    assert fixed("TRN104", STEP, "optimizer.step()").strip() == "loss.backward()"
    assert fixed("TRN104", STEP.replace("optimizer.zero_grad()", "loss.backward()"), "optimizer.step()") == ""


def test_gradients_are_cleared_after_the_step() -> None:
    assert fixed("TRN101", STEP.replace("zero_grad", "state_dict"), "optimizer.step()").strip() == (
        "optimizer.zero_grad()"
    )


def test_a_scaler_is_updated_after_its_step() -> None:
    text = "def step(self, loss):\n    self.scaler.scale(loss).backward()\n    self.scaler.step(self.optimizer)\n"
    assert fixed("AMP105", text, "scaler.step").strip() == "self.scaler.update()"
    assert fixed("AMP105", text + "    self.scaler.update()\n", "scaler.step") == ""


CLIPPING = """
    class Precision:
        def __init__(self):
            self.scaler = torch.amp.GradScaler("cuda")

        def clip(self, params):
            return nn.utils.clip_grad_norm_(params, 1.0)

        def advance(self, optimizer, params):
            params = list(params)
            CLIPS
            self.scaler.step(optimizer)
            self.scaler.update()
    """


@pytest.mark.parametrize(
    ("clips", "expected"),
    [
        ("self.clip(params)", "    self.scaler.unscale_(optimizer)"),
        ("self.clip(params)\n            self.scaler.unscale_(optimizer)", "moved"),
        ("self.clip(params)\n            self.scaler.unscale_(self.optimizer)", ""),
        ("if len(params) > 3:\n                self.clip(params)", "    self.scaler.unscale_(optimizer)"),
    ],
)
def test_gradients_are_divided_before_a_function_clips_them(clips: str, expected: str) -> None:
    text = textwrap.dedent(CLIPPING.replace("CLIPS", clips))
    step = 2 + next(n for n, one in enumerate(text.splitlines(), 1) if "scaler.step" in one)
    found = fixed("AMP101", text, "clip_grad", related=[Related(role="stepped", message="", path=FILE, line=step)])
    assert found == ("- only" if expected == "moved" else expected and f"    {expected}")


@pytest.mark.parametrize(
    ("line", "operator", "expected"),
    [
        ("d = (a - b).square().sum(1).sqrt()", "sqrt", ".sum(1).add(1e-12).sqrt()"),
        ("d = torch.sqrt(a + b)", "sqrt", "torch.sqrt((a + b).add(1e-12))"),
        ("h = -(p * p.log()).sum()", "log", "p.clamp(min=1e-12).log()"),
        ("u = x / x.norm(dim=1, keepdim=True)", "div", "x.norm(dim=1, keepdim=True).clamp(min=1e-12)"),
        ("a = torch.acos(c)", "acos", "torch.acos(c.clamp(-1 + 1e-6, 1 - 1e-6))"),
        ("u = x / x.sum()", "div", ""),
        ("u = (x * mask).sum(1) / mask.sum(1)", "div", "/ mask.sum(1).clamp(min=1e-6)"),
        ("u = x.sum() / torch.sum(y > 0)", "div", "/ torch.sum(y > 0).clamp(min=1e-6)"),
        ("u = x / (y / valid.float().sum())", "div", ""),
        ("u = x / mask.sum().item()", "div", ""),
        ("u = x.exp()", "exp", ""),
    ],
)
def test_an_operand_is_kept_away_from_zero(line: str, operator: str, expected: str) -> None:
    found = fixed("NUM101", line + "\n", line, about=About("zero-by-zero", (operator,)))
    assert expected in found and bool(found) is bool(expected)


def test_a_count_is_kept_from_zero_where_it_has_a_name() -> None:
    text = "def mean(x, mask):\n    count = mask.to(x.dtype).sum(1)\n    return x.sum(1) / count\n"
    seen = About("zero-by-zero", ("div",))
    found = fixed("NUM101", text, "return", about=seen)
    assert found == "    return x.sum(1) / count.clamp(min=1e-6)"
    twice = text.replace("    return", "    count = len(x)\n    return")
    assert fixed("NUM101", twice, "return", about=seen) == ""


def test_a_negative_logarithm_is_no_matter_of_zero() -> None:
    assert fixed("NUM101", "y = x.log()\n", "y = ", about=About("log-of-negative", ("log",))) == ""


def test_an_eps_that_half_precision_lacks_is_raised() -> None:
    line = "y = x / (x.norm(dim=1) + 1e-8) * 0.5"
    assert fixed("NUM103", line + "\n", line) == line.replace("1e-8", "1e-4")
    assert fixed("NUM103", "y = x + eps\n", "y = x") == ""


def test_an_update_comes_after_the_loop_over_the_optimizers() -> None:
    text = "for epoch in range(3):\n    for one in (d_opt, g_opt):\n        scaler.step(one)\n        scaler.update()\n"
    assert fixed("AMP109", text, "scaler.update") == "    scaler.update()"
    alone = text.replace("        scaler.step(one)\n", "")
    assert fixed("AMP109", alone, "scaler.update") == ""


def test_a_function_that_overflows_is_computed_in_float32() -> None:
    found = fixed("AMP206", FUNCTION, "gate = torch", device="cpu")
    assert [one.strip() for one in found.splitlines()] == [
        '@torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)',
        '@torch.amp.custom_bwd(device_type="cpu")',
    ]
    assert fixed("AMP206", FUNCTION.replace("sigmoid(x)", "sigmoid(x.float())"), "gate = torch", device="cpu") == ""


KEPT = """
    class Trainer:
        def __init__(self):
            self.outputs = {begun}

        def step(self, x):
            self.outputs.append(x.detach())

        def show(self):
            {read}
    """
WINDOWS = [
    ("[]", "return self.outputs[-1]", "import collections|        self.outputs = collections.deque(maxlen=1)"),
    ("list()", "return self.outputs[-1] - self.outputs[-3]",
     "import collections|        self.outputs = collections.deque(maxlen=3)"),
    ("[]", "return self.outputs[-1] if self.outputs else None",
     "import collections|        self.outputs = collections.deque(maxlen=1)"),
    ("[]", "return self.outputs[0]", ""),
    ("[]", "return self.outputs[-2:]", "        del self.outputs[:-2]"),
    ("[]", "return torch.stack(self.outputs)", ""),
    ("[]", "return len(self.outputs)", ""),
    ("[]", "return [o for o in self.outputs]", ""),
    ("other", "return self.outputs[-1]", ""),
    ("[]", "self.outputs.clear()", ""),
]  # fmt: skip


@pytest.mark.parametrize(("begun", "read", "expected"), WINDOWS)
def test_a_list_is_as_long_as_what_is_read_of_it(begun: str, read: str, expected: str) -> None:
    text = KEPT.format(begun=begun, read=read)
    found = fixed("MEM102", text, "self.outputs.append", holder="trainer.outputs")
    assert found.replace("\n", "|") == expected


def test_a_line_that_stores_what_nothing_reads_is_taken_out() -> None:
    text = """
        class Listener:
            def __init__(self):
                self.received, self.means = [], []
                self.kept = []

            def hear(self, step, features):
                self.means.append(features.mean().item())
                self.kept.append((step, features))
        """
    assert fixed("MEM102", text, "self.kept.append", holder="listener.kept") == "- only"
    drawn = text.replace("(step, features))", "self.next())")
    assert fixed("MEM102", drawn, "self.kept.append", holder="listener.kept") == ""


def test_a_dict_of_lists_keeps_what_is_shown() -> None:
    text = """
        from collections import defaultdict, deque
        records = defaultdict(list)

        def hook(module, inputs, output):
            records["first"].append(output)

        def report():
            return [f"{name} {values[-1].mean()}" for name, values in records.items()]
        """
    found = fixed("MEM106", text, "records[", holder="records")
    assert found == "records = defaultdict(lambda: deque(maxlen=1))"
    assert fixed("MEM106", text.replace("values[-1]", "values[0]"), "records[", holder="records") == ""


def test_a_hook_of_every_step_goes_before_the_next() -> None:
    text = """
        class Masked:
            def mask(self, keep):
                self.layer.weight.register_hook(lambda gradient: gradient * keep)
        """
    found = fixed("MEM106", text, "register_hook", holder="keep")
    assert found.splitlines() == [
        '        if hasattr(self, "hook_handle"):',
        "            self.hook_handle.remove()",
        "        self.hook_handle = self.layer.weight.register_hook(lambda gradient: gradient * keep)",
    ]
    once = text.replace("def mask", "def __init__")
    assert fixed("MEM106", once, "register_hook", holder="keep") == ""


def test_a_hook_registered_in_a_loop_goes_at_its_end() -> None:
    text = """
        for x in batches:
            layer.register_forward_hook(lambda module, inputs, output: seen(output))
            layer(x).sum().backward()
        """
    found = fixed("MEM106", text, "register_forward_hook", holder="seen")
    assert [line.strip() for line in found.splitlines()] == [
        "handle = layer.register_forward_hook(lambda module, inputs, output: seen(output))", "handle.remove()",
    ]  # fmt: skip
    kept = text.replace("    layer.register", "    hook = layer.register")
    assert fixed("MEM106", kept, "register_forward_hook", holder="seen") == ""


PASSES = """
    def train(model, batches):
        for x in batches:
            output = model(x)
            loss = output.sum()
            loss.backward()
            if verbose:
                print(loss)
        return model
    """


def test_what_the_last_pass_bound_is_deleted_at_the_end_of_the_loop() -> None:
    seen = About(operands=("output", "loss"))
    assert fixed("MEM202", PASSES, "output = ", holder="output", about=seen).strip() == "del output, loss"
    for change in (("return model", "return loss"), ("output = model(x)", "if x: output = model(x)"),
                   ("for x in batches:", "for x in batches:\n            print(loss)")):  # fmt: skip
        assert fixed("MEM202", PASSES.replace(*change), "output = ", holder="output", about=seen) == ""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("scores = scores + (1 - seen) * -1e9", "scores = scores + (1 - seen) * (torch.finfo(scores.dtype).min / 2)"),
        ("scores += mask * -1e9", "scores += mask * (torch.finfo(scores.dtype).min / 2)"),
        ("scores = scores + bias + mask * -1e9", ""),
        ("scores = scores + (1 - seen) * -100.0", ""),
        ("scores = scores + (1 - seen) * NEVER", ""),
    ],
)
def test_a_mask_constant_leaves_room_for_a_score(line: str, expected: str) -> None:
    assert fixed("NUM105", f"{line}\n", line).strip() == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("loss = F.mse_loss(out, y.half())", "loss = F.mse_loss(out.float(), y.float())"),
        ("loss = F.cross_entropy(out, y)", "loss = F.cross_entropy(out.float(), y)"),
        ("loss = F.mse_loss(out.half(), y)", "loss = F.mse_loss(out.float(), y)"),
        ("loss = F.mse_loss(out, y) + F.l1_loss(out, y)", ""),
        ("loss = F.relu(out)", ""),
    ],
)
def test_a_loss_is_given_float32(line: str, expected: str) -> None:
    text = f"import torch.nn.functional as F\nout = model(x)\n{line}\n"
    assert fixed("AMP201", text, line).strip() == expected


OFF = """
    with torch.autocast("cpu", dtype=torch.float16):
        features = model(x)
        with torch.autocast("cpu", enabled=False):
            shift = features.mean()
            spread = torch.exp(-features.square().sum(1) - shift)
    """


def test_what_comes_into_a_region_that_is_off_is_made_float32() -> None:
    region = Related(role="region", message="", path=FILE, line=6)
    found = fixed("AMP205", OFF, "spread = ", related=[region])
    assert found.strip() == "spread = torch.exp(-features.float().square().sum(1) - shift)"
    assert fixed("AMP205", OFF, "spread = ") == ""


TOTAL = """
    def total(parts):
        return sum(part.item() for part in parts)

    for x in batches:
        {line}
    """


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("loss = torch.tensor(total(x), requires_grad=True)",
         "return sum(part for part in parts)|loss = total(x)"),
        ("loss = torch.tensor(a.item() + b.item(), requires_grad=True)", "loss = a + b"),
        ("loss = torch.tensor(3.0, requires_grad=True)", ""),
        ("loss = torch.tensor(other(x), requires_grad=True)", ""),
        ("y = torch.from_numpy(x.detach().numpy() * 3.0 + 1.0)", "y = (x * 3.0 + 1.0)"),
        ("y = torch.from_numpy(x.detach().cpu().numpy())", "y = x"),
        ("y = torch.from_numpy(np.sort(x.detach().numpy()))", ""),
        ("loss = loss + penalty.item()", "loss = loss + penalty"),
        ("logits = scores.clone().detach()", "logits = scores.clone()"),
        ("total = first.detach() + second.detach()", ""),
        ("shown = scores.detach().mean()", ""),
    ],
)  # fmt: skip
def test_what_left_the_graph_stays_in_it(line: str, expected: str) -> None:
    found = fixed("TRN106", TOTAL.format(line=line), line)
    assert "|".join(one.strip() for one in found.splitlines()) == expected


def corrected(code: str, text: str) -> str:
    """The text with the edits of a rule's only suspicion."""
    text = "import torch\nfrom torch import nn\n" + textwrap.dedent(text)
    (found,) = rule(code).in_source(SourceFile(FILE, text))
    after, _ = apply({FILE: text}, [found])
    return after[FILE]


EVERY_MICRO_STEP = """
def train(model, loader, optimizer, scaler):
    for step, (x, y) in enumerate(loader):
        scaler.scale(nn.functional.mse_loss(model(x), y) / 4).backward()
        scaler.unscale_(optimizer)
        {between}
        if step % 4 == 3:
            scaler.step(optimizer)
            optimizer.zero_grad()
        scaler.update()
"""


def test_what_unscales_and_clips_waits_for_the_step_with_the_update() -> None:
    clip = "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    after = corrected("AMP104", EVERY_MICRO_STEP.format(between=clip))
    assert [line.strip() for line in after.splitlines()[6:]] == [
        "if step % 4 == 3:", "scaler.unscale_(optimizer)", clip, "scaler.step(optimizer)", "scaler.update()",
        "optimizer.zero_grad()",
    ]  # fmt: skip
    other = EVERY_MICRO_STEP.format(between="log(model)")
    assert corrected("AMP104", other).splitlines()[2:] == other.splitlines()


CLIPPED_BY_PARTS = """
class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cpu")

    def clip(self, part, most):
        self.scaler.unscale_({given})
        nn.utils.clip_grad_norm_(part.parameters(), most)

    def fit(self, loader):
        for x, y in loader:
            self.optimizer.zero_grad()
            self.step(x, y)

    def step(self, x, y):
        self.scaler.scale(nn.functional.mse_loss(self.model(x), y)).backward()
        self.clip(self.model.body, 1.0)
        self.clip(self.model.head, 0.1)
        self.scaler.step(self.optimizer)
        self.scaler.update()
"""


def test_what_a_helper_unscales_each_time_is_unscaled_once_before_it() -> None:
    after = [line.strip() for line in corrected("AMP102", CLIPPED_BY_PARTS.format(given="self.optimizer")).splitlines()]
    first = after.index("self.clip(self.model.body, 1.0)")
    assert after[first - 1] == "self.scaler.unscale_(self.optimizer)"
    assert after.count("self.scaler.unscale_(self.optimizer)") == 1


@pytest.mark.parametrize(
    ("shapes", "line", "expected"),
    [
        ("(64, 1) and (64,)", "loss = self.loss(out, y)", "loss = self.loss(out.squeeze(-1), y)"),
        ("(64,) and (64, 1)", "loss = self.loss(y, out)", "loss = self.loss(y, out.squeeze(-1))"),
        ("(64, 1) and (64,)", "loss = self.loss(out, y) + other(out, y)", ""),
        ("(64, 1) and (64,)", "loss = self.loss(out, y, weight)", ""),
        ("(64, 1) and (64,)", 'err = self(batch["x"]) - batch["y"]', 'err = self(batch["x"]).squeeze(-1) - batch["y"]'),
        ("(64,) and (64, 1)", "err = (y - out) - 0.5", "err = (y - out.squeeze(-1)) - 0.5"),
        ("(64, 1) and (64,)", "err = (a - b) - (c - d)", ""),
        ("(64,) and (64, 1)", "err = (log(v) + (y - out) ** 2 / v).mean()", ""),
        ("(64, 1) and (64,)", "err = (weights * (out - y) ** 2).mean()", ""),
        ("(64, 1) and (64,)", "err = ((out - y) ** 2).mean()", "err = ((out.squeeze(-1) - y) ** 2).mean()"),
    ],
)
def test_a_column_is_squeezed_where_it_meets_a_row(shapes: str, line: str, expected: str) -> None:
    told = "smooth_l1_loss" if "loss(" in line else "sub"
    seen = About(told, tuple(shapes.strip("()").split(") and (")))
    assert fixed("MEM204", f"{line}\n", line, about=seen).strip() == expected


def test_an_empty_cache_goes_and_leaves_a_body() -> None:
    alone = "class Tidy:\n    def release(self):\n        torch.cuda.empty_cache()\n"
    assert fixed("MEM302", alone, "empty_cache").strip() == "pass"
    beside = "for x in y:\n    step(x)\n    torch.cuda.empty_cache()\n"
    assert fixed("MEM302", beside, "empty_cache") == "- only"


SPARSE = """
    table = nn.Embedding(1000, 8, sparse=True)
    rows = torch.optim.SparseAdam(table.parameters())
    dense = torch.optim.Adam(head.parameters())
    for x, y in batches:
        dense.zero_grad()
        nn.functional.mse_loss(head(table(x)), y).backward()
        rows.step()
        dense.step()
    """


def test_a_table_that_grows_is_cleared_where_source_misses_it() -> None:
    assert fixed("MEM116", SPARSE, "table = ", holder="table").strip() == "rows.zero_grad()"
    cleared = SPARSE.replace("dense.zero_grad()", "dense.zero_grad(); rows.zero_grad()")
    assert fixed("MEM116", cleared, "table = ", holder="table") == ""


SCHEDULED = """
class Fit:
    def __init__(self, net):
        self.net = net
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=9)

    def step(self, x, y):
        self.schedule.step()
        self.optimizer.zero_grad()
        nn.functional.mse_loss(self.net(x), y).backward()
        self.optimizer.step()

fit = Fit(nn.Linear(2, 1))
for x, y in batches:
    fit.step(x, y)
"""


def test_a_scheduler_in_a_function_that_is_one_step_follows_the_optimizer() -> None:
    after = [line.strip() for line in corrected("TRN109", SCHEDULED).splitlines()]
    assert after[after.index("self.optimizer.step()") + 1] == "self.schedule.step()"
    assert after.count("self.schedule.step()") == 1


def test_a_dict_of_layers_becomes_a_module_dict() -> None:
    text = """
    class Net(nn.Module):
        def __init__(self, names):
            super().__init__()
            self.heads = {{{key}: nn.Linear(4, 4) for name in names}}
    """
    assert "self.heads = nn.ModuleDict({name: nn.Linear" in corrected("DEV109", text.format(key="name"))
    assert "ModuleDict" not in corrected("DEV109", text.format(key="(name, 1)"))


def test_a_table_becomes_a_buffer() -> None:
    text = """
        class Positions(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.table = torch.sin(torch.arange(width))
        """
    found = fixed("DEV102", text, "self.table = ", holder="model.table")
    assert found.strip() == 'self.register_buffer("table", torch.sin(torch.arange(width)), persistent=False)'
    later = text.replace("__init__(self, width)", "build(self, width)")
    assert fixed("DEV102", later, "self.table = ", holder="model.table") == ""
    early = text.replace("super().__init__()", "pass")
    assert fixed("DEV102", early, "self.table = ", holder="model.table") == ""


@pytest.mark.parametrize(
    ("opened", "expected"),
    [
        ('torch.autocast("cuda", dtype=torch.bfloat16)', 'torch.autocast("cpu", dtype=torch.bfloat16)'),
        ('torch.autocast(device_type="cuda")', 'torch.autocast(device_type="cpu")'),
        ("torch.autocast(device.type)", ""),
    ],
)
def test_a_region_is_opened_for_the_device_that_was_seen(opened: str, expected: str) -> None:
    found = fixed("AMP207", f"with {opened}:\n    y = model(x)\n", "with ", about=About(operands=("cpu",)))
    assert found == (f"with {expected}:" if expected else "")


HALF = """
def train(model, loader, optimizer, scaler):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.half()).float(), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

model = nn.Sequential(nn.Linear(20, 4)).half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train(model, batches, optimizer, torch.amp.GradScaler("cpu"))
"""


def test_a_model_that_stays_in_fp32_is_given_fp32() -> None:
    after = corrected("AMP113", HALF)
    assert "model(x).float()" in after and "nn.Linear(20, 4))\n" in after and ".half()" not in after


TWICE = """
    class Net(nn.Module):
        def forward(self, x):
            return self.last(x).softmax(dim=1)

    loss = criterion(net(x), y)
    """


def test_a_softmax_that_a_run_has_seen_before_a_loss_goes() -> None:
    seen = Related(role="normalised", message="softmax", path=FILE, line=6)
    assert fixed("TRN108", TWICE, "loss = ", related=[seen]).strip() == "return self.last(x)"
    assert fixed("TRN108", TWICE, "loss = ") == ""


def test_a_softmax_that_may_be_a_module_of_a_class_elsewhere_stays() -> None:
    seen = Related(role="normalised", message="softmax", path=FILE, line=6)
    for call in ("self.softmax(self.last(x))", "ops.softmax(x, 1)"):
        text = TWICE.replace("self.last(x).softmax(dim=1)", call)
        assert fixed("TRN108", text, "loss = ", related=[seen]) == ""


ENDING = """
    class Critic(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.body = nn.Linear(4, width)
            {made}

        def forward(self, x):
            out = self.body(x)
            label = self.head(out)
            return out, label

    loss = criterion(net(x)[1], y)
    """


@pytest.mark.parametrize(
    ("made", "edited"),
    [
        ("self.head = nn.Sequential(nn.Linear(4, 9), nn.Softmax())", "self.head = nn.Sequential(nn.Linear(4, 9))"),
        ("self.head = nn.Sequential(*rows(width), nn.Softmax(dim=1),)", "self.head = nn.Sequential(*rows(width),)"),
        ("self.head = nn.Softmax(dim=-1)", "label = out"),
        ("self.head = nn.Sequential(nn.Linear(width, 9), nn.ReLU())", ""),
        ("self.head = nn.Sequential(nn.Softmax())", ""),
        ("self.head = make_head(width)", ""),
        ("self.head = nn.Sequential(nn.Linear(width, 9),  # scores\n                nn.Softmax())", ""),
    ],
)  # fmt: skip
def test_a_softmax_at_the_end_of_a_module_goes(made: str, edited: str) -> None:
    text = ENDING.format(made=made)
    line = next(n for n, one in enumerate(textwrap.dedent(text).splitlines(), start=1) if "self.head(out)" in one)
    seen = Related(role="normalised", message="softmax", path=FILE, line=line + 2)
    assert fixed("TRN108", text, "loss = ", related=[seen]).strip() == edited


GATED = """
class Unit(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 4)

    def forward(self, x):
        gate = torch.sigmoid(self.gate(x))
        {line}
        return gate * x

model, optimizer = Unit(), None
for x in batches:
    model(x).sum().backward()
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("gate.mul_(self.open)", "gate = gate.mul(self.open)"),
        ("gate += 0.1 if x.requires_grad else 0.2", "gate = gate + (0.1 if x.requires_grad else 0.2)"),
        ("gate *= self.open", "gate = gate * self.open"),
        ("gate[0] = 1", "gate[0] = 1"),
        ("gate.zero_()", "gate.zero_()"),
    ],
)
def test_what_is_changed_in_place_is_made_anew(line: str, expected: str) -> None:
    assert expected in [one.strip() for one in corrected("OPS208", GATED.format(line=line)).splitlines()]


def test_a_moved_tensor_is_bound() -> None:
    assert fixed("DEV110", "stars.to(device)\n", "stars.to").strip() == "stars = stars.to(device)"
    assert fixed("DEV110", "x = stars.to(device)\n", "stars.to") == ""


def test_noise_is_drawn_where_it_is_needed() -> None:
    line = "x = x + torch.randn(x.shape).to(device)"
    assert fixed("OPS103", f"{line}\n", line).strip() == "x = x + torch.randn(x.shape, device=device)"
    drawn = "x = x + torch.randn(x.shape, generator=g).to(device)"
    assert fixed("OPS103", f"{drawn}\n", drawn) == ""


LOADED = """
from torch.utils.data import DataLoader
loader = DataLoader(data, batch_size=64, pin_memory={pinned})
model = nn.Linear(4, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    x = x.to("cuda", non_blocking=True)
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""


def test_a_loader_that_was_told_not_to_pin_pins() -> None:
    assert "pin_memory=True)" in corrected("OPS104", LOADED.format(pinned="False"))


TOWER = """
    def tower(sizes):
        RETURNED

    class Net(nn.Module):
        def __init__(self, sizes):
            super().__init__()
            self.blocks = tower(sizes)
    """


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ("return [nn.Linear(n, n) for n in sizes]", "self.blocks = nn.ModuleList(tower(sizes))"),
        ("return {'first': nn.Linear(3, 3)}", "self.blocks = nn.ModuleDict(tower(sizes))"),
        ("return {n: nn.Linear(n, n) for n in (1, 2)} if sizes else []", ""),
        ("return {0: nn.Linear(3, 3)}", ""),
        ("made = {}\n        made[3] = nn.Linear(3, 3)\n        return made", ""),
        ("return [nn.Linear(3, 3)], [nn.Linear(3, 3)]", ""),
        ("return nn.Sequential(nn.Linear(3, 3))", ""),
        (
            "made = []\n        made.append(nn.Linear(3, 3))\n        return made",
            "self.blocks = nn.ModuleList(tower(sizes))",
        ),
    ],
)
def test_modules_that_a_function_makes_are_registered(returned: str, expected: str) -> None:
    assert fixed("DEV109", TOWER.replace("RETURNED", returned), "self.blocks =").strip() == expected


TWO_PLAYERS = """
    class Game:
        def __init__(self):
            self.g, self.d = nn.Linear(2, 2), nn.Linear(2, 1)
            self.og, self.od = torch.optim.Adam(self.g.parameters()), torch.optim.Adam(self.d.parameters())

        def judge(self, x):
            loss = self.d(x).mean() - self.d(self.g(x).detach()).mean()
            loss.backward()
            self.od.step()

        def make(self, x):
            self.og.zero_grad()
            self.d(self.g(x)).mean().backward()
            self.og.step()
"""


def test_gradients_are_cleared_before_the_backward_where_another_adds_to_them() -> None:
    """The generator's backward leaves gradients in the discriminator after its step."""
    text = "import torch\nfrom torch import nn\n" + textwrap.dedent(TWO_PLAYERS)
    line = next(n for n, one in enumerate(text.splitlines(), start=1) if "self.od.step" in one)
    finding = Finding(
        code="TRN101", name="x", severity="error", evidence="observed", message="", cause="",
        location=Location(path=FILE, line=line), remedy=Remedy(summary=""),
    )  # fmt: skip
    made = msgspec.structs.replace(
        finding, remedy=Remedy(summary="", edits=list(rule("TRN101").fixes(finding, SourceFile(FILE, text))))
    )
    lines = [one.strip() for one in apply({FILE: text}, [made])[0][FILE].splitlines()]
    assert lines[lines.index("self.od.zero_grad()") + 1] == "loss.backward()"


ENCODER = """
    class Intents(nn.Module):
        def __init__(self, checkpoint):
            super().__init__()
            self.encoder = Encoder.from_pretrained(
                checkpoint, pooling=False
            )
            self.a, self.b = Encoder.from_pretrained(checkpoint), nn.Linear(2, 2)
    """


@pytest.mark.parametrize(
    ("at", "expected"),
    [("checkpoint, pooling", "self.encoder.train()"), ("self.encoder =", "self.encoder.train()"), ("self.a", "")],
)
def test_a_part_that_a_library_left_in_eval_mode_is_trained(at: str, expected: str) -> None:
    handed_over = About("handed over in eval mode")
    assert fixed("TRN103", ENCODER, at, about=handed_over).strip() == expected
    assert fixed("TRN103", ENCODER, at, about=About("training in eval mode")) == ""


NETWORK = """
    from torch.nn import functional as F

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden, self.last = nn.Linear(8, 8), nn.Linear(8, 3)
            self.act = nn.ReLU()
            self.head = nn.Sequential(nn.Linear(8, 3), nn.ReLU(inplace=True))
            self.normal = nn.LogSoftmax(dim=0)

        def forward(self, x):
            {line}
    """


@pytest.mark.parametrize("code", ["TRN118", "TRN130"])
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("return F.relu(self.last(self.hidden(x)))", "return self.last(self.hidden(x))"),
        ("return torch.relu(self.last(F.relu(self.hidden(x))))", "return self.last(F.relu(self.hidden(x)))"),
        ("x = self.last(x).relu()", "x = self.last(x)"),
        ("return self.act(self.last(x)).squeeze(-1)", "return self.last(x).squeeze(-1)"),
        ("return self.head(self.hidden(x))",
         "self.head = nn.Sequential(nn.Linear(8, 3))"),
        ("return self.last(F.relu(self.hidden(x)))", ""),
        ("return mine.relu(self.last(x))", ""),
    ],
)  # fmt: skip
def test_the_activation_that_ends_a_prediction_goes(code: str, line: str, expected: str) -> None:
    found = fixed(code, NETWORK.format(line=line), line, about=About(variant="scores", operands=("",)))
    assert found.strip() == expected


def test_a_dead_activation_within_a_network_is_left() -> None:
    line = "return F.relu(self.last(x))"
    assert fixed("TRN118", NETWORK.format(line=line), line) == ""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("return F.log_softmax(self.last(x), dim=0)", "return F.log_softmax(self.last(x), dim=1)"),
        ("return self.last(x).log_softmax(0)", "return self.last(x).log_softmax(1)"),
        ("return self.normal(self.last(x))", "self.normal = nn.LogSoftmax(dim=1)"),
    ],
)
def test_a_softmax_is_given_the_dimension_of_the_classes(line: str, expected: str) -> None:
    assert fixed("NUM112", NETWORK.format(line=line), line, about=About(operands=("1",))).strip() == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x = self.encoder(x, src_key_padding_mask=mask)", "x = self.encoder(x, src_key_padding_mask=~mask)"),
        ("x = attend(x, x, x, key_padding_mask=tokens != 0)", "x = attend(x, x, x, key_padding_mask=~(tokens != 0))"),
        ("x = attend(x, x, x, key_padding_mask=~empty)", "x = attend(x, x, x, key_padding_mask=empty)"),
        ("x = self.encoder(x, mask)", ""),
    ],
)
def test_a_mask_is_turned_round(line: str, expected: str) -> None:
    assert fixed("TRN139", line + "\n", line, about=About(variant="hides")).strip() == expected
    assert fixed("TRN139", line + "\n", line) == ""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("nn.init.constant_(module.weight, 1.0 / 8)", "nn.init.xavier_uniform_(module.weight)"),
        ("nn.init.zeros_(self.last.weight)", "nn.init.xavier_uniform_(self.last.weight)"),
        ("module.weight.data.fill_(0.01)", "torch.nn.init.xavier_uniform_(module.weight)"),
        ("nn.init.zeros_(module.bias)", ""),
        ("nn.init.normal_(module.weight)", ""),
    ],
)
def test_weights_are_drawn_at_random(line: str, expected: str) -> None:
    assert fixed("TRN138", line + "\n", line).strip() == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("norm = gradient.norm(2, dim=1)", "norm = gradient.flatten(1).norm(2, dim=1)"),
        ("norm = gradient.norm(2, dim=(2, 3))", "norm = gradient.flatten(1).norm(2, dim=1)"),
        ("norm = torch.norm(gradient, p=2)", "norm = torch.norm(gradient.flatten(1), p=2, dim=1)"),
        (
            "norm = torch.linalg.vector_norm(gradient, dim=0)",
            "norm = torch.linalg.vector_norm(gradient.flatten(1), dim=1)",
        ),
        ("norm = gradient.norm(2, 1)", ""),
    ],
)
def test_a_penalty_is_on_the_norm_of_a_whole_gradient(line: str, expected: str) -> None:
    assert fixed("NUM114", line + "\n", line).strip() == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("self.bank[index] = F.normalize(features, dim=1)", "self.bank[index] = F.normalize(features, dim=1).detach()"),
        ("self.bank[index] = 0.9 * self.bank[index] + features", ""),
    ],
)
def test_what_is_written_into_a_bank_is_cut(line: str, expected: str) -> None:
    text = f"""
    from torch.nn import functional as F

    class Monitor:
        def __init__(self):
            self.bank = torch.zeros(64, 8)

        def update(self, index, features):
            {line}
    """
    assert fixed("MEM103", text, line, holder="monitor.bank").strip() == expected


@pytest.mark.parametrize(
    ("made", "line", "expected"),
    [
        ("criterion = nn.CTCLoss(blank=0)", "loss = criterion(scores, texts, frames, lengths)",
         "criterion = nn.CTCLoss(blank=0, zero_infinity=True)"),
        ("criterion = nn.CTCLoss()", "loss = criterion(scores, texts, frames, lengths)",
         "criterion = nn.CTCLoss(zero_infinity=True)"),
        ("", "loss = nn.functional.ctc_loss(scores, texts, frames, lengths)",
         "loss = nn.functional.ctc_loss(scores, texts, frames, lengths, zero_infinity=True)"),
        ("criterion = nn.CTCLoss(zero_infinity=False)", "loss = criterion(scores, texts, frames, lengths)", ""),
    ],
)  # fmt: skip
def test_samples_that_nothing_aligns_are_left_out(made: str, line: str, expected: str) -> None:
    found = fixed("NUM101", f"{made}\n{line}\n", line, about=About(variant="no-alignment"))
    assert found.strip() == expected
