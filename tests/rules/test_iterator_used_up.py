"""TRN137: iterators that are gone through again, and what looks like it."""

from __future__ import annotations

import textwrap

import pytest
from source_fixes import fixed

from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = """
import itertools
import torch
from torch import nn, optim
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader
from tqdm import tqdm

model = nn.Linear(4, 2)
teacher = nn.Linear(4, 2)
loader = DataLoader(range(10))
other = DataLoader(range(10))
"""
FAULTY = {
    "clipped after the optimizer": (
        """
        params = model.parameters()
        optimizer = optim.Adam(params, lr=1e-3)
        for x in loader:
            model(x).sum().backward()
            clip_grad_norm_(params, 1.0)  # HERE
            optimizer.step()
        """,
        "warning",
    ),
    "a filter": (
        """
        def train(model, loader):
            trainable = filter(lambda p: p.requires_grad, model.parameters())
            opt = torch.optim.AdamW(trainable)
            for x in loader:
                model(x).sum().backward()
                torch.nn.utils.clip_grad_value_(trainable, 0.5)  # HERE
                opt.step()
        """,
        "warning",
    ),
    "counted, then optimized": (
        """
        params = filter(lambda p: p.requires_grad, model.parameters())
        print(sum(p.numel() for p in params))
        optimizer = optim.SGD(params, lr=0.1)  # HERE
        """,
        "warning",
    ),
    "frozen by a used-up iterator": (
        """
        params = model.parameters()
        optimizer = optim.SGD([{"params": params, "lr": 0.1}])
        for p in params:  # HERE
            p.requires_grad = False
        """,
        "warning",
    ),
    "a penalty": (
        """
        weights = (p for n, p in model.named_parameters() if "bias" not in n)
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        for x in loader:
            loss = model(x).sum() + 0.01 * sum(p.norm() for p in weights)  # HERE
            loss.backward()
            optimizer.step()
        """,
        "warning",
    ),
    "an average of weights": (
        """
        pairs = zip(teacher.parameters(), model.parameters())
        for x in loader:
            model(x).sum().backward()
            for t, s in pairs:  # HERE
                t.data.mul_(0.99).add_(s.data, alpha=0.01)
        """,
        "warning",
    ),
    "two loaders": (
        """
        pairs = zip(loader, other)
        for epoch in range(3):
            for a, b in pairs:  # HERE
                model(a).sum().backward()
        """,
        "warning",
    ),
    "a loader's iterator": (
        """
        def fit(model, loader, epochs):
            batches = iter(loader)
            for epoch in range(epochs):
                for x in batches:  # HERE
                    model(x).sum().backward()
        """,
        "warning",
    ),
    "counted batches in tqdm": (
        """
        batches = enumerate(loader)
        for epoch in tqdm(range(3)):
            for i, x in tqdm(batches):  # HERE
                model(x).sum().backward()
        """,
        "warning",
    ),
    "a generator function": (
        """
        def batches(data, size):
            for i in range(0, len(data), size):
                yield data[i:i + size]

        stream = batches(torch.randn(10, 4), 2)
        for epoch in range(3):
            for x in stream:  # HERE
                model(x).sum().backward()
        """,
        "warning",
    ),
    "a chain": (
        """
        params = itertools.chain(model.parameters(), teacher.parameters())
        opt = optim.Adam(params)
        def step(x):
            model(x).sum().backward()
            clip_grad_norm_(params, 1.0)  # HERE
            opt.step()
        for x in loader:
            step(x)
        """,
        "warning",
    ),
    "an attribute": (
        """
        class Trainer:
            def __init__(self, model):
                self.model = model
                self.params = model.parameters()
                self.optimizer = optim.Adam(self.params)

            def step(self, x):
                self.model(x).sum().backward()
                clip_grad_norm_(self.params, 1.0)  # HERE
                self.optimizer.step()
        """,
        "warning",
    ),
    "an attribute that each step goes through": (
        """
        class Trainer:
            def __init__(self, net: nn.Module):
                self.params = net.parameters()

            def penalty(self):
                return sum(p.norm() for p in self.params)  # HERE

            def fit(self, loader):
                for x in loader:
                    loss = self.penalty()
        """,
        "warning",
    ),
    "given to a function": (
        """
        def train(params, loader):
            opt = optim.Adam(params)
            for x in loader:
                model(x).sum().backward()
                clip_grad_norm_(params, 1.0)  # HERE
                opt.step()

        train(model.parameters(), loader)
        """,
        "warning",
    ),
    "through a function": (
        """
        def freeze(params):
            for p in params:
                p.requires_grad_(False)

        def count(params):
            return sum(p.numel() for p in params)

        params = model.parameters()
        print(count(params))
        freeze(params)  # HERE
        """,
        "warning",
    ),
    "in a branch": (
        """
        def build(model, frozen):
            params = model.parameters()
            if frozen:
                for p in params:
                    p.requires_grad = False
            return optim.SGD(params, lr=0.1)  # HERE
        """,
        "info",
    ),
    "where clipping is asked for": (
        """
        def train(model, loader, clip):
            params = model.parameters()
            opt = optim.SGD(params, lr=0.1)
            for x in loader:
                model(x).sum().backward()
                if clip:
                    clip_grad_norm_(params, clip)  # HERE
                opt.step()
        """,
        "warning",
    ),
    "clipped alone, in each step": (
        """
        params = model.parameters()
        opt = optim.SGD(model.parameters(), lr=0.1)
        for x in loader:
            model(x).sum().backward()
            clip_grad_norm_(params, 1.0)  # HERE
            opt.step()
        """,
        "warning",
    ),
    "logged now and then": (
        """
        norms = map(torch.norm, model.parameters())
        for step, x in enumerate(loader):
            if step % 10 == 0:
                print(max(norms))  # HERE
        """,
        "warning",
    ),
    "inner of two loops": (
        """
        layers = model.named_parameters()
        for kind in ("weight", "bias"):
            for name, p in layers:  # HERE
                if kind in name:
                    nn.init.zeros_(p)
        """,
        "warning",
    ),
    "in a comprehension": (
        """
        params = model.named_parameters()
        groups = [[p for n, p in params if kind in n] for kind in ("weight", "bias")]  # HERE
        """,
        "warning",
    ),
    "unpacked": (
        """
        params = model.parameters()
        flat = torch.cat([p.flatten() for p in params])
        grads = torch.autograd.grad(model(flat).sum(), [*params])  # HERE
        """,
        "warning",
    ),
    "a default": (
        """
        def build(model, params=None):
            if params is None:
                params = model.parameters()
            opt = optim.SGD(params, lr=0.1)
            clip_grad_norm_(params, 1.0)  # HERE
            return opt
        """,
        "info",
    ),
    "handed to a library": (
        """
        from ema import Average
        params = model.parameters()
        opt = optim.SGD(params, lr=0.1)
        ema = Average(params, decay=0.99)  # HERE
        """,
        "info",
    ),
    "while": (
        """
        stream = zip(loader, other)
        epoch = 0
        while epoch < 3:
            for a, b in stream:  # HERE
                model(a).sum().backward()
            epoch += 1
        """,
        "info",
    ),
}
HEALTHY = {
    "a list": """
        params = list(model.parameters())
        opt = optim.Adam(params)
        for x in loader:
            clip_grad_norm_(params, 1.0)
        """,
    "called again": """
        opt = optim.Adam(model.parameters())
        for x in loader:
            clip_grad_norm_(model.parameters(), 1.0)
        """,
    "a comprehension": """
        params = [p for p in model.parameters() if p.requires_grad]
        opt = optim.Adam(params)
        clip_grad_norm_(params, 1.0)
        """,
    "made again": """
        params = model.parameters()
        opt = optim.Adam(params)
        params = model.parameters()
        clip_grad_norm_(params, 1.0)
        """,
    "made a list in between": """
        params = model.parameters()
        params = list(params)
        opt = optim.Adam(params)
        clip_grad_norm_(params, 1.0)
        """,
    "made in each epoch": """
        for epoch in range(3):
            batches = iter(loader)
            for x in batches:
                model(x).sum().backward()
        """,
    "zipped in each epoch": """
        for epoch in range(3):
            pairs = zip(loader, other)
            for a, b in pairs:
                model(a).sum().backward()
        """,
    "once": """
        params = filter(lambda p: p.requires_grad, model.parameters())
        opt = optim.Adam(params)
        """,
    "next, made again at the end": """
        stream = iter(loader)
        for step in range(100):
            try:
                x = next(stream)
            except StopIteration:
                stream = iter(loader)
                x = next(stream)
            model(x).sum().backward()
        """,
    "one item, then the rest": """
        batches = iter(loader)
        first = next(batches)
        for x in batches:
            model(x).sum().backward()
        """,
    "in pieces": """
        stream = iter(loader)
        for epoch in range(3):
            for x in itertools.islice(stream, 2):
                model(x).sum().backward()
        """,
    "teed": """
        one, two = itertools.tee(model.parameters())
        params = model.parameters()
        a, b = itertools.tee(params)
        opt = optim.Adam(a)
        clip_grad_norm_(b, 1.0)
        """,
    "left by break, and gone on with": """
        stream = iter(loader)
        for epoch in range(3):
            for i, x in enumerate(stream):
                model(x).sum().backward()
                if i == 100:
                    break
        """,
    "an endless generator": """
        def forever(loader):
            while True:
                for x in loader:
                    yield x

        stream = forever(loader)
        for epoch in range(3):
            for x in stream:
                model(x).sum().backward()
        """,
    "a cycle": """
        stream = itertools.cycle(loader)
        for epoch in range(3):
            for x, y in zip(loader, stream):
                model(x).sum().backward()
        """,
    "either": """
        def run(model, train):
            params = model.parameters()
            if train:
                return optim.Adam(params)
            else:
                return [p.norm() for p in params]
        """,
    "left before": """
        def run(model, count):
            params = model.parameters()
            if count:
                return sum(p.numel() for p in params)
            return optim.Adam(params)
        """,
    "two tests": """
        def run(model, count, train):
            params = model.parameters()
            if count:
                print(sum(p.numel() for p in params))
            if train:
                return optim.Adam(params)
        """,
    "in the first turn only": """
        params = model.parameters()
        for epoch in range(3):
            if epoch == 0:
                for p in params:
                    p.requires_grad = False
        """,
    "until done": """
        params = model.parameters()
        while True:
            opt = optim.Adam(params)
            break
        """,
    "tried again": """
        stream = zip(loader, other)
        for attempt in range(3):
            try:
                rows = list(stream)
                break
            except OSError:
                pass
        """,
    "a class with lists": """
        class Value:
            def parameters(self):
                return [self]

        class MLP:
            def __init__(self):
                self.layers = [Value()]

            def parameters(self):
                return [p for layer in self.layers for p in layer.parameters()]

        mlp = MLP()
        params = mlp.parameters()
        for step in range(3):
            for p in params:
                p.grad = None
        """,
    "a signature": """
        import inspect
        params = inspect.signature(model.forward).parameters
        names = list(params)
        for name in params:
            print(name)
        """,
    "a range": """
        steps = range(10)
        for epoch in range(3):
            for i in steps:
                model(torch.randn(4)).sum().backward()
        """,
    "a loader": """
        batches = tqdm(loader)
        for epoch in range(3):
            for x in batches:
                model(x).sum().backward()
        """,
    "map of a pool": """
        from multiprocessing import Pool
        pool = Pool(2)
        rows = pool.map(abs, [1, 2])
        total = sum(rows)
        best = max(rows)
        """,
    "a sentinel": """
        stream = iter(model.step, None)
        for epoch in range(3):
            for x in stream:
                print(x)
        """,
    "a dictionary": """
        params = dict(model.named_parameters())
        for n, p in params.items():
            p.requires_grad = "bias" in n
        for n, p in params.items():
            print(n)
        """,
    "in steps of two": """
        stream = iter(loader)
        for a, b in zip(stream, stream):
            model(a).sum().backward()
        """,
    "asked for a name": """
        names = (n for n, p in model.named_parameters())
        if "weight" in names:
            print(list(names))
        """,
    "an attribute that is made again": """
        class Source:
            def __init__(self, loader):
                self.loader = loader
                self.stream = iter(loader)

            def reset(self):
                self.stream = iter(self.loader)

            def epoch(self):
                for x in self.stream:
                    model(x).sum().backward()
        """,
    "an attribute used once": """
        class Trainer:
            def __init__(self, model):
                self.params = model.parameters()

            def configure_optimizers(self):
                return optim.Adam(self.params)
        """,
    "a property": """
        class Trainer:
            def __init__(self, model):
                self.model = model

            @property
            def params(self):
                return self.model.parameters()

            def step(self, loader):
                opt = optim.Adam(self.params)
                for x in loader:
                    clip_grad_norm_(self.params, 1.0)
        """,
    "an attribute in steps": """
        class Source:
            def __init__(self, loader):
                self.stream = iter(loader)

            def __iter__(self):
                return self

            def __next__(self):
                return next(self.stream)
        """,
    "a lambda": """
        params = lambda: model.parameters()
        opt = optim.Adam(params())
        clip_grad_norm_(params(), 1.0)
        """,
    "made again by a closure": """
        params = model.parameters()
        def again():
            global params
            params = model.parameters()
        opt = optim.Adam(params)
        again()
        clip_grad_norm_(params, 1.0)
        """,
    "for one model each": """
        for net in (model, teacher):
            params = net.parameters()
            opt = optim.Adam(params)
        """,
    "a shorter partner": """
        stream = iter(loader)
        for epoch in range(3):
            for i, x in zip(range(5), stream):
                model(x).sum().backward()
        """,
    "asked whether there are any": """
        params = model.parameters()
        if any(p.requires_grad for p in params):
            opt = optim.Adam(params)
        """,
    "its type": """
        params = model.parameters()
        print(type(params), isinstance(params, list))
        opt = optim.Adam(params)
        """,
    "an exception's way out": """
        params = model.parameters()
        try:
            opt = optim.Adam(params, fused=True)
        except RuntimeError:
            opt = optim.Adam(params)
        """,
    "a function of two callers": """
        def clip(params):
            clip_grad_norm_(params, 1.0)

        for x in loader:
            clip(model.parameters())
            clip(teacher.parameters())
        """,
    "one turn": """
        params = model.parameters()
        for epoch in range(1):
            opt = optim.Adam(params)
        """,
    "left in the turn": """
        def find(model, names):
            params = model.named_parameters()
            for name in names:
                found = dict(params)
                return found[name]
        """,
    "a head, then the rest": """
        rows = iter(loader)
        for head in rows:
            rest = list(rows)
            model(head).sum().backward()
        """,
    "said to be at its end": """
        def test_once():
            params = model.parameters()
            assert list(params)
            assert list(params) == []
        """,
    "among others, in a loop's head": """
        params = (p for p in model.parameters() if p.requires_grad)
        for p in (*params, *teacher.parameters()):
            p.grad = None
        """,
    "a function of a module of that name": """
        from tools import syntax
        named = syntax.parameters(model)
        names = [one.arg for one in named]
        for one in named:
            print(one)
        """,
    "deleted": """
        params = model.parameters()
        opt = optim.Adam(params)
        del params
        """,
}


