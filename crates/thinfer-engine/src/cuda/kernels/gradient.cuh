// What passes over a batch norm read besides its input. Every kernel is compiled alone, with the variant
// that its defines ask for.
#ifndef CUT
#define CUT 0
#endif

__device__ __forceinline__ void per_channel(const float* from, u32 c, float* v) {
#pragma unroll
    for (int j = 0; j < V; j++) v[j] = from[c + j];
}

// The gradient that reaches the norm. TWO: it is the sum of two. CUT 1: ReLU recomputed from x;
// 2: ReLU from the mask.
struct Gradient {
    Raw d;
#ifdef TWO
    Raw d2;
#endif
#if CUT == 2
    u32 bits;
#endif
};
__device__ __forceinline__ Gradient fetch_gradient(const act* d, const act* d2, const u8* mask,
                                                   u32 row, u32 channels, const Tile& t) {
    Gradient g;
    const size_t at = (size_t)row * channels + t.c;
    g.d = fetch(d + at);
#ifdef TWO
    g.d2 = fetch(d2 + at);
#endif
#if CUT == 2
    g.bits = mask[(size_t)row * (channels / V) + t.group];
#endif
    return g;
}
__device__ __forceinline__ void open_gradient(const Gradient& raw, const float* x, const float* a,
                                              const float* b, float* g) {
    open(raw.d, g);
#ifdef TWO
    float more[V];
    open(raw.d2, more);
#pragma unroll
    for (int j = 0; j < V; j++) g[j] += more[j];
#endif
#if CUT == 1
#pragma unroll
    for (int j = 0; j < V; j++) g[j] = fmaf(a[j], x[j], b[j]) > 0.f ? g[j] : 0.f;
#elif CUT == 2
#pragma unroll
    for (int j = 0; j < V; j++) g[j] = (raw.bits >> j) & 1u ? g[j] : 0.f;
#endif
}
