"""Edits for what keeps memory by a dict of results, a hook, an iterator, an exception, a queue, a carried state or the
object itself."""

from __future__ import annotations

import pytest
from observed_fixes import FILE, HEAD, fixed_lines

from torchvet.finding import Finding, Holder, Location, Remedy
from torchvet.rules.memory.fixes.memos import keyed_weakly
from torchvet.source.model import SourceFile


def held_by(name: str, *path: str) -> dict[str, Holder]:
    return {"holder": Holder(name=name, kind="attribute", path=list(path))}


MEMO = """
    class Features:
        def __init__(self):
            self.memo = {}

        def __call__(self, x):
            key = tuple(x.shape)
            if key not in self.memo:
                self.memo[key] = x.relu()
            return self.memo[key]
"""
IN_MEMO = held_by("features.memo", "__main__: features", ".memo")


@pytest.mark.parametrize("code", ["MEM102", "MEM111"])
def test_old_entries_of_a_dict_that_remembers_results_go(code: str) -> None:
    old, new = fixed_lines(code, MEMO, "self.memo[key] = ", **IN_MEMO)
    assert not old
    assert [line.strip() for line in new] == ["while len(self.memo) >= 8:", "self.memo.pop(next(iter(self.memo)))"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("if key not in self.memo:", "if len(self.memo) < 5:"),  # nothing looks whether the entry is there
        ("return self.memo[key]", "return torch.stack(list(self.memo.values())).mean()"),  # all of it is read
        ("return self.memo[key]", "return self.memo[key[:1]]"),  # another entry is read
        ("self.memo = {}", "self.memo = {0: torch.ones(1)}"),
        ("self.memo = {}", "self.memo = load()"),
        ("return self.memo[key]", "return report(self.memo)"),
    ],
)
def test_entries_that_somebody_may_need_stay(before: str, after: str) -> None:
    assert fixed_lines("MEM102", MEMO.replace(before, after), "self.memo[key] = ", **IN_MEMO) == ([], [])


def test_a_dict_with_weak_keys_is_emptied_whole() -> None:
    """To pop one entry it compares keys by `==`, which tensors do not answer with yes or no."""
    text = MEMO.replace("self.memo = {}", "self.memo = weakref.WeakKeyDictionary()")
    _, new = fixed_lines("MEM102", text, "self.memo[key] = ", **IN_MEMO)
    assert [line.strip() for line in new] == ["if len(self.memo) >= 8:", "self.memo.clear()"]


def test_a_closure_that_remembers_results_and_one_that_expects_a_miss() -> None:
    text = """
        def memoize(function):
            cache = {}

            def wrapper(*args):
                try:
                    return cache[args]
                except KeyError:
                    result = function(*args)
                    cache[args] = result
                    return result

            return wrapper
    """
    _, new = fixed_lines(
        "MEM102", text, "cache[args] = ", **held_by("f.<closure>.cache", "__main__: f", ".<closure>.cache")
    )
    assert [line.strip() for line in new] == ["while len(cache) >= 8:", "cache.pop(next(iter(cache)))"]


def weakly(text: str) -> list[str]:
    at = Location(path=FILE, line=5)
    holder = Holder(name="self.names", kind="attribute", path=["__main__: self", ".names"])
    found = Finding(
        code="MEM111", name="x", severity="error", evidence="observed", message="m", cause="c", location=at,
        remedy=Remedy(summary=""), holder=holder,
    )  # fmt: skip
    return [edit.text for edit in keyed_weakly(SourceFile(FILE, HEAD + text), found)]


def test_a_dict_keyed_by_tensors_lets_go_of_them() -> None:
    assert weakly("class A:\n    def __init__(self):\n        self.names = {}\n") == [
        "torch.utils.weak.WeakTensorKeyDictionary()"
    ]
    assert not weakly("class A:\n    def __init__(self):\n        self.names = {0: 1}\n")
    assert not weakly("class A:\n    def __init__(self):\n        self.names, self.other = load()\n")


def test_the_cache_of_a_method_that_is_named_by_its_holder() -> None:
    text = """
        from functools import lru_cache

        class Head(nn.Module):
            @lru_cache(maxsize=64)
            def anchors(self, shape):
                return torch.ones(shape)

        class Model(nn.Module):
            def __init__(self):
                self.encoder = nn.Linear(64, 64)
    """
    old, _ = fixed_lines("MEM102", text, "self.encoder", **held_by("Head.anchors", "__main__: Head", ".anchors"))
    assert old == ["    @lru_cache(maxsize=64)"]


