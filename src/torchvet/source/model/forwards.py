"""What running a module gives: whether its result carries a graph, part by part."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Literal

from torchvet.source.lazily import lazy
from torchvet.source.model.events import Event
from torchvet.source.model.units import ClassModel, Unit, receiver, terminal
from torchvet.source.syntax import given

if TYPE_CHECKING:
    from torchvet.source.model.file import SourceFile

Answer = Literal["yes", "no", "unknown"]

# What has no weights carries a graph only if its input does.
_WITHOUT_PARAMETERS = re.compile(
    r"^torch\.nn\.(ReLU\d?|LeakyReLU|ELU|SELU|CELU|GELU|SiLU|Mish|Softplus|Softsign|Tanh\w*|Sigmoid|LogSigmoid|Hard\w+|"
    r"Log[sS]oftmax|LogSoftmax|Soft(max|min|max2d|shrink)|Threshold|GLU|(Lp|Max|Avg|AdaptiveMax|AdaptiveAvg|FractionalMax)"
    r"(Un)?[pP]ool\dd|\w*Pad\dd|\w*Dropout\d?d?|Flatten|Unflatten|Identity|Upsample\w*|Upsampling\w*|Pixel(Uns|S)huffle|"
    r"(Unf|F)old|CosineSimilarity|PairwiseDistance|ChannelShuffle)$"
)
# In a class's text: names of layers, and of what makes whole models.
_LAYERS = re.compile(
    r"\b(Linear|LazyLinear|Conv\w*|Embedding\w*|LSTM\w*|GRU\w*|RNN\w*|\w*Norm\w*|Parameter|ParameterList|Transformer\w*|"
    r"Sequential|ModuleList|ModuleDict|MultiheadAttention|Bilinear|PReLU|from_pretrained|add_module|create_model|models)\b"
)
# `requires_grad_(False)` and `p.requires_grad = False`.
_FREEZING = re.compile(r"requires_grad(_\(\s*(requires_grad\s*=\s*)?|\s*=\s*)False")
_USED_AS_MODULE = ("eval", "train", "parameters", "state_dict", "load_state_dict", "zero_grad", "named_parameters")
_VALUES = re.compile(r"loss|logit|hidden|feat|emb|recon|logvar|^h\d?$|^h[_c]")
"""Names of results that are computed. A `pred` may be the labels, a `score` a number."""
RECURRENT = {f"torch.nn.{kind}{cell}" for kind in ("LSTM", "GRU", "RNN") for cell in ("", "Cell")}
# With a `dim` these give values and indices; indices carry no graph.
INDICES = {"max", "min", "topk", "sort", "median", "mode", "kthvalue", "cummax", "cummin", "nanmedian"}


class Forwards:
    """Answers for one file."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._by_use: dict[str, bool] = {}

    def runs_module(self, call: ast.Call, unit: Unit) -> bool:
        """Whether a call runs a module: one by its making, else one by name that is used as only modules are."""
        found = self._file.roles.of(call.func, unit)
        if found:
            # A criterion is a module too, and its call is no forward pass.
            return "module" in found and "criterion" not in found
        return self._file.roles.hinted("module", call.func) and self.used_as_module(call.func)

    def used_as_module(self, node: ast.expr) -> bool:
        """Whether something of that last identifier is trained, evaluated, saved or loaded in the file."""
        name = terminal(node)
        if name not in self._by_use:
            self._by_use[name] = bool(name) and any(
                terminal(receiver(event.call)) == name for event in self._file.calls(*_USED_AS_MODULE)
            )
        return self._by_use[name]

    @lazy
    def freezes(self) -> bool:
        """Whether anything of the file switches parameters' gradients off."""
        return self._file.mentions("requires_grad") and bool(_FREEZING.search(self._file.text))

    def kind(self, node: ast.expr, unit: Unit) -> str:
        """The dotted name of what made a module, where that is seen; empty otherwise."""
        for value, _ in self._file.roles.values(node, unit):
            while isinstance(value, ast.Call):
                dotted = self._file.dotted(value.func)
                if dotted.startswith("torch.nn."):
                    return dotted
                # `nn.Linear(3, 4).to(device)`: down to what was made.
                value = receiver(value)  # type: ignore[assignment]
        return ""

    def answer(self, call: ast.Call, event: Event, depth: int) -> Answer:
        """Whether a module's whole result carries a graph."""
        gradients = self._file.gradients
        on = gradients.enabled(event)
        made = call.func if isinstance(call.func, ast.Call) else None
        dotted = self._file.dotted(made.func) if made is not None else self.kind(call.func, event.unit)
        if on == "no":
            return "no"
        # After `on`, as without gradients its result has none either.
        if _WITHOUT_PARAMETERS.match(dotted):
            return gradients.any_of(given(call), event, depth)
        known = self.class_run(call, event.unit)
        if known is not None:
            return self._of_class(known, call, event, on, depth)
        return "unknown" if self.freezes else on

    def class_run(self, call: ast.Call, unit: Unit) -> ClassModel | None:
        """The class of this file whose forward a call runs."""
        if isinstance(call.func, ast.Call):
            return self._file.roles.class_named(call.func.func)
        return self._file.roles.class_of(call.func, unit)

    def _of_class(self, model: ClassModel, call: ast.Call, event: Event, on: Answer, depth: int) -> Answer:
        # As with an activation: only its input can bring a graph.
        if not self._has_parameters(model):
            return self._file.gradients.any_of(given(call), event, depth)
        forward = model.method("forward")
        # A forward runs other modules, whose forwards are asked in turn: the depth bounds that.
        if forward is not None and depth < 4 and self._file.gradients.of_function(forward, depth + 2) == "no":
            return "no"
        return "unknown" if self.freezes else on

    def _has_parameters(self, model: ClassModel) -> bool:
        """Whether a class makes layers; assumed where it inherits from what is not seen here."""
        if any(base not in self._file.classes and base.rpartition(".")[2] != "Module" for base in model.ancestors):
            return True
        for one in model.lineage:
            if _LAYERS.search(self._file.text_of(one)):
                return True
            if any(self._file.mentions(f"{other}(") and self._makes(one, other) for other in self._file.classes):
                return True
        return False

    def _makes(self, model: ClassModel, other: str) -> bool:
        return any(model.first < line <= model.last for line in self._file.lines_with(other))

    def contains(self, outer: ClassModel | None, inner: ClassModel | None) -> bool:
        """Whether a module is of a class, or makes one of that class somewhere below."""
        reached = [outer] if outer is not None else []
        # The list grows while it is gone through: classes that are reached are looked into as well.
        for one in reached:
            if one is inner:
                return True
            mentioned = (c for name, c in self._file.classes.items() if c not in reached and self._makes(one, name))
            reached.extend(mentioned)
        return False

    def part(self, call: ast.Call, target: ast.expr, number: int, of: int, event: Event, depth: int) -> Answer:
        """Whether one element of a call's result, taken apart into targets, carries a graph."""
        gradients = self._file.gradients
        if terminal(call) in INDICES and number == 1:
            return "no"
        whole = gradients.of_call(call, event, depth)
        # The first of several results is the output by custom; of the others only their name tells.
        if whole == "no" or number == 0 or not self.runs_module(call, event.unit):
            return whole
        # A recurrent layer's state carries the graph as its output does.
        if self.kind(call.func, event.unit) in RECURRENT:
            return whole
        known = self.class_run(call, event.unit)
        forward = known.method("forward") if known is not None else None
        if forward is not None and whole == "yes":
            return self._returned_part(forward, number, of, depth)
        return whole if _VALUES.search(terminal(target).lower()) else "unknown"

    def _returned_part(self, forward: Unit, number: int, of: int, depth: int) -> Answer:
        answers: set[Answer] = set()
        for value, event in forward.returned:
            if value is not None:
                # `return outputs` may be anything that can be taken apart.
                if not isinstance(value, ast.Tuple) or len(value.elts) != of or depth > 12:
                    return "unknown"
                answers.add(self._file.gradients.carries(value.elts[number], event, depth + 2))
        return answers.pop() if len(answers) == 1 else "unknown"


def takes_indices(node: ast.Subscript) -> bool:
    """`x.max(1)[1]`: the indices of a maximum, which carry no graph."""
    index = node.slice
    if not (isinstance(node.value, ast.Call) and terminal(node.value) in INDICES):
        return False
    return isinstance(index, ast.Constant) and index.value == 1
