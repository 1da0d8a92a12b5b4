// torch.ops.envcheck_mma_matmul.forward, once the built library is loaded.

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <limits>

#include "kernel.h"

namespace {

Dtype dtype_of(const at::Tensor& tensor) {
    switch (tensor.scalar_type()) {
        case at::kHalf:
            return Dtype::fp16;
        case at::kBFloat16:
            return Dtype::bf16;
        default:
            TORCH_CHECK(false, "no kernel for ", tensor.scalar_type());
    }
}

// Writes into `out`, so that a caller can see which elements were not written.
void forward(const at::Tensor& a, const at::Tensor& w, const at::Tensor& out) {
    TORCH_CHECK(a.dim() == 2 && w.dim() == 2 && out.dim() == 2, "tensors must be matrices");
    TORCH_CHECK(a.size(1) == w.size(1) && out.size(0) == a.size(0) && out.size(1) == w.size(0),
                "sizes do not fit");
    for (const auto* tensor : {&a, &w, &out}) {
        TORCH_CHECK(tensor->is_contiguous() && tensor->device() == a.device() &&
                        tensor->scalar_type() == a.scalar_type(),
                    "tensors must be contiguous, on one device and of one type");
        TORCH_CHECK(tensor->size(0) <= std::numeric_limits<int>::max() / 2 &&
                        tensor->size(1) <= std::numeric_limits<int>::max() / 2,
                    "a side is too long");
    }
    const c10::cuda::CUDAGuard guard(a.device());
    C10_CUDA_CHECK(mma_matmul(dtype_of(a), a.const_data_ptr(), w.const_data_ptr(),
                              out.mutable_data_ptr(), static_cast<int>(a.size(0)),
                              static_cast<int>(w.size(0)), static_cast<int>(a.size(1)),
                              c10::cuda::getCurrentCUDAStream().stream()));
}

}  // namespace

TORCH_LIBRARY(envcheck_mma_matmul, library) {
    library.def("forward(Tensor a, Tensor w, Tensor(a!) out) -> ()");
}

TORCH_LIBRARY_IMPL(envcheck_mma_matmul, CUDA, library) {
    library.impl("forward", &forward);
}
