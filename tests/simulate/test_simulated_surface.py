"""What programs ask of `torch.cuda` beside tensors, and what they are called back with."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn


def test_constructors_and_types_from_before_devices() -> None:
    for made in (
        torch.cuda.FloatTensor(2, 3),  # type: ignore[attr-defined]
        torch.cuda.FloatTensor([[1, 2, 3]]),  # type: ignore[attr-defined]
        torch.cuda.FloatTensor(numpy.ones((1, 3))),  # type: ignore[attr-defined]
        torch.ones(2).type("torch.cuda.FloatTensor"),
        torch.ones(2).cuda().new(2, 3),
    ):
        assert made.is_cuda and made.dtype is torch.float32
        assert isinstance(made, torch.cuda.FloatTensor)  # type: ignore[attr-defined]
    assert not isinstance(torch.ones(2), torch.cuda.FloatTensor)  # type: ignore[attr-defined]
    assert not isinstance(torch.ones(2).cuda(), (torch.FloatTensor, torch.cuda.LongTensor))  # type: ignore[attr-defined]
    torch.set_default_tensor_type("torch.cuda.HalfTensor")
    assert torch.ones(2).is_cuda and torch.ones(2).dtype is torch.float16
    torch.set_default_tensor_type("torch.FloatTensor")
    assert not torch.ones(2).is_cuda and torch.ones(2).dtype is torch.float32


def test_callbacks_may_name_devices() -> None:
    class Doubled(torch.autograd.Function):
        """Makes tensors in its backward pass."""

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * (torch.ones(3).cuda() + torch.ones(3).to("cuda:0", non_blocking=True))

    x = torch.ones(3, device="cuda", requires_grad=True)
    x.register_hook(lambda gradient: gradient + torch.as_tensor([1.0, 1.0, 1.0], device="cuda"))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.cpu(), lambda t: t.cuda()):
        y = Doubled.apply(x * x)  # type: ignore[no-untyped-call]
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [5.0, 5.0, 5.0]
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        (x * x).sum().backward()


def test_streams_are_current_where_they_are_entered() -> None:
    stream = torch.cuda.Stream(priority=-1)
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
    assert torch.cuda.current_stream() == torch.cuda.default_stream() != stream
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    end.record(stream)
    assert start.elapsed_time(end) >= 0 and stream.query() and "torch.cuda.Stream" in repr(stream)
    assert isinstance(torch.Stream(device="cuda"), torch.cuda.Stream)


def test_properties_and_backends_answer() -> None:
    card = torch.cuda.get_device_properties("cuda:1")
    assert "_CudaDeviceProperties(name=" in repr(card) and card.total_memory == 24 << 30 and card.L2_cache_size > 0
    assert torch.backends.cudnn.is_available() and torch.backends.cudnn.version() > 90000
    with torch.backends.cudnn.flags(enabled=False):
        pass
    assert torch.get_device_module() is torch.cuda and torch.backends.cuda.is_built()
    torch.cuda.nvtx.range_push("step")
    torch.cuda.nvtx.range_pop()
    torch.cuda.profiler.start()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]):
        torch.ones(2, device="cuda")


def test_generators_belong_to_a_kind_of_device() -> None:
    host, device = torch.Generator(), torch.Generator("cuda").manual_seed(1)
    first = torch.rand(2, device="cuda", generator=device)
    assert torch.equal(first, torch.rand(2, device="cuda", generator=device.manual_seed(1)))
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"):
        torch.rand(2, device="cuda", generator=host)
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'cuda'"):
        torch.rand(2, generator=device)


def test_data_parallel_trains_on_two_devices() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    alone = nn.Linear(3, 2)
    alone.load_state_dict(model.state_dict())
    x = torch.randn(4, 3)
    parallel = nn.DataParallel(model.cuda())
    out = parallel(x)
    out.square().sum().backward()
    alone(x).square().sum().backward()
    assert out.device == torch.device("cuda:0") and out.shape == (4, 2)
    for found, wanted in zip(model.parameters(), alone.parameters(), strict=True):
        assert found.grad is not None and wanted.grad is not None
        torch.testing.assert_close(found.grad.cpu(), wanted.grad)


def test_what_cannot_be_simulated_says_so() -> None:
    from torchvet.simulate.refusals import asked

    def captured() -> None:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            pass

    refused = (
        captured,
        lambda: torch.cuda.jiterator._create_jit_fn("template <typename T> T f(T x) { return x; }")(torch.ones(1)),
        lambda: torch.distributed.init_process_group("nccl"),
        lambda: torch.nested.nested_tensor([torch.ones(2)], device="cuda"),
    )
    for ask in refused:
        with pytest.raises(RuntimeError, match="not simulated"):
            ask()
    with pytest.warns(UserWarning, match=r"torch\.compile is not simulated"):
        model = torch.compile(nn.Linear(2, 2).cuda())
    assert model(torch.ones(1, 2, device="cuda")).is_cuda and hasattr(model, "_orig_mod")
    assert {"CUDA graphs", "NCCL", "torch.compile", "torch.cuda.jiterator"} <= set(asked)


def test_errors_are_cudas() -> None:
    convolution, image = nn.Conv2d(1, 1, 1), torch.ones(1, 1, 2, 2)
    with pytest.raises(
        RuntimeError, match=r"Input type \(torch.cuda.FloatTensor\) and weight type \(torch.FloatTensor"
    ):
        convolution(image.cuda())
    with pytest.raises(RuntimeError, match=r"Input type \(torch.FloatTensor\) and weight type \(torch.cuda.FloatTen"):
        convolution.cuda()(image)
    with pytest.raises(torch.AcceleratorError, match="device-side assert"):
        F.embedding(torch.tensor([5], device="cuda"), torch.ones(2, 2, device="cuda"))
    with pytest.raises(IndexError):
        torch.ones(3, device="cuda")[5]
    with pytest.raises(IndexError, match="Dimension out of range"):
        torch.ones(3, device="cuda").index_select(2, torch.tensor([0], device="cuda"))
    with pytest.raises(RuntimeError, match="'lengths' argument should be a 1D CPU int64 tensor"):
        nn.utils.rnn.pack_padded_sequence(torch.ones(2, 1, 1, device="cuda"), torch.tensor([2], device="cuda"))


def test_what_wants_lengths_on_the_host_gets_them() -> None:
    packed = nn.utils.rnn.pack_padded_sequence(torch.ones(3, 2, 4, device="cuda"), torch.tensor([3, 2]))
    states, lengths = nn.utils.rnn.pad_packed_sequence(nn.LSTM(4, 5).cuda()(packed)[0])
    assert states.is_cuda and not lengths.is_cuda
    chances = torch.randn(10, 2, 5, device="cuda").log_softmax(2)
    assert F.ctc_loss(chances, torch.ones(2, 3).long().cuda(), torch.tensor([10, 9]), torch.tensor([3, 2])).is_cuda


def test_functional_transforms_see_the_device() -> None:
    x = torch.randn(2, device="cuda")
    assert torch.func.hessian(lambda v: (v**3).sum())(x).is_cuda
    per_sample = torch.func.vmap(torch.func.grad(lambda v: (v**2).sum()))(x[:, None])
    torch.testing.assert_close(per_sample, 2 * x[:, None])
    assert torch.from_dlpack(torch.utils.dlpack.to_dlpack(x)).data_ptr() == x.data_ptr()


@pytest.mark.parametrize("workers", [0, 1])
def test_pinned_batches_are_remembered(workers: int) -> None:
    data = torch.utils.data.TensorDataset(torch.arange(4.0))
    for (batch,) in itertools.islice(torch.utils.data.DataLoader(data, 2, pin_memory=True, num_workers=workers), 2):
        assert batch.is_pinned() and batch.to("cuda", non_blocking=True).is_cuda


def test_devices_are_seeded_apart_only_where_the_program_asks_for_it() -> None:
    torch.manual_seed(3)
    torch.cuda.manual_seed_all(3)  # what programs do one after the other: nothing comes of the second
    both = torch.randn(4, device="cuda"), F.dropout(torch.ones(8, device="cuda"))
    torch.manual_seed(3)
    assert both[0].tolist() == torch.randn(4).tolist() and both[1].tolist() == F.dropout(torch.ones(8)).tolist()
    host = torch.get_rng_state()
    torch.cuda.manual_seed(5)
    first = torch.randn(4, device="cuda"), torch.ones(3, device="cuda").normal_(), torch.cuda.get_rng_state()
    assert torch.equal(host, torch.get_rng_state()) and torch.cuda.initial_seed() == 5
    torch.cuda.manual_seed(5)
    assert torch.randn(4, device="cuda").tolist() == first[0].tolist()
    assert torch.ones(3, device="cuda").normal_().tolist() == first[1].tolist()
    drawn = torch.rand(2, device="cuda")
    torch.cuda.set_rng_state(first[2])
    assert torch.rand(2, device="cuda").tolist() == drawn.tolist()
    torch.manual_seed(3)
    assert torch.randn(4, device="cuda").tolist() == both[0].tolist()
    torch.cuda.manual_seed(3)  # devices have drawn since: it is meant
    assert torch.randn(4, device="cuda").tolist() == both[0].tolist()


def test_checkpointing_repeats_dropout_of_a_device_seeded_apart() -> None:
    torch.manual_seed(0)
    torch.cuda.manual_seed(11)
    layer = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)).cuda()
    x = torch.ones(2, 8, device="cuda", requires_grad=True)
    out = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
    out.sum().backward()
    kept = (out != 0).float()
    assert x.grad is not None and torch.allclose(x.grad, 2 * kept @ layer[0].weight)


def test_devices_by_number_and_types_by_name() -> None:
    assert str(torch.device(1)) == "cuda:1" and torch.device(0) == torch.device("cuda", 0)
    assert torch.ones(1, device=torch.device(1)).device.index == 1
    loaded = pickle.loads(pickle.dumps(torch.ones(3, device="cuda:1")))
    assert loaded[:2].tolist() == [1, 1] and loaded.device.index == 1
    x = torch.ones(2, device="cuda")
    assert isinstance(x, torch.Tensor) and torch.is_tensor(x) and str(type(x)) == "<class 'torch.Tensor'>"
    assert "PyTorch CUDA memory summary, device ID 0" in torch.cuda.memory_summary()
    assert "device ID 1" in torch.cuda.memory_summary(1, abbreviated=True)


def test_a_leaf_in_a_compressed_sparse_layout_gets_the_gradient_that_the_cpu_gives() -> None:
    values = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    found = []
    for where in ("cpu", "cuda"):
        weight = values.to_sparse_csr().to(where).requires_grad_()
        (weight @ torch.ones(2, 3, device=where)).sum().backward()
        (torch.sparse.mm(weight.detach(), torch.ones(2, 3, device=where))).sum()
        assert weight.grad is not None
        found.append((weight.grad.layout, weight.grad.tolist()))
    assert found[0] == found[1]


REFUSED_AS_NONDETERMINISTIC = {
    "max_pool3d_with_indices_backward_cuda": lambda x: F.max_pool3d(x[None, None], 2).sum().backward(),
    "adaptive_avg_pool2d_backward_cuda": lambda x: F.adaptive_avg_pool2d(x, 3).sum().backward(),
    "reflection_pad1d_backward_out_cuda": lambda x: F.pad(x, (1, 1), "reflect").sum().backward(),
    "_bincount_cuda": lambda x: torch.bincount(torch.ones(2, dtype=torch.long, device="cuda"), x[0, 0, :2]),
    "_histc_cuda with floating point input": lambda x: x.histc(3),
    "median CUDA with indices output": lambda x: x.median(0),
    "put_": lambda x: x.detach().put_(
        torch.zeros(2, dtype=torch.long, device="cuda"), x[0, 0, :2].clone(), accumulate=True
    ),
    "embedding_bag_backward_cuda_max": lambda x: (
        nn.EmbeddingBag(3, 2, mode="max").cuda()(torch.zeros(1, 2, dtype=torch.long, device="cuda")).sum().backward()
    ),
}
DETERMINISTIC = {
    "interpolation": lambda x: F.interpolate(x[None], scale_factor=2.0, mode="bilinear").sum().backward(),
    "pooling": lambda x: F.avg_pool2d(x, 2).sum().backward(),
    "without a gradient": lambda x: F.adaptive_avg_pool2d(x, 3),
    "counts": lambda x: torch.bincount(torch.ones(2, dtype=torch.long, device="cuda")),
    "values alone": lambda x: (x.median(), x.cumsum(0)),
    "another mode": lambda x: (
        nn.EmbeddingBag(3, 2).cuda()(torch.zeros(1, 2, dtype=torch.long, device="cuda")).sum().backward()
    ),
}


@pytest.mark.parametrize("operator", REFUSED_AS_NONDETERMINISTIC)
def test_what_is_not_deterministic_on_cuda_is_refused_where_that_was_asked_for(operator: str) -> None:
    run = REFUSED_AS_NONDETERMINISTIC[operator]
    x = torch.randn(4, 6, 6, device="cuda", requires_grad=True)
    run(x)
    try:
        torch.use_deterministic_algorithms(True)
        with pytest.raises(RuntimeError, match=f"^{operator} does not have a deterministic implementation"):
            run(x)
        torch.use_deterministic_algorithms(True, warn_only=True)
        with pytest.warns(UserWarning, match=f"^{operator} does not have a deterministic implementation"):
            run(x)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("what", DETERMINISTIC)
def test_what_is_deterministic_is_done(what: str) -> None:
    try:
        torch.use_deterministic_algorithms(True)
        DETERMINISTIC[what](torch.randn(4, 6, 6, device="cuda", requires_grad=True))
    finally:
        torch.use_deterministic_algorithms(False)


def test_storages_are_made_of_numbers_and_move_to_pinned_memory() -> None:
    made = torch.UntypedStorage([1, 2, 3], device="cuda")
    assert made.is_cuda and made.nbytes() == 3 and made.cpu().tolist() == [1, 2, 3]
    assert torch.UntypedStorage(device="cuda").nbytes() == 0
    assert made.to(device="cpu", non_blocking=True).is_pinned() and not made.to(device="cpu").is_pinned()


def test_results_are_written_on_the_device_alone_and_capsules_go_back_to_it() -> None:
    x = torch.ones(2, 2, device="cuda")
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.nonzero(x, out=torch.empty((), dtype=torch.long))
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.add(x.sum(), x.sum(), out=torch.empty(()))
    out = torch.empty((), device="cuda")
    assert torch.add(x.sum(), torch.tensor(1.0), out=out) is out and out.item() == 5
    capsule = torch.utils.dlpack.to_dlpack(x)
    assert torch.asarray(capsule).data_ptr() == x.data_ptr() and torch.asarray([1.0]).device.type == "cpu"


def test_indices_into_nothing_are_an_error_of_python() -> None:
    with pytest.raises(IndexError, match="is out of bounds for dimension with size 0"):
        torch.empty(10, 0, device="cuda")[:, [0, 1]]
    with pytest.raises(torch.AcceleratorError, match="device-side assert"):
        torch.empty(10, 3, device="cuda")[:, [0, 5]]


def test_the_activation_of_a_product_is_cudas() -> None:
    bias, one, other = torch.randn(3).cuda(), torch.randn(2, 4).cuda(), torch.randn(4, 3).cuda()
    product = torch.addmm(bias, one, other)
    assert torch.equal(torch._addmm_activation(bias, one, other, use_gelu=True), F.gelu(product, approximate="tanh"))
    assert torch.equal(torch._addmm_activation(bias, one, other), product.relu())
    out = torch.empty(2, 3, device="cuda")
    torch._addmm_activation(bias, one, other, alpha=2, use_gelu=True, out=out)
    assert torch.equal(out, F.gelu(torch.addmm(bias, one, other, alpha=2), approximate="tanh"))


def test_libraries_may_be_preferred() -> None:
    before = torch.backends.cuda.preferred_linalg_library()
    after = torch.backends.cuda.preferred_linalg_library("cusolver")
    assert after is torch.backends.cuda.preferred_linalg_library() and "Cusolver" in str(after)
    torch.backends.cuda.preferred_blas_library("cublaslt")
    torch.linalg.inv(torch.eye(2, device="cuda"))
    torch.backends.cuda.preferred_linalg_library(before)


def test_what_only_the_cpu_cannot_do_is_refused_as_not_simulated() -> None:
    with pytest.raises(RuntimeError, match=r"not simulated. The CPU has no kernel .*\(torchvet's simulated GPU"):
        torch.ones(2, dtype=torch.complex64, device="cuda").nansum()
    with pytest.raises(NotImplementedError, match="_cuda\" not implemented for 'Half'"):
        torch.linalg.eigh(torch.eye(2, device="cuda").half())


def test_a_tensor_without_memory_is_called_by_its_own_device() -> None:
    with pytest.raises(RuntimeError, match="found at least two devices, cuda:0 and meta!"):
        torch.ones(2, device="cuda") + torch.ones(2, device="meta")


REFUSED_ON_WHOLE_NUMBERS = {
    "addmm_cuda": lambda x: x @ x,
    "baddbmm_cuda": lambda x: torch.bmm(x[None], x[None]),
    "dot": lambda x: x[0].dot(x[0]),
    "max_pool2d": lambda x: F.max_pool2d(x[None], 2),
    "upsample_bilinear2d_out_frame": lambda x: F.interpolate(x.byte()[None, None], size=(2, 2), mode="bilinear"),
}


@pytest.mark.parametrize("kernel", REFUSED_ON_WHOLE_NUMBERS)
def test_what_cuda_does_not_do_on_whole_numbers_is_refused(kernel: str) -> None:
    run = REFUSED_ON_WHOLE_NUMBERS[kernel]
    run(torch.arange(16).view(4, 4))
    with pytest.raises(NotImplementedError, match=f'"{kernel}" not implemented for'):
        run(torch.arange(16, device="cuda").view(4, 4))
    x = torch.arange(16, device="cuda").view(4, 4)
    assert (x * x).sum().item() == 1240 and x.float() @ x.float() is not None
    assert torch.sparse_coo_tensor([[0], [1]], [2], (2, 2), device="cuda").to_dense().sum().item() == 2
