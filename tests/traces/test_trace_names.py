"""What names in traces stand for: those of kernels, of driver calls and of the host's spans."""

from __future__ import annotations

import pytest

from torchvet.traces import kernels, names

ARITHMETIC = {
    "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn": "bf16 tensor cores",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute": "bf16 tensor cores",
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, cutlass::bfloat16_t>, float>": "bf16 tensor cores",
    "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn": "fp16 tensor cores",
    "Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1": "fp16 tensor cores",
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4>(Params)": "tf32 tensor cores",
    "ampere_sgemm_128x64_nn": "fp32 without tensor cores",
    "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1": "fp32 without tensor cores",
    "void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false>": "fp32 without tensor cores",
    "volta_dgemm_64x64_nn": "fp64",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>": "",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "",
    "void nchwToNhwcKernel<float, float, float, true, false>": "",
}
CALLS = {
    "cudaLaunchKernel": "launch", "cudaLaunchKernelExC": "launch", "cuLaunchKernelEx": "launch",
    "cudaGraphLaunch": "launch", "hipExtModuleLaunchKernel": "launch", "cudaStreamSynchronize": "sync",
    "hipDeviceSynchronize": "sync", "cudaEventSynchronize": "sync", "cudaMemcpyAsync": "copy",
    "hipMemcpyWithStream": "copy", "cudaMalloc": "allocate", "cudaFree": "allocate", "cuMemCreate": "allocate",
    "cudaEventQuery": "other", "cudaStreamWaitEvent": "other", "cudaStreamIsCapturing": "other",
}  # fmt: skip
SPANS = {
    "ProfilerStep#12": "step", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__": "data",
    "Optimizer.step#AdamW.step": "optimizer", "Optimizer.zero_grad#SGD.zero_grad": "optimizer",
    "autograd::engine::evaluate_function: AddmmBackward0": "backward", "NllLossBackward": "backward",
    "nccl:all_reduce": "collective", "gloo:all_reduce": "collective", "Python GC": "collector",
    "_compile.compile_inner (dynamo_timed)": "compile", "aten::add": "operator", "## forward ##": "operator",
}  # fmt: skip


@pytest.mark.parametrize(("name", "meant"), ARITHMETIC.items())
def test_the_arithmetic_of_a_kernel(name: str, meant: str) -> None:
    assert kernels._arithmetic(name) == meant


@pytest.mark.parametrize(("name", "meant"), CALLS.items())
def test_calls_into_the_driver(name: str, meant: str) -> None:
    assert names.call_kind(name) == meant


@pytest.mark.parametrize(("name", "meant"), SPANS.items())
def test_spans_of_the_host(name: str, meant: str) -> None:
    assert names.host_kind(name) == meant


def test_copies() -> None:
    assert names.direction("Memcpy HtoD (Pageable -> Device)") == "host-to-device"
    assert names.direction("CopyDeviceToHost") == "device-to-host"
    assert names.direction("Memcpy DtoD (Device -> Device)") == "device-to-device"
    assert names.is_pageable("Memcpy HtoD (Pageable -> Device)")
    assert not names.is_pageable("Memcpy HtoD (Pinned -> Device)")
