#include "kernel.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 4096;

__device__ float widen(float value) { return value; }
__device__ float widen(__half value) { return __half2float(value); }
__device__ float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ void narrow(float value, float& to) { to = value; }
__device__ void narrow(float value, __half& to) { to = __float2half_rn(value); }
__device__ void narrow(float value, __nv_bfloat16& to) { to = __float2bfloat16_rn(value); }

__device__ float gelu(float value) { return 0.5f * value * (1.0f + erff(value * 0.70710678f)); }

template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
    T values[kWidth];
};

// Each thread takes kWidth neighbours at a time; a row is a whole number of such packs.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    fused_kernel(const T* __restrict__ x, const T* __restrict__ bias,
                 const T* __restrict__ residual, T* __restrict__ y, int64_t packs,
                 int64_t packs_in_row, float scale) {
    using P = Pack<T, kWidth>;
    const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < packs;
         i += step) {
        const P in = reinterpret_cast<const P*>(x)[i];
        const P shift = reinterpret_cast<const P*>(bias)[i % packs_in_row];
        const P rest = reinterpret_cast<const P*>(residual)[i];
        P out;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
            const float sum = widen(in.values[k]) + widen(shift.values[k]);
            narrow(gelu(sum) * scale + widen(rest.values[k]), out.values[k]);
        }
        reinterpret_cast<P*>(y)[i] = out;
    }
}

template <typename T, int kWidth>
cudaError_t run(const void* x, const void* bias, const void* residual, void* y, int64_t rows,
                int64_t columns, float scale, cudaStream_t stream) {
    const int64_t packs = rows * columns / kWidth;
    const int64_t blocks = std::min((packs + kThreads - 1) / kThreads, kMaxBlocks);
    fused_kernel<T, kWidth><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
        static_cast<const T*>(x), static_cast<const T*>(bias), static_cast<const T*>(residual),
        static_cast<T*>(y), packs, columns / kWidth, scale);
    return cudaGetLastError();
}

template <typename T>
cudaError_t choose(const void* x, const void* bias, const void* residual, void* y, int64_t rows,
                   int64_t columns, float scale, cudaStream_t stream) {
    constexpr int kWidth = 16 / sizeof(T);
    const auto bits = reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(bias) |
                      reinterpret_cast<uintptr_t>(residual) | reinterpret_cast<uintptr_t>(y);
    if (bits % 16 == 0 && columns % kWidth == 0) {
        return run<T, kWidth>(x, bias, residual, y, rows, columns, scale, stream);
    }
    return run<T, 1>(x, bias, residual, y, rows, columns, scale, stream);
}

}  // namespace

cudaError_t fused_elementwise(Dtype dtype, const void* x, const void* bias, const void* residual,
                              void* y, int64_t rows, int64_t columns, float scale,
                              cudaStream_t stream) {
    if (rows == 0 || columns == 0) {
        return cudaSuccess;
    }
    switch (dtype) {
        case Dtype::fp32:
            return choose<float>(x, bias, residual, y, rows, columns, scale, stream);
        case Dtype::fp16:
            return choose<__half>(x, bias, residual, y, rows, columns, scale, stream);
        case Dtype::bf16:
            return choose<__nv_bfloat16>(x, bias, residual, y, rows, columns, scale, stream);
    }
    return cudaErrorInvalidValue;
}
