// Channels by a list: map[c] is the channel to read, or NONE for a zero. Rows of `from` channels are
// read and rows of `to` written; count = rows * to / V.
#define NONE 0xffffffffu

extern "C" __global__ void choose(const act* x, act* y, const u32* __restrict__ map, u32 from, u32 to, u32 count) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const u32 row = (u32)((size_t)i * V / to), c = (u32)((size_t)i * V % to);
        float v[V];
#pragma unroll
        for (int j = 0; j < V; j++) {
            const u32 m = map[c + j];
            v[j] = m == NONE ? 0.f : up(x[(size_t)row * from + m]);
        }
        put(y + (size_t)i * V, v);
    }
}

// y = other + x put to its places, cut at zero with RELU.
extern "C" __global__ void join(const act* x, const act* other, act* y, const u32* __restrict__ map, u32 from, u32 to, u32 count) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const u32 row = (u32)((size_t)i * V / to), c = (u32)((size_t)i * V % to);
        float v[V];
        take(other + (size_t)i * V, v);
#pragma unroll
        for (int j = 0; j < V; j++) {
            const u32 m = map[c + j];
            if (m != NONE) v[j] += up(x[(size_t)row * from + m]);
#ifdef RELU
            // Written so that what is not a number stays so and is noticed.
            v[j] = v[j] <= 0.f ? 0.f : v[j];
#endif
        }
        put(y + (size_t)i * V, v);
    }
}

// The way back of `join`: g = d (+ d2 with TWO) where y was not cut, and dx = g at the places of x.
extern "C" __global__ void join_backward(
    const act* d, const act* d2, const act* y, act* g, act* dx, const u32* __restrict__ map, u32 from, u32 to, u32 count) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const u32 row = (u32)((size_t)i * V / to), c = (u32)((size_t)i * V % to);
        float v[V];
        take(d + (size_t)i * V, v);
#ifdef TWO
        float w[V];
        take(d2 + (size_t)i * V, w);
#pragma unroll
        for (int j = 0; j < V; j++) v[j] += w[j];
#endif
#ifdef RELU
        float out[V];
        take(y + (size_t)i * V, out);
#pragma unroll
        for (int j = 0; j < V; j++) v[j] = out[j] > 0.f ? v[j] : 0.f;
#endif
        put(g + (size_t)i * V, v);
#pragma unroll
        for (int j = 0; j < V; j++) {
            const u32 m = map[c + j];
            if (m != NONE) dx[(size_t)row * from + m] = down(v[j]);
        }
    }
}
