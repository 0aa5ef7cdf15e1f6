"""How large tensors are, as far as source says: sizes that are written down, followed through calls and layers."""

from __future__ import annotations

import ast

from torchvet.rules.kit import SourceFile
from torchvet.rules.memory._sizes import Shape, after, broadcast, indexed, size_of, written
from torchvet.source.model import Event, Unit, is_call, is_name, name_set, origins, value_bound
from torchvet.source.syntax import argument, given, receiver, terminal

_SIZED = {"randn", "rand", "zeros", "ones", "empty", "randint", "full", "normal"}
_LIKE = {"zeros_like", "ones_like", "randn_like", "rand_like", "empty_like", "full_like"}
_KEEPING_LAYERS = name_set(
    "ReLU Tanh Sigmoid GELU SiLU LeakyReLU ELU Softplus Dropout LayerNorm BatchNorm1d Identity Softmax PReLU Hardtanh "
    "Mish SELU LogSoftmax"
)
_DEEPEST = 14
_MOST = 150
"""Expressions that are looked at for one answer: what needs more is not written for readers either."""


class Shapes:
    """Answers for one file."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._given: list[tuple[Unit, dict[str, Shape | None]]] = []
        self._left = 0

    def of(self, node: ast.AST | None, event: Event, depth: int = 0) -> Shape | None:
        """The sizes of an expression's value at an event; None where nothing is known."""
        # A new question: its own allowance.
        if depth == 0:
            self._left = _MOST
        self._left -= 1
        if depth > _DEEPEST or node is None or self._left < 0:
            return None
        if isinstance(node, ast.Name):
            return self._of_name(node, event, depth)
        if isinstance(node, ast.Call):
            return self._of_call(node, event, depth)
        if isinstance(node, ast.Subscript):
            return self._of_subscript(node, event, depth)
        if isinstance(node, ast.Attribute):
            return self._of_attribute(node, event, depth)
        if isinstance(node, ast.BinOp):
            return self._of_operator(node, event, depth)
        if isinstance(node, ast.UnaryOp):
            return self.of(node.operand, event, depth + 1)
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return ()
        return None

    def _of_operator(self, node: ast.BinOp, event: Event, depth: int) -> Shape | None:
        left, right = self.of(node.left, event, depth + 1), self.of(node.right, event, depth + 1)
        if left is None or right is None:
            return None
        if isinstance(node.op, ast.MatMult):
            # Of unknown dimensions it is not known which ones are multiplied.
            if ... in left or ... in right or not left or not right:
                return None
            return left[:-1] if len(right) == 1 else (*left[:-1], right[-1])
        return broadcast(left, right)

    # Names -----------------------------------------------------------------------------------------------------------

    def _of_name(self, node: ast.Name, event: Event, depth: int) -> Shape | None:
        unit = event.unit
        home = unit.home(node.id)
        if home is None:
            return None
        bound = [b for b in home.bindings.get(node.id, ()) if home is not unit or b.index < event.index]
        if not bound:
            # The innermost call that is being followed.
            given = next((g for where, g in reversed(self._given) if where is home), {})
            return given[node.id] if node.id in given else self._of_parameter(home, node.id, depth)
        last = bound[-1]
        # Bound in another arm: it is not what this event sees.
        if home is unit and not event.sure_after(last) and last.excludes(event):
            return None
        # Of another unit's bindings no order is known; `x += y` may broadcast.
        if (home is not unit and len(bound) > 1) or isinstance(last.node, ast.AugAssign):
            return None
        return self._of_binding(last, node.id, depth)

    def _of_parameter(self, home: Unit, name: str, depth: int) -> Shape | None:
        found: list[Shape | None] = []
        for call in self._file.callers(home):
            for value, where in self._file.arguments(home, name):
                # `arguments` gives values without their calls: the call is found by its value.
                if where is call.unit and value in given(call.call):
                    found.append(self.of(value, call, depth + 2))
        return found[0] if found and all(one == found[0] for one in found) else None

    def _of_binding(self, binding: Event, name: str, depth: int) -> Shape | None:
        node = binding.node
        value = value_bound(node, name)
        if value is not None:
            return self.of(value, binding, depth + 1)
        if isinstance(node, (ast.For, ast.AsyncFor)):
            return self._of_batch(node, name, binding, depth)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Tuple):
            return self._of_part(node, name, binding, depth)
        return None

    def _of_part(self, node: ast.Assign, name: str, binding: Event, depth: int) -> Shape | None:
        """`a, b = torch.randint(0, 9, (2, n))`: the first dimension is taken apart; `values, indices = x.max(1)`."""
        call = node.value
        assert isinstance(call, ast.Call)
        whole = self.of(call, binding, depth + 1)
        # Values and indices have the same shape.
        if terminal(call) in ("max", "min", "sort", "topk"):
            return whole
        dotted = self._file.dotted(call.func)
        if terminal(call) == "next" or whole is None or not dotted.startswith("torch."):
            return None
        # A tensor is taken apart along its first dimension.
        return whole[1:] if whole and whole[0] is not ... else None

    # Batches of loaders ----------------------------------------------------------------------------------------------

    def _of_batch(self, node: ast.For | ast.AsyncFor, name: str, binding: Event, depth: int) -> Shape | None:
        source: ast.expr = node.iter
        target: ast.expr = node.target
        while isinstance(source, ast.Call) and source.args and terminal(source) in ("enumerate", "tqdm"):
            if terminal(source) == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2:
                target = target.elts[1]
            source = source.args[0]
        names = [terminal(e) for e in target.elts] if isinstance(target, (ast.Tuple, ast.List)) else [terminal(target)]
        if name not in names or not self._file.roles.is_a("loader", source, binding.unit):
            return None
        parts = self._parts_of(source, binding.unit, depth)
        if parts is None or len(parts) != len(names):
            # The name stands for the size: two batches of one loader are as long.
            return ("batch", ...)  # whatever a sample is, batches of them have one dimension more
        return parts[names.index(name)]

    def _parts_of(self, loader: ast.expr, unit: Unit, depth: int) -> list[Shape | None] | None:
        """What a loader's batches consist of, where it goes over a `TensorDataset`."""
        for made, where in origins.made_by(loader, unit):
            if not is_call(made, "DataLoader") or not made.args:
                continue
            # A collate function of the program's own may give batches of any form.
            if any(k.arg in ("collate_fn", "batch_sampler") for k in made.keywords):
                return None
            for dataset, inside in origins.made_by(made.args[0], where):
                if is_call(dataset, "TensorDataset"):
                    whole = [self._seen_from(one, inside, dataset, depth) for one in dataset.args]
                    # A batch has other rows than the whole, and the same columns.
                    return [("batch", *s[1:]) if s and s[0] is not ... else ("batch", ...) for s in whole]
        return None

    def _seen_from(self, node: ast.expr, unit: Unit, call: ast.Call, depth: int) -> Shape | None:
        event = unit.call_of(call)
        return self.of(node, event, depth + 2) if event is not None else None

    # Calls -----------------------------------------------------------------------------------------------------------

    def _of_call(self, node: ast.Call, event: Event, depth: int) -> Shape | None:
        dotted, name, on = self._file.dotted(node.func), terminal(node), receiver(node)
        if dotted.startswith("torch.") or (on is None and name == "Variable"):
            if dotted.count(".") == 1 and name in (*_SIZED, "tensor", "arange", "linspace", "as_tensor", "randperm"):
                return written(node, name)
            operand, given = (node.args[0] if node.args else None), node.args[1:]
            if name in _LIKE:
                return self.of(operand, event, depth + 1)
        else:
            shape = self._through_module(node, event, depth)
            if shape is not _NO_MODULE or on is None:
                return None if shape is _NO_MODULE else shape  # type: ignore[return-value]
            operand, given = on, node.args
        return after(name, self.of(operand, event, depth + 1), given, node.keywords)

    def _through_module(self, node: ast.Call, event: Event, depth: int) -> Shape | object | None:
        """What a module of this file, or of `torch.nn`, makes of its argument."""
        if not node.args:
            return _NO_MODULE
        for made, where in origins.made_by(node.func, event.unit):
            if not isinstance(made, ast.Call):
                continue
            model = self._file.roles.class_named(made.func, where)
            forward = model.method("forward") if model is not None else None
            if forward is not None:
                return self._through_forward(forward, node, event, depth)
            if self._file.dotted(made.func).startswith("torch.nn."):
                return self._through_layer(made, where, self.of(node.args[0], event, depth + 1), depth)
        return _NO_MODULE

    def _through_forward(self, forward: Unit, node: ast.Call, event: Event, depth: int) -> Shape | None:
        # A module may run itself, or one of its kind: each `forward` is gone through once.
        if depth > 6 or any(where is forward for where, _ in self._given):
            return None
        shapes = [self.of(value, event, depth + 1) for value in node.args]
        # Without `self`.
        self._given.append((forward, dict(zip(forward.parameters[1:], shapes, strict=False))))
        returned = [e for e in forward.events if isinstance(e.node, ast.Return)]
        found = [self.of(e.node.value, e, depth + 2) for e in returned]  # type: ignore[attr-defined]
        # Before the answer is used: the next call of this module has other shapes.
        self._given.pop()
        return found[0] if found and all(one == found[0] for one in found) else None

    def _through_layer(self, made: ast.Call, unit: Unit, shape: Shape | None, depth: int) -> Shape | None:
        name = terminal(made)
        if name in ("Linear", "LazyLinear"):
            return _with_width(shape, argument(made, "out_features", 1 if name == "Linear" else 0))
        if name in _KEEPING_LAYERS:
            return shape
        if name == "Flatten" and not made.args:
            return (shape[0] if shape and shape[0] is not ... else None, None)
        if name != "Sequential" or depth >= 8:
            return None
        for layer in made.args:
            call = next((m for m, _ in origins.made_by(layer, unit) if isinstance(m, ast.Call)), None)
            shape = self._through_layer(call, unit, shape, depth + 1) if call is not None else None
        return shape

    # Parts -----------------------------------------------------------------------------------------------------------

    def _of_attribute(self, node: ast.Attribute, event: Event, depth: int) -> Shape | None:
        if node.attr in ("data", "values"):
            return self.of(node.value, event, depth + 1)
        own = is_name(node.value, event.unit.self_name())
        owner = event.unit.method_class() if own else None
        bound = owner.attributes.get(node.attr, []) if owner is not None else []
        if len(bound) == 1 and bound[0][1] is not None:
            return self.of(bound[0][1], bound[0][0], depth + 2)
        return None

    def _of_subscript(self, node: ast.Subscript, event: Event, depth: int) -> Shape | None:
        shape = self.of(node.value, event, depth + 1)
        taken = terminal(node.value) in ("max", "min", "sort", "topk") and isinstance(node.value, ast.Call)
        if taken and node.value.args and isinstance(node.slice, ast.Constant):  # type: ignore[attr-defined]
            return shape  # `x.max(1)[0]`: one of two results of the same size
        if shape and shape[0] is not ... and isinstance(node.slice, (ast.Name, ast.Subscript)):
            picked = self.of(node.slice, event, depth + 1)
            if picked is not None and len(picked) == 1 and ... not in picked:
                return (picked[0], *shape[1:])  # rows by their indices
        return None if shape is None else indexed(shape, node.slice)


def _with_width(shape: Shape | None, width: ast.expr | None) -> Shape:
    """The sizes of what a linear layer gives: all but the last stay."""
    if not shape:
        return (..., size_of(width))
    return (*(shape if shape[-1] is ... else shape[:-1]), size_of(width))


_NO_MODULE = object()
