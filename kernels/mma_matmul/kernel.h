#pragma once

#include <cuda_runtime_api.h>

enum class Dtype { fp16, bf16 };

// c[m][n] = sum over k of a[m][k] * w[n][k], all three row by row without gaps.
cudaError_t mma_matmul(Dtype dtype, const void* a, const void* w, void* c, int m, int n, int k,
                       cudaStream_t stream);
