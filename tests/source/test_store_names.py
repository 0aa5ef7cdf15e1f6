"""How a holder's name, as a heap walk gives it, leads to the variable or attribute in the text."""

from __future__ import annotations

import pytest
from programs import program

from torchvet.source.holder import Part, parse


@pytest.mark.parametrize(
    ("name", "terminal", "free"),
    [
        ("losses", "losses", True), ("self.history", "history", False), ("trainer.stats.losses", "losses", False),
        ("acts['fc1']", "acts", True), ("acts['a].b'].kept", "kept", False), ("state[0]", "state", True),
        ("buffer.<closure>.items", "items", True), ("Net.forward.<closure>.records", "records", True),
        ("hook.<closure>.self.seen[3]", "seen", False), ("hook.<default>", "hook", True),
        ("Model.encode (lru_cache)", "encode", False), ("batches (itertools.cycle)", "batches", True),
        ("errors[3].__traceback__ → step(): activations", "errors", True),
        ("self.error.__context__.__traceback__ → f()", "error", False),
        ("stream → numbers(): seen", "seen", True), ("self.__dict__", "__dict__", False),
        ("worker.queue", "queue", False), ("losses[0].grad_fn.ctx.gate", "gate", False),
        ("net.first.weight._backward_hooks", "weight", False), ("cache[<Key>] (as a key)", "cache", True),
        ("cells[…]", "cells", True), ("memo['unclosed", "memo", True), ("größe", "größe", True),
    ],
)  # fmt: skip
def test_the_terminal_of_a_name(name: str, terminal: str, free: bool) -> None:
    parsed = parse(name)
    assert parsed is not None
    assert (parsed.terminal.name, parsed.terminal.free) == (terminal, free)


def test_the_rest_of_a_name() -> None:
    parsed = parse("log['train'][3].rows")
    assert parsed is not None and parsed.parts == (Part("log", True, ("'train'", "3")), Part("rows", False))
    closure = parse("Net.forward.<closure>.records")
    assert closure is not None and (closure.function, closure.special, closure.owner) == ("forward", "closure", "")
    hooks = parse("net.fc._forward_hooks[7].<closure>.mask")
    assert hooks is not None and (hooks.hooked, hooks.terminal.name, hooks.special) == ("fc", "mask", "closure")
    assert parse("") is None and parse("[3]") is None and parse("<closure>") is None


SCOPES = """
losses = []

def losses_of_others():
    losses = []
    for x in xs:
        losses.append(x)

class Trainer:
    def fit(self):
        losses = []
        for x in xs:
            losses.append(x)  # <- fit
            def report():
                losses.append(9 * x)  # <- fit

def train():
    global losses
    for x in xs:
        losses.append(x)  # <- module

def fit(losses):
    pass
"""


@pytest.mark.parametrize(
    ("scope", "mark"),
    [
        ("__main__", "<- module"), ("train", "<- module"), ("__main__.Trainer.fit", "<- fit"),
        ("__main__.Trainer.fit (thread Thread-1 (run))", "<- fit"), ("train.Trainer.fit", "<- fit"),
        ("proj.train.Trainer.fit", "<- fit"), ("__main__.train", "<- module"),
        ("__main__.Trainer.fit.<locals>.report", "<- fit"),
    ],
)  # fmt: skip
def test_a_variable_of_one_scope(scope: str, mark: str) -> None:
    asked = program(SCOPES)
    assert sorted((s.path, s.line) for s in asked.stores("losses", scope)) == asked.marked(mark)


def test_a_function_named_like_its_module() -> None:
    text = "def train():\n    rows = []\n    for x in xs:\n        rows.append(x)  # <-\n"
    assert program(text).first("rows", "train.train").function == "train"


def test_closures_nested_functions_and_nonlocal() -> None:
    text = """
    def watch(model):
        records = {}
        total = 0
        def hook(module, inputs, output):
            nonlocal total
            records[name].append(output)  # <-
            total += output
        return hook
    hook = watch(model)
    """
    asked = program(text)
    assert asked.first("hook.<closure>.records").function == "watch.<locals>.hook"
    assert asked.first("Net.forward.<closure>.records['conv1']").kind == "append"
    assert [s.kind for s in asked.stores("hook.<closure>.total")] == ["augmented"]


