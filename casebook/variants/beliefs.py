"""What people believe of their programs and is not so, by the code of the fault that it defends."""

from __future__ import annotations

BELIEFS = {
    "MEM101": [
        "Detaching here would break the gradient, so the loss is kept as it is.",
        "It is one number: no memory.",
    ],
    "MEM102": ["Memory that grows at first is normal: PyTorch's allocator is still warming up."],
    "MEM103": [
        "The state must carry its graph, else nothing is learned over time.",
        "retain_graph is needed for that.",
    ],
    "MEM104": ["eval() has switched gradients off, so no graph is built here."],
    "MEM105": ["Reference counting frees this as soon as the step is over."],
    "MEM106": ["Registering a hook again replaces the one before."],
    "MEM107": ["ctx is thrown away after backward, so anything may be kept on it."],
    "MEM108": ["An exception is only a message, a few bytes."],
    "MEM109": ["retain_graph is needed, or the penalty's gradient is lost."],
    "MEM110": ["create_graph is needed here; backward frees what it made."],
    "MEM111": ["The cache stays small: tensors with equal values are one entry."],
    "MEM112": ["After backward() the graph is gone, so losses may be kept."],
    "MEM113": ["A view of one element holds one element."],
    "MEM114": ["cycle() starts the loader again; it keeps nothing."],
    "MEM116": ["The sparse optimizer clears its gradients by itself."],
    "MEM202": ["Rebinding the name in the next step frees this before anything new is made."],
    "MEM203": ["Zeroing in place saves memory: nothing is allocated anew."],
    "MEM204": ["Shapes are broadcast as they should be; the warning about sizes is noise."],
    "MEM207": ["Written out by hand, attention uses no more memory than the built-in one."],
    "MEM301": ["Fragmentation is a matter of the allocator: nothing in this program decides it."],
    "MEM302": ["empty_cache() each step keeps memory low; without it we would run out."],
    "MEM303": ["Sorting by length wastes the least memory."],
    "MEM304": ["The card has 24 GB and the model 40 MB, so the batch cannot be the reason."],
    "TRN101": ["Gradients are cleared by step()."],
    "TRN104": ["step() computes gradients if there are none."],
    "TRN105": ["The optimizer looks the parameters up anew in each step."],
    "TRN106": ["requires_grad=True is all that the gradient needs."],
    "NUM101": ["A NaN here comes from a learning rate that is too high."],
    "NUM103": ["1e-8 is the usual epsilon and safe in every precision."],
    "NUM106": ["softmax ignores what is masked, also if all is masked."],
    "DEV101": ["The model's device is where all of this is."],
    "DEV102": ["to() moves every tensor of a module, plain attributes too."],
    "DEV104": ["This fails somewhere in CUDA: the driver must be too old."],
    "DEV108": ["load_state_dict takes the memory of the checkpoint over."],
    "DEV110": ["to() moves the tensor in place."],
}
"""For some codes; the rest have those of their family."""

FAMILIES = {
    "MEM": ["Memory growth is normal here: the allocator keeps what it once had."],
    "AMP": ["The scaler takes care of everything in this place; this is how the tutorial does it."],
    "NUM": ["Checked by hand on one batch: the numbers are right, so the fault must be in the data."],
    "TRN": ["Checked with a colleague: this is right. If nothing is learned, the learning rate is too small."],
    "DEV": ["It ran on the CPU, so it must be the driver."],
    "OPS": ["This costs nothing: the GPU works while Python goes on."],
}


def belief(code: str) -> list[str]:
    """The comment's lines."""
    return BELIEFS.get(code) or FAMILIES.get(code[:3]) or ["This is as it should be."]