def test_a_hook_registered_again_takes_the_place_of_the_last_one() -> None:
    text = """
        def attach(model):
            for name, layer in model.named_modules():
                if isinstance(layer, nn.Linear):
                    layer.register_forward_hook(make_hook(name))
    """
    _, new = fixed_lines("MEM106", text, "register_forward_hook")
    assert [line.strip() for line in new] == [
        'if hasattr(layer, "_make_hook_handle"):', "layer._make_hook_handle.remove()",
        "layer._make_hook_handle = layer.register_forward_hook(make_hook(name))",
    ]  # fmt: skip


def test_the_hook_whose_handle_is_thrown_away_and_not_the_one_that_is_removed() -> None:
    text = """
        class Injector:
            def trace(self, model):
                handles = []
                for module in model.modules():
                    handles.append(module.register_forward_hook(lambda m, i, o: None))
                for handle in handles:
                    handle.remove()

            def inject(self, module, mask):
                def fault(module, inputs, output):
                    return output * mask

                module.register_forward_hook(fault)
    """
    old, new = fixed_lines("MEM106", text, "handles.append")
    assert old == ["        module.register_forward_hook(fault)"]
    assert new[-1].strip() == "module._fault_handle = module.register_forward_hook(fault)"


@pytest.mark.parametrize("spelled", ["itertools.cycle(self.loader)", "cycle(self.loader)"])
def test_a_loader_is_begun_again(spelled: str) -> None:
    text = f"""
        import itertools
        from itertools import cycle

        class Feed:
            def __init__(self, loader):
                self.loader = loader
                self.batches = {spelled}
    """
    _, new = fixed_lines("MEM114", text, "self.batches =")
    assert new == [
        "def endless(loader):", "    while True:", "        yield from loader",
        "        self.batches = endless(self.loader)",
    ]  # fmt: skip


@pytest.mark.parametrize("given", ["iter(loader)", "zip(loader, other)", "(b for b in loader)"])
def test_what_can_be_gone_through_once_is_not_begun_again(given: str) -> None:
    text = f"import itertools\nbatches = itertools.cycle({given})\n"
    assert fixed_lines("MEM114", text, "itertools.cycle") == ([], [])


@pytest.mark.parametrize(
    ("keeps", "kept"),
    [
        ("last = error", "last = error.with_traceback(None)"),
        ("log.append((step, error))", "log.append((step, error.with_traceback(None)))"),
        ("last = {'error': error}", "last = {'error': error.with_traceback(None)}"),
    ],
)
@pytest.mark.parametrize("code", ["MEM105", "MEM108"])
def test_an_exception_is_kept_without_its_frames(code: str, keeps: str, kept: str) -> None:
    text = f"""
        def attempt(model, x, log):
            for step in range(3):
                try:
                    return model(x)
                except RuntimeError as error:
                    {keeps}
    """
    old, new = fixed_lines(code, text, "model(x)")
    assert ([line.strip() for line in old], [line.strip() for line in new]) == ([keeps], [kept])


def test_an_exception_that_is_only_printed_is_let_alone() -> None:
    text = "try:\n    run()\nexcept RuntimeError as error:\n    print(error)\n    text = str(error)\n"
    assert fixed_lines("MEM105", text, "run()") == ([], [])


def test_an_object_that_stores_itself_does_so_weakly() -> None:
    text = """
        class Engine:
            def __init__(self, process):
                self.process = process
                self.handlers = {}

            def on(self, event, handler, *args):
                self.handlers[event].append((handler, (self, *args)))
    """
    cycle = held_by("State.output", "State.output", "Engine.handlers", "Engine.state")
    old, new = fixed_lines("MEM105", text, "self.process =", **cycle)
    assert old == ["        self.handlers[event].append((handler, (self, *args)))"]
    assert new == ["import weakref", "        self.handlers[event].append((handler, (weakref.proxy(self), *args)))"]


def test_a_method_stored_by_its_own_object_is_bound_weakly() -> None:
    text = """
        import functools

        class Posterior:
            def __init__(self, samples):
                self.samples = samples
                self.mean = self.compute()
                self.quantile = functools.lru_cache(maxsize=None)(self._quantile)

            def compute(self):
                return self.samples.mean(0)

            def _quantile(self, q):
                return torch.quantile(self.samples, q, dim=0)
    """
    _, new = fixed_lines("MEM105", text, "self.quantile =", **held_by("Posterior.quantile", "Posterior.quantile"))
    weak = "functools.partial(type(self)._quantile, weakref.proxy(self))"
    assert new == ["import weakref", f"        self.quantile = functools.lru_cache(maxsize=None)({weak})"]
    assert fixed_lines("MEM105", text, "self.mean =", **held_by("Posterior.mean", "Posterior.mean")) == ([], [])


