// A block works on tx groups of V channels and strides over rows; a thread keeps its channels.
// Column sums are made in two stages: each block writes one partial row, and the last block to
// finish adds the partial rows in their order. Only a counter is atomic, so the bits never change.
#ifndef THREADS
#define THREADS 256
#endif
#define ROWS_AHEAD 4

struct Tile {
    u32 x, y, ty, group, first, step, c;
    bool active;
};

__device__ __forceinline__ Tile tile(u32 channels, u32 tx) {
    Tile t;
    t.x = threadIdx.x % tx;
    t.y = threadIdx.x / tx;
    t.ty = blockDim.x / tx;
    t.group = blockIdx.y * tx + t.x;
    t.active = t.group < channels / V;
    t.c = t.group * V;
    t.first = blockIdx.x * t.ty + t.y;
    t.step = gridDim.x * t.ty;
    return t;
}

// Adds two sets of column sums over the grid. True in the last block of this column of blocks,
// with the totals in `total[0 .. 2 * tx * V]`. tx is a power of two and the block has whole warps.
__device__ bool column_totals(const Tile& t, u32 tx, const float* s0, const float* s1,
                              float* partial, u32* counters, float* total) {
    __shared__ float rows[2 * THREADS * V];
    __shared__ bool last;
    const u32 columns = tx * V, items = 2 * columns;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    float* mine = partial + (size_t)(blockIdx.y * gridDim.x + blockIdx.x) * items;
    // The rows of a warp first, then its warps.
#pragma unroll
    for (int which = 0; which < 2; which++) {
        const float* s = which ? s1 : s0;
#pragma unroll
        for (int j = 0; j < V; j++) {
            float sum = t.active ? s[j] : 0.f;
            for (u32 d = tx; d < 32; d *= 2) sum += __shfl_xor_sync(~0u, sum, d);
            if (lane < tx) rows[warp * items + which * columns + t.x * V + j] = sum;
        }
    }
    __syncthreads();
    for (u32 item = threadIdx.x; item < items; item += blockDim.x) {
        float sum = 0.f;
        for (u32 w = 0; w < warps; w++) sum += rows[w * items + item];
        mine[item] = sum;
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(counters + blockIdx.y, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!last) return false;
    __threadfence();
    // One block reads all partial rows: many loads in flight, or latency would be all its time.
    const float* all = partial + (size_t)blockIdx.y * gridDim.x * items;
    const u32 shares = blockDim.x >= 2 * items ? blockDim.x / items : 1;
    for (u32 at = threadIdx.x; at < items * shares; at += blockDim.x) {
        const u32 item = at % items;
        float sum[8];
#pragma unroll
        for (int j = 0; j < 8; j++) sum[j] = 0.f;
        for (u32 i = at / items; i < gridDim.x; i += 8 * shares) {
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const u32 row = i + j * shares;
                if (row < gridDim.x) sum[j] += __ldcg(all + (size_t)row * items + item);
            }
        }
        rows[at] = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
    }
    __syncthreads();
    for (u32 item = threadIdx.x; item < items; item += blockDim.x) {
        float sum = 0.f;
        for (u32 share = 0; share < shares; share++) sum += rows[share * items + item];
        total[item] = sum;
    }
    if (threadIdx.x == 0) counters[blockIdx.y] = 0;
    __syncthreads();
    return true;
}
