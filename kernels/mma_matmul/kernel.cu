#include "kernel.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace {

// A block computes kTile x kTile numbers with 2 x 4 warps, each of them 64 x 32.
constexpr int kTile = 128, kDepth = 32, kStages = 4, kThreads = 256;
constexpr int kWarpRows = 64, kWarpColumns = 32;
// Shared memory is counted in chunks of 8 numbers, 16 bytes: what one cp.async brings.
constexpr int kChunk = 8, kChunksInRow = kDepth / kChunk;
constexpr int kTileNumbers = kTile * kDepth;
constexpr int kSharedBytes = kStages * 2 * kTileNumbers * 2;
static_assert(kSharedBytes == 65536, "more than the 48 KiB that need no opt-in");

// Rows are 64 bytes, so eight rows of one column of chunks would share two banks; turned by the
// row's number they spread over all of them.
__device__ int place(int row, int chunk) {
    return row * kDepth + (chunk ^ (row >> 1 & (kChunksInRow - 1))) * kChunk;
}

__device__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Copies 16 bytes of which only the first `bytes` are read; the rest becomes zero.
__device__ void copy_ahead(void* to, const void* from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes)
                 : "memory");
}

__device__ void load_fragments(uint32_t (&to)[4], const void* from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(from)));
}

__device__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, __half) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                         __nv_bfloat16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ void narrow(float value, __half& to) { to = __float2half_rn(value); }
__device__ void narrow(float value, __nv_bfloat16& to) { to = __float2bfloat16_rn(value); }

// Brings one tile of `rows` x `k` numbers from row `first`, column `start`; what lies outside is 0.
template <typename T, bool kAligned>
__device__ void fetch(T* tile, const T* from, int rows, int k, int first, int start) {
#pragma unroll
    for (int i = threadIdx.x; i < kTile * kChunksInRow; i += kThreads) {
        const int row = i / kChunksInRow, chunk = i % kChunksInRow;
        const int column = start + chunk * kChunk;
        const bool inside = first + row < rows && column < k;
        const int count = inside ? min(k - column, kChunk) : 0;
        const T* source = inside ? from + static_cast<int64_t>(first + row) * k + column : from;
        T* target = tile + place(row, chunk);
        if constexpr (kAligned) {
            copy_ahead(target, source, count * static_cast<int>(sizeof(T)));
        } else {
#pragma unroll
            for (int j = 0; j < kChunk; ++j) {
                if (j < count) {
                    target[j] = source[j];
                } else {
                    narrow(0.0f, target[j]);
                }
            }
        }
    }
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    matmul_kernel(const T* __restrict__ a, const T* __restrict__ w, T* __restrict__ c, int m, int n,
                  int k) {
    extern __shared__ __align__(128) unsigned char memory[];
    T* const tiles = reinterpret_cast<T*>(memory);
    const auto a_tile = [&](int stage) { return tiles + stage * 2 * kTileNumbers; };
    const auto w_tile = [&](int stage) { return a_tile(stage) + kTileNumbers; };
    const int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp / 4 * kWarpRows, warp_column = warp % 4 * kWarpColumns;
    const int steps = (k + kDepth - 1) / kDepth;
    float sums[kWarpRows / 16][kWarpColumns / 8][4] = {};

    const auto fetch_step = [&](int step) {
        if (step < steps) {
            fetch<T, kAligned>(a_tile(step % kStages), a, m, k, row, step * kDepth);
            fetch<T, kAligned>(w_tile(step % kStages), w, n, k, column, step * kDepth);
        }
        // An empty group too, so that groups count steps to the end.
        asm volatile("cp.async.commit_group;" ::: "memory");
    };

    for (int step = 0; step < kStages - 1; ++step) {
        fetch_step(step);
    }
    for (int step = 0; step < steps; ++step) {
        asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
        __syncthreads();  // all see this step's tiles, and none reads those that come next
        fetch_step(step + kStages - 1);
        const T* const as = a_tile(step % kStages);
        const T* const ws = w_tile(step % kStages);
#pragma unroll
        for (int part = 0; part < kDepth / 16; ++part) {
            uint32_t left[kWarpRows / 16][4], right[kWarpColumns / 16][4];
#pragma unroll
            for (int i = 0; i < kWarpRows / 16; ++i) {
                const int r = warp_row + i * 16 + lane % 16;
                load_fragments(left[i], as + place(r, part * 2 + lane / 16));
            }
#pragma unroll
            for (int j = 0; j < kWarpColumns / 16; ++j) {
                const int r = warp_column + j * 16 + lane / 16 * 8 + lane % 8;
                load_fragments(right[j], ws + place(r, part * 2 + lane / 8 % 2));
            }
#pragma unroll
            for (int i = 0; i < kWarpRows / 16; ++i) {
#pragma unroll
                for (int j = 0; j < kWarpColumns / 8; ++j) {
                    multiply(sums[i][j], left[i], right[j / 2][j % 2 * 2],
                             right[j / 2][j % 2 * 2 + 1], T());
                }
            }
        }
    }

#pragma unroll
    for (int i = 0; i < kWarpRows / 16; ++i) {
#pragma unroll
        for (int j = 0; j < kWarpColumns / 8; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int r = row + warp_row + i * 16 + lane / 4 + e / 2 * 8;
                const int q = column + warp_column + j * 8 + lane % 4 * 2 + e % 2;
                if (r < m && q < n) {
                    narrow(sums[i][j][e], c[static_cast<int64_t>(r) * n + q]);
                }
            }
        }
    }
}

template <typename T, bool kAligned>
cudaError_t run(const void* a, const void* w, void* c, int m, int n, int k, cudaStream_t stream) {
    const auto kernel = matmul_kernel<T, kAligned>;
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
    if (error != cudaSuccess) {
        return error;
    }
    const dim3 grid((n + kTile - 1) / kTile, (m + kTile - 1) / kTile);
    kernel<<<grid, kThreads, kSharedBytes, stream>>>(static_cast<const T*>(a),
                                                     static_cast<const T*>(w), static_cast<T*>(c),
                                                     m, n, k);
    return cudaGetLastError();
}

template <typename T>
cudaError_t choose(const void* a, const void* w, void* c, int m, int n, int k,
                   cudaStream_t stream) {
    const auto bits = reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(w);
    if (bits % 16 == 0 && k % kChunk == 0) {
        return run<T, true>(a, w, c, m, n, k, stream);
    }
    return run<T, false>(a, w, c, m, n, k, stream);
}

}  // namespace

cudaError_t mma_matmul(Dtype dtype, const void* a, const void* w, void* c, int m, int n, int k,
                       cudaStream_t stream) {
    if (m == 0 || n == 0) {
        return cudaSuccess;
    }
    switch (dtype) {
        case Dtype::fp16:
            return choose<__half>(a, w, c, m, n, k, stream);
        case Dtype::bf16:
            return choose<__nv_bfloat16>(a, w, c, m, n, k, stream);
    }
    return cudaErrorInvalidValue;
}
