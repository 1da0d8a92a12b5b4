#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

enum class Dtype { fp32, fp16, bf16 };

// y = gelu(x + bias) * scale + residual, for `rows` rows of `columns` numbers.
cudaError_t fused_elementwise(Dtype dtype, const void* x, const void* bias, const void* residual,
                              void* y, int64_t rows, int64_t columns, float scale,
                              cudaStream_t stream);
