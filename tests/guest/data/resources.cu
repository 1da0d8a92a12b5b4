// Kernels that take registers, stack and shared memory in every way; see ask_resources.py.
#define KERNEL extern "C" __global__ void

KERNEL nothing(float* o) { o[threadIdx.x] = 1; }

KERNEL fixed(float* o) {
    __shared__ float x[100];
    x[threadIdx.x] = o[threadIdx.x];
    __syncthreads();
    o[threadIdx.x] = x[99 - threadIdx.x];
}

KERNEL asked(float* o) {
    extern __shared__ float y[];
    y[threadIdx.x] = o[threadIdx.x];
    __syncthreads();
    o[threadIdx.x] = y[99 - threadIdx.x];
}

KERNEL both(float* o) {
    __shared__ float x[300];
    extern __shared__ float y[];
    x[threadIdx.x] = y[threadIdx.x] = o[threadIdx.x];
    __syncthreads();
    o[threadIdx.x] = y[99 - threadIdx.x] + x[99 - threadIdx.x];
}

KERNEL array(float* o, int n) {
    float a[64];
    for (int i = 0; i < 64; i++) a[(i * n) & 63] = o[i];
    o[threadIdx.x] = a[n & 63];
}

KERNEL __launch_bounds__(1024) spilled(float* o) {
    float a[160];
#pragma unroll
    for (int i = 0; i < 160; i++) a[i] = o[i * 1024 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 160; i++) o[i * 1024 + threadIdx.x] = a[i] * a[159 - i];
}