def _found(text: str):
    text = HEAD + textwrap.dedent(text)
    return text, list(rule("TRN137").in_source(SourceFile("train.py", text)))


@pytest.mark.parametrize("text,severity", FAULTY.values(), ids=FAULTY)
def test_second_uses_are_found_where_they_stand(text: str, severity: str) -> None:
    """One finding, on the line that finds it used up."""
    text, found = _found(text)
    line = next(n for n, row in enumerate(text.splitlines(), 1) if "# HERE" in row)
    assert [(f.location.line, f.severity) for f in found if f.location is not None] == [(line, severity)]


@pytest.mark.parametrize("text", HEALTHY.values(), ids=HEALTHY)
def test_what_looks_like_it_is_left_alone(text: str) -> None:
    """No finding, and no note."""
    _, found = _found(text)
    assert found == []


def test_parameters_become_a_list() -> None:
    """They are few, and the same each time."""
    text = """
    def train(model, loader):
        params = filter(
            lambda p: p.requires_grad, model.parameters()
        )
        opt = optim.Adam(params)
        for x in loader:
            torch.nn.utils.clip_grad_norm_(params, 1.0)
    """
    removed, put = fixed("TRN137", text)
    assert removed == ["    params = filter(", "    )"]
    assert put == ["    params = list(filter(", "    ))"]


def test_data_is_made_again_in_each_epoch() -> None:
    """A list would hold all batches, and give them in one order."""
    text = """
    def train(model, loader, other):
        pairs = zip(loader, other)
        for epoch in range(3):
            for a, b in pairs:
                model(a).backward()
    """
    removed, put = fixed("TRN137", text)
    assert (removed, put) == (["    pairs = zip(loader, other)"], ["        pairs = zip(loader, other)"])


@pytest.mark.parametrize(
    "text",
    [
        # What it is made of changes before the loop.
        "pairs = zip(loader, loader)\nloader = None\nfor e in range(3):\n    for a, b in pairs:\n        model(a)\n",
        # The loop over batches is no statement of the loop over epochs.
        "pairs = zip(loader, loader)\nfor e in range(3):\n    with torch.no_grad():\n        for a, b in pairs:\n"
        "            model(a)\n",
        # A name for `list` of the program's own.
        "list = tuple\nps = model.parameters()\nopt = optim.Adam(ps)\nfor p in ps:\n    p.requires_grad = False\n",
    ],
)
def test_what_is_not_sure_to_be_right_is_left_to_the_reader(text: str) -> None:
    """A finding without an edit."""
    _, found = _found(text)
    assert [f.remedy.edits for f in found] == [[]]
