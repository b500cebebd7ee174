// A block works on tx groups of V channels and strides over rows; a thread keeps its channels.
// Column sums are made in two stages: each block writes one partial row, and the last block to
// finish adds the partial rows in their order. Only a counter is atomic, so the bits never change.
#define THREADS 256
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
// with the totals in `total[0 .. 2 * tx * V]`.
__device__ bool column_totals(const Tile& t, u32 tx, const float* s0, const float* s1,
                              float* partial, u32* counters, float* total) {
    __shared__ float rows[THREADS * V];
    __shared__ bool last;
    const u32 columns = tx * V;
    float* mine = partial + (size_t)(blockIdx.y * gridDim.x + blockIdx.x) * 2 * columns;
#pragma unroll
    for (int which = 0; which < 2; which++) {
        const float* s = which ? s1 : s0;
        __syncthreads();
#pragma unroll
        for (int j = 0; j < V; j++) rows[t.y * columns + t.x * V + j] = t.active ? s[j] : 0.f;
        __syncthreads();
        for (u32 c = threadIdx.x; c < columns; c += blockDim.x) {
            float sum = 0.f;
            for (u32 y = 0; y < t.ty; y++) sum += rows[y * columns + c];
            mine[which * columns + c] = sum;
        }
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(counters + blockIdx.y, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!last) return false;
    __threadfence();
    const u32 items = 2 * columns;
    const float* all = partial + (size_t)blockIdx.y * gridDim.x * items;
    const u32 lanes = blockDim.x >= 2 * items ? blockDim.x / items : 1;
    for (u32 at = threadIdx.x; at < items * lanes; at += blockDim.x) {
        const u32 item = at % items, lane = at / items;
        float a = 0.f, b = 0.f, c = 0.f, d = 0.f;
        u32 i = lane;
        for (; i + 3 * lanes < gridDim.x; i += 4 * lanes) {
            a += __ldcg(all + (size_t)i * items + item);
            b += __ldcg(all + (size_t)(i + lanes) * items + item);
            c += __ldcg(all + (size_t)(i + 2 * lanes) * items + item);
            d += __ldcg(all + (size_t)(i + 3 * lanes) * items + item);
        }
        for (; i < gridDim.x; i += lanes) a += __ldcg(all + (size_t)i * items + item);
        rows[at] = (a + b) + (c + d);
    }
    __syncthreads();
    for (u32 item = threadIdx.x; item < items; item += blockDim.x) {
        float sum = 0.f;
        for (u32 lane = 0; lane < lanes; lane++) sum += rows[lane * items + item];
        total[item] = sum;
    }
    if (threadIdx.x == 0) counters[blockIdx.y] = 0;
    __syncthreads();
    return true;
}
