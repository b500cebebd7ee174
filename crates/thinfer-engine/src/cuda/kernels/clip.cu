// The factor min(1, most / |g|) of `clip_factor` in arena.rs, over elements whose mark has one of the bits
// `among` and none of the bits `except`.
//
// Two launches. Which element goes to which thread, and the order of all sums, depend on n and the
// launch alone, so the factor has the same bits every time. Sums are in double.
#ifndef THREADS
#define THREADS 256
#endif

INLINE double block_sum(double mine) {
    __shared__ double sums[THREADS];
    sums[threadIdx.x] = mine;
    __syncthreads();
    for (u32 half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    return sums[0];
}

INLINE double square(float g, u32 mark, u32 among, u32 except) {
    return mark & among && !(mark & except) ? (double)g * (double)g : 0.0;
}

// Launch with blocks of 256 threads; `partial` has one number a block.
extern "C" __global__ void __launch_bounds__(THREADS) clip_partial(
    const float* __restrict__ g, const unsigned char* __restrict__ marks, u32 n, double* __restrict__ partial,
    u32 among, u32 except)
{
    double sum = 0.0;
    const u32 thread = blockIdx.x * THREADS + threadIdx.x;
    for (u32 i = thread; i < n / 4u; i += gridDim.x * THREADS) {
        float4 x = ((const float4*)g)[i];
        uchar4 mark = ((const uchar4*)marks)[i];
        sum += (square(x.x, mark.x, among, except) + square(x.y, mark.y, among, except))
            + (square(x.z, mark.z, among, except) + square(x.w, mark.w, among, except));
    }
    u32 tail = n / 4u * 4u + thread;
    if (tail < n) sum += square(g[tail], marks[tail], among, except);
    sum = block_sum(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// One block of 256 threads. `clipped` counts the steps whose gradient was scaled down.
extern "C" __global__ void __launch_bounds__(THREADS) clip_factor(
    const double* __restrict__ partial, u32 count, double most, float* factor, u32* clipped)
{
    double sum = 0.0;
    for (u32 i = threadIdx.x; i < count; i += THREADS) sum += partial[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        double norm = sqrt(sum);
        bool longer = norm > most;
        *factor = longer ? (float)(most / norm) : 1.0f;
        if (longer) *clipped += 1u;
    }
}
