// torch.ops.envcheck_fused_elementwise.forward, once the built library is loaded.

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "kernel.h"

namespace {

Dtype dtype_of(const at::Tensor& tensor) {
    switch (tensor.scalar_type()) {
        case at::kFloat:
            return Dtype::fp32;
        case at::kHalf:
            return Dtype::fp16;
        case at::kBFloat16:
            return Dtype::bf16;
        default:
            TORCH_CHECK(false, "no kernel for ", tensor.scalar_type());
    }
}

// Writes into `out`, so that a caller can see which elements were not written.
void forward(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual, double scale,
             const at::Tensor& out) {
    TORCH_CHECK(x.dim() == 2, "x must have two dimensions");
    TORCH_CHECK(bias.dim() == 1 && bias.size(0) == x.size(1), "bias must be as long as a row");
    TORCH_CHECK(residual.sizes() == x.sizes() && out.sizes() == x.sizes(), "sizes differ");
    for (const auto* tensor : {&x, &bias, &residual, &out}) {
        TORCH_CHECK(tensor->is_contiguous() && tensor->device() == x.device() &&
                        tensor->scalar_type() == x.scalar_type(),
                    "tensors must be contiguous, on one device and of one type");
    }
    const c10::cuda::CUDAGuard guard(x.device());
    C10_CUDA_CHECK(fused_elementwise(dtype_of(x), x.const_data_ptr(), bias.const_data_ptr(),
                                     residual.const_data_ptr(), out.mutable_data_ptr(), x.size(0),
                                     x.size(1), static_cast<float>(scale),
                                     c10::cuda::getCurrentCUDAStream().stream()));
}

}  // namespace

TORCH_LIBRARY(envcheck_fused_elementwise, library) {
    library.def("forward(Tensor x, Tensor bias, Tensor residual, float scale, Tensor(a!) out) -> ()");
}

TORCH_LIBRARY_IMPL(envcheck_fused_elementwise, CUDA, library) {
    library.impl("forward", &forward);
}
