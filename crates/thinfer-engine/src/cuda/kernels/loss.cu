// Loss heads. One warp a row; the last block adds the rows in their order.
// `tally`: sum of batch means, rows answered right, batches, batches that were not finite.
struct Head { u32 rows, outputs; float smoothing, log_sigma; };

__device__ __forceinline__ float warp_sum(float v) {
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}

extern "C" __global__ void loss_head(const float* output, const void* targets, act* d,
                                     float* by_row, u32* counter, const float* log_sigma,
                                     float* dlog_sigma, double* tally, float* losses,
                                     const u32* step, Head h) {
    __shared__ bool last;
    __shared__ double sums[3][32];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const u32 row = blockIdx.x * warps + warp;
    const float weight = 1.f / (float)h.rows;
    if (row < h.rows) {
        const float* f = output + (size_t)row * h.outputs;
        act* g = d + (size_t)row * h.outputs;
        float loss = 0.f, extra = 0.f;
#if HEAD == 0
        const u32 y = (u32)((const int*)targets)[row];
        float most = -__int_as_float(0x7f800000);
        u32 best = 0;
        for (u32 j = lane; j < h.outputs; j += 32)
            if (f[j] > most) { most = f[j]; best = j; }
        for (int o = 16; o > 0; o >>= 1) {
            const float m = __shfl_xor_sync(~0u, most, o);
            const u32 b = __shfl_xor_sync(~0u, best, o);
            if (m > most || (m == most && b < best)) { most = m; best = b; }
        }
        float sum = 0.f, mean = 0.f;
        for (u32 j = lane; j < h.outputs; j += 32) {
            sum += expf(f[j] - most);
            mean += f[j] - most;
        }
        sum = warp_sum(sum);
        mean = warp_sum(mean) / (float)h.outputs;
        const float log_sum = logf(sum);
        const float right = y < h.outputs ? f[y] - most : __int_as_float(0x7fc00000);
        loss = log_sum - (1.f - h.smoothing) * right - h.smoothing * mean;
        extra = best == y ? 1.f : 0.f;
        const float share = h.smoothing / (float)h.outputs;
        for (u32 j = lane; j < h.outputs; j += 32) {
            const float p = expf(f[j] - most - log_sum);
            g[j] = down((p - share - (j == y ? 1.f - h.smoothing : 0.f)) * weight);
        }
#elif HEAD == 1
        const float* y = (const float*)targets + (size_t)row * h.outputs;
        const float ls = log_sigma ? *log_sigma : h.log_sigma;
        const float precision = expf(-2.f * ls);
        for (u32 j = lane; j < h.outputs; j += 32) {
            const float r = f[j] - y[j], scaled = r * precision;
            g[j] = down(scaled * weight);
            loss += 0.5f * scaled * r + ls;
            extra += 1.f - scaled * r;
        }
        loss = warp_sum(loss);
        extra = warp_sum(extra);
#else
        const float y = ((const float*)targets)[row], v = f[0];
        loss = fmaxf(v, 0.f) + log1pf(expf(-fabsf(v))) - y * v;
        extra = (v > 0.f) == (y > 0.5f) ? 1.f : 0.f;
        if (lane == 0) g[0] = down((1.f / (1.f + expf(-v)) - y) * weight);
#endif
        if (lane == 0) {
            by_row[2 * row] = loss;
            by_row[2 * row + 1] = extra;
        }
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(counter, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    double a = 0, b = 0;
    for (u32 i = threadIdx.x; i < h.rows; i += blockDim.x) {
        a += (double)__ldcg(by_row + 2 * i);
        b += (double)__ldcg(by_row + 2 * i + 1);
    }
    for (int o = 16; o > 0; o >>= 1) {
        a += __shfl_xor_sync(~0u, a, o);
        b += __shfl_xor_sync(~0u, b, o);
    }
    if (lane == 0) { sums[0][warp] = a; sums[1][warp] = b; }
    __syncthreads();
    if (threadIdx.x != 0) return;
    a = b = 0;
    for (u32 i = 0; i < warps; i++) { a += sums[0][i]; b += sums[1][i]; }
    const double mean = a / (double)h.rows;
    tally[0] += mean;
    tally[2] += 1;
    if (!(mean - mean == 0)) tally[3] += 1;
#if HEAD == 1
    if (dlog_sigma) *dlog_sigma = (float)(b / (double)h.rows);
#else
    tally[1] += b;
#endif
    if (losses) losses[step ? *step : 0] = (float)mean;
    *counter = 0;
}