def test_a_dict_of_state_is_cut_as_it_is_stored() -> None:
    text = """
        class Walker(nn.Module):
            def forward(self, x, state):
                h, c = self.cell(x, (state["h"], state["c"]))
                state["h"], state["c"] = h, c
                state["t"] += 1
                return self.head(h)
    """
    _, new = fixed_lines("MEM103", text, 'state["h"], state["c"] = ', **held_by("state", "__main__: state"))
    assert [line.strip() for line in new] == ['state["h"], state["c"] = h.detach(), c.detach()']


@pytest.mark.parametrize("value", ["(h, c)", '{"h": h, "c": c}'])
def test_a_state_written_down_is_cut_as_it_is_stored(value: str) -> None:
    text = f"""
        class Walker(nn.Module):
            def forward(self, x, memory):
                h, c = self.cell(x, memory.last)
                memory.states[0] = {value}
                return self.head(h)
    """
    _, new = fixed_lines(
        "MEM103", text, "memory.states[0] =", **held_by("memory.states", "__main__: memory", ".states")
    )
    cut = value.replace("h,", "h.detach(),").replace("c)", "c.detach())").replace("c}", "c.detach()}")
    assert [line.strip() for line in new] == [f"memory.states[0] = {cut}"]


def test_what_goes_into_a_queue_is_detached() -> None:
    text = """
        class Board:
            def post(self, result):
                self.results.put(result)
    """
    _, new = fixed_lines("MEM101", text, "self.results.put", **held_by("board.results", "__main__: board", ".results"))
    assert [line.strip() for line in new] == ["self.results.put(result.detach())"]


def test_the_parts_of_a_tuple_that_may_be_views_are_copied() -> None:
    text = """
        class Miner:
            def keep(self, step, images, losses):
                self.hardest[step] = images[losses.argmax()], losses.max()
    """
    in_dict = held_by("miner.hardest", "__main__: miner", ".hardest")
    _, new = fixed_lines("MEM113", text, "self.hardest[step]", **in_dict)
    assert [line.strip() for line in new] == ["self.hardest[step] = images[losses.argmax()].clone(), losses.max()"]


def test_of_two_stores_under_one_name_the_one_that_may_be_a_view_is_copied() -> None:
    text = """
        class Tree:
            def spread(self, i):
                self.nodes[i] = torch.as_tensor(float(self.nodes[2 * i]) + 1.0)

            def update(self, i, value):
                self.nodes[i] = value
    """
    _, new = fixed_lines("MEM113", text, "torch.as_tensor", **held_by("tree.nodes", "__main__: tree", ".nodes"))
    assert [line.strip() for line in new] == ["self.nodes[i] = value.clone()"]


@pytest.mark.parametrize(
    ("stored", "weak"),
    [
        ("lambda x: self.scale * x", "lambda x, self=weakref.proxy(self): self.scale * x"),
        ("lambda x, k=2: self.scale * x ** k", "lambda x, k=2, self=weakref.proxy(self): self.scale * x ** k"),
        ("lambda: self.scale", "lambda self=weakref.proxy(self): self.scale"),
        ("lambda *x: self.scale", None),
        ("lambda x: x", None),
    ],
)
def test_a_lambda_stored_by_the_object_that_it_reads(stored: str, weak: str | None) -> None:
    text = f"""
        import weakref

        class Unit:
            def __init__(self, scale):
                self.scale = scale
                self.call = {stored}
    """
    _, new = fixed_lines("MEM105", text, "self.call =", **held_by("Unit.call", "Unit.call"))
    assert [line.strip() for line in new] == ([f"self.call = {weak}"] if weak else [])


def test_an_object_that_another_is_given_as_its_parent() -> None:
    text = """
        import weakref

        class Node:
            def __init__(self, state):
                self.state, self.parent, self.children = state, None, []

            def adopt(self, child):
                child.parent = self
                self.children.append(child)
    """
    _, new = fixed_lines("MEM105", text, "self.state", **held_by("Node.children", "Node.children", "Node.parent"))
    assert [line.strip() for line in new] == ["child.parent = weakref.proxy(self)"]


def test_an_average_written_as_a_comprehension_is_detached() -> None:
    text = """
        class Average:
            def update(self, model):
                self.shadow = {k: 0.9 * self.shadow[k] + 0.1 * p for k, p in model.named_parameters()}
    """
    _, new = fixed_lines("MEM101", text, "self.shadow =", **held_by("average.shadow", "__main__: average", ".shadow"))
    assert "{k: (0.9 * self.shadow[k] + 0.1 * p).detach() for k, p in" in new[0]


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        ("dict", "{k: v.detach() if torch.is_tensor(v) else v for k, v in metrics(x).items()}"),
        ("tuple", "tuple(v.detach() if torch.is_tensor(v) else v for v in metrics(x))"),
        ("Record", None),
    ],
)
def test_a_container_that_is_stored_whole_has_each_of_its_tensors_detached(kind: str, stored: str | None) -> None:
    from torchvet.rules.memory.fixes.stored_values import _each_with

    text = "import torch\nfor x in data:\n    history.append(metrics(x))\n"
    found = Finding(
        code="MEM101", name="x", severity="error", evidence="observed", message="m", cause="c",
        location=Location(path=FILE, line=3), remedy=Remedy(summary=""), **held_by("history", "__main__: history"),
    )  # fmt: skip
    assert [e.text for e in _each_with(SourceFile(FILE, text), found, kind, "detach()")] == ([stored] if stored else [])