def test_defaults_of_a_function() -> None:
    text = """
    def hook(module, inputs, output, name="fc", kept=[]):
        kept.append(output)  # <-
    """
    program(text).first("hook.<default>")
    program(text).first("hook.<default>[1]")


def test_defaults_of_a_method() -> None:
    text = """
    class Other:
        def forward(self, x, kept=[]):
            kept.append(x)

    class Net:
        def forward(self, x, levels=[]):
            levels.append(x)  # <-
    """
    program(text).first("Net.forward.<default>[0]")


def test_a_default_that_is_somebody_elses_list() -> None:
    text = """
    rows = []
    def hook(module, inputs, output, kept=rows):
        kept.append(output)  # <-
    """
    program(text).first("rows")


def test_the_decorator_of_a_cached_function() -> None:
    text = """
    class Other:
        @functools.cache
        def encode(self, x):
            return x
    class Features:
        @functools.lru_cache(maxsize=None)  # <-
        def encode(self, x):
            return x
    """
    found = program(text).first("Features.encode (lru_cache)")
    assert (found.kind, found.function, found.text) == (
        "call", "Features.encode", "@functools.lru_cache(maxsize=None)  # <-"
    )  # fmt: skip


def test_a_function_that_is_cached_by_assignment() -> None:
    program("encode = functools.lru_cache(None)(plain)  # <-\n").first("encode (lru_cache)")


def test_hooks_that_are_registered_again_and_again() -> None:
    text = """
    class Masked:
        def mask(self):
            self.other.register_forward_hook(note)
            mask = make(self.first.weight)
            self.first.weight.register_hook(lambda g: g * mask)  # <-
        def step(self):
            self.mask()
    """
    program(text).first("trainer.first.weight._backward_hooks", "__main__.main")
    program(text).first("trainer.first.weight._backward_hooks[9].<closure>.mask", "__main__.main")


def test_a_list_behind_a_hook() -> None:
    text = """
    def watch(layer):
        rows = []
        def note(module, inputs, output):
            rows.append(output)  # <-
        layer.register_forward_hook(note)
    """
    program(text).first("net.fc._forward_hooks[2].<closure>.rows", "__main__.main")


def test_attributes_of_ctx() -> None:
    text = """
    class Other:
        def __init__(self, x):
            self.x = x
    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.x = x  # <-
    """
    program(text).first("losses[0].grad_fn.ctx.x")


def test_an_exception_and_a_generator() -> None:
    text = """
    def numbers():
        seen = []
        while True:
            seen.append(x)
            yield x
    for x in xs:
        errors.append(error)  # <-
    """
    program(text).first("errors[3].__traceback__ → numbers(): seen")
    assert [s.line for s in program(text).stores("stream → numbers(): seen")] == [5]


def test_the_key_in_a_name_picks_among_stores() -> None:
    text = """
    def register(step, loss, model):
        registry["losses"][step] = loss
        registry["snapshots"][step] = copy(model)  # <-
    registry = {"losses": {}, "snapshots": {}}
    """
    program(text).first("registry['snapshots']")
    program(text).first("registry['snapshots'][12]['weight']")


def test_the_owner_is_tried_where_nothing_is_stored_by_the_last_name() -> None:
    text = """
    class Buffer(UserList): pass
    rows = Buffer()
    for x in xs:
        rows.append(x)  # <-
    """
    program(text).first("rows.data")


def test_files_that_cannot_be_read_are_left_out() -> None:
    asked = program("rows = []\nfor x in xs:\n    rows.append(x)  # <-\n", broken="def (:\n    rows.append(x)\n")
    asked.first("rows")
    assert asked.stores("holder.rows", path="/proj/broken.py") == []
    assert asked.stores("rows", path="/elsewhere/unknown.py") == asked.stores("rows")


def test_a_variable_of_another_function_is_not_taken_for_one_of_an_unknown_file() -> None:
    text = """
    def evaluate(average, model):
        for kept in average:
            kept.lerp_(model, 0.1)
    def test_leaky():
        kept = []
        for x in xs:
            kept.append(x)  # <-
    """
    asked = program(text)
    stores = {s: asked.stores("kept", path="/elsewhere/unknown.py", scope=s) for s in ("m.test_leaky", "m.other")}
    assert [s.text for s in stores["m.test_leaky"]] == ["kept.append(x)  # <-"] and stores["m.other"] == []