DEFAULT = '''
    class Net(nn.Module):
        def forward(self, x, levels=[], *, log=None):
            """All levels."""
            for layer in self.layers:
                x = layer(x)
                levels.append(x)
            return levels[-len(self.layers):]
'''
IN_DEFAULT = held_by("Net.forward.<default>[0]", "__main__: Net", ".forward", ".<default>", "[0]")


@pytest.mark.parametrize("code", ["MEM101", "MEM102"])
@pytest.mark.parametrize("made", ["[]", "{}", "list()", "collections.deque()", "defaultdict(list)"])
def test_a_default_is_made_in_each_call(code: str, made: str) -> None:
    old, new = fixed_lines(code, DEFAULT.replace("levels=[]", f"levels={made}"), "levels.append(x)", **IN_DEFAULT)
    assert [line.strip() for line in old] == [f"def forward(self, x, levels={made}, *, log=None):"]
    assert [line.strip() for line in new] == [
        "def forward(self, x, levels=None, *, log=None):", "if levels is None:", f"levels = {made}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("levels=[]", "levels=LEVELS"),  # one that others have, too
        ("levels=[]", "levels=[1]"),
        ("levels=[]", "levels=deque(maxlen=size())"),
        # One object for all calls is meant: what they have computed is looked up.
        ("x = layer(x)", "x = layer(x) if layer not in levels else levels[layer]"),
        ("x = layer(x)", "x = levels.get(layer, layer(x))"),
        ("return levels[-len(self.layers):]", "return torch.stack(levels).mean()"),
        ("return levels[-len(self.layers):]", "return levels[-20:]"),
        ("return levels[-len(self.layers):]", "return levels"),
        ("return levels[-len(self.layers):]", "return len(levels)"),
        ("levels.append(x)", "levels.append(x) if len(levels) < 10 else None"),
        ("levels=[]", "levels=list(SEED)"),
    ],
)
def test_a_default_that_calls_may_share_on_purpose_stays(before: str, after: str) -> None:
    _, new = fixed_lines("MEM102", DEFAULT.replace(before, after), "levels.append(x)", **IN_DEFAULT)
    assert not any("None" in line for line in new)


REPLACED = """
    def grow(opt, group, more):
        old = group["params"][0]
        new = nn.Parameter(torch.cat([old.detach(), more]))
        {read}
        opt.state[new] = {{k: widened(v) for k, v in moments.items()}}
        group["params"][0] = new
"""
IN_STATE = held_by("opt.state", "__main__.train: opt", ".state")


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        ("moments = opt.state.get(old)", "moments = opt.state.pop(old, None)"),
        ("moments = opt.state.get(old, {})", "moments = opt.state.pop(old, {})"),
        ("moments = opt.state[old]", "moments = opt.state.pop(old, {})"),
        ("moments = opt.state.get(new)", ""),
        ("moments = opt.state[old]; del opt.state[old]", ""),
        ("moments = opt.state[old] or opt.state[other]", ""),
        ("moments = states.get(old)", ""),
    ],
)
def test_the_entry_of_a_parameter_that_was_replaced_is_taken_out(read: str, expected: str) -> None:
    out, new = fixed_lines("MEM111", REPLACED.format(read=read), "opt.state[new] =", **IN_STATE)
    assert [line.strip() for line in new] == ([expected] if expected else []) and len(out) == len(new)


def test_another_dict_of_tensors_is_no_optimizer_s_state() -> None:
    text = REPLACED.format(read="moments = opt.state.get(old)").replace("opt.state", "opt.seen")
    assert fixed_lines("MEM111", text, "opt.seen[new] =", **held_by("opt.seen", "opt", ".seen")) == ([], [])


@pytest.mark.parametrize(("old", "made"), [("group['params'][0]", True), ("first", False)])
def test_each_turn_of_a_loop_takes_out_another_entry(old: str, made: bool) -> None:
    text = f"""
        def grow(opt, first):
            for group in opt.param_groups:
                moments = opt.state.get({old})
                new = nn.Parameter(group["params"][0].detach().clone())
                opt.state[new] = moments
    """
    _, new = fixed_lines("MEM111", text, "opt.state[new] =", **IN_STATE)
    assert [line.strip() for line in new] == ([f"moments = opt.state.pop({old}, None)"] if made else [])
