// SGD with momentum, as in sgd.rs: d = g + wd w; buf <- beta buf + d; w <- w - lr buf, with Nesterov's
// term w <- w - lr (d + beta buf). s0 is buf. `sgd_masked` holds pruned weights at zero.
//
// No noise, so a thread takes four neighbours and moves 16 bytes at a time.
#define KEEP 1u

struct Scalars {
    float momentum;
    float decay;
    float rate;
    u32 nesterov;
    u32 reaches_pruned; // whether the momentum of pruned weights gets their gradient
};

INLINE void move(const Scalars& c, float factor, float& w, float& buf, float g) {
    real d = real(factor) * real(g) + real(c.decay) * real(w);
    real b = real(c.momentum) * real(buf) + d;
    real along = c.nesterov ? d + real(c.momentum) * b : b;
    w = plain(real(w) - real(c.rate) * along);
    buf = plain(b);
}

INLINE void move(const Scalars& c, float factor, float& w, float& buf, float g, u32 mark) {
    bool live = mark & KEEP;
    real d = real(factor) * real(g) + real(c.decay) * real(w);
    d = live || c.reaches_pruned ? d : real(0.0f);
    real b = real(c.momentum) * real(buf) + d;
    real along = c.nesterov ? d + real(c.momentum) * b : b;
    w = live ? plain(real(w) - real(c.rate) * along) : 0.0f;
    buf = plain(b);
}

extern "C" __global__ void __launch_bounds__(256) sgd(
    float* __restrict__ w, float* __restrict__ forward, unsigned short* __restrict__ low,
    const float* __restrict__ g, float* __restrict__ buf, float* s1, const unsigned char* marks, u32 n,
    const Scalars* __restrict__ table, const u32* __restrict__ step, const float* __restrict__ clip)
{
    const Scalars c = table[*step];
    const float factor = clip ? *clip : 1.0f;
    const bool copy = low && !forward;
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    for (u32 i = thread; i < n / 4u; i += threads) {
        float4 W = ((float4*)w)[i], B = ((float4*)buf)[i], G = ((const float4*)g)[i];
        move(c, factor, W.x, B.x, G.x);
        move(c, factor, W.y, B.y, G.y);
        move(c, factor, W.z, B.z, G.z);
        move(c, factor, W.w, B.w, G.w);
        ((float4*)w)[i] = W;
        ((float4*)buf)[i] = B;
        if (copy) ((ushort4*)low)[i] = make_ushort4(bf16(W.x), bf16(W.y), bf16(W.z), bf16(W.w));
    }
    u32 i = n / 4u * 4u + thread;
    if (i < n) {
        move(c, factor, w[i], buf[i], g[i]);
        if (copy) low[i] = bf16(w[i]);
    }
}

extern "C" __global__ void __launch_bounds__(256) sgd_masked(
    float* __restrict__ w, float* __restrict__ forward, unsigned short* __restrict__ low,
    const float* __restrict__ g, float* __restrict__ buf, float* s1, const unsigned char* __restrict__ marks, u32 n,
    const Scalars* __restrict__ table, const u32* __restrict__ step, const float* __restrict__ clip)
{
    const Scalars c = table[*step];
    const float factor = clip ? *clip : 1.0f;
    const bool copy = low && !forward;
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    for (u32 i = thread; i < n / 4u; i += threads) {
        float4 W = ((float4*)w)[i], B = ((float4*)buf)[i], G = ((const float4*)g)[i];
        uchar4 M = ((const uchar4*)marks)[i];
        move(c, factor, W.x, B.x, G.x, M.x);
        move(c, factor, W.y, B.y, G.y, M.y);
        move(c, factor, W.z, B.z, G.z, M.z);
        move(c, factor, W.w, B.w, G.w, M.w);
        ((float4*)w)[i] = W;
        ((float4*)buf)[i] = B;
        if (copy) ((ushort4*)low)[i] = make_ushort4(bf16(W.x), bf16(W.y), bf16(W.z), bf16(W.w));
    }
    u32 i = n / 4u * 4u + thread;
    if (i < n) {
        move(c, factor, w[i], buf[i], g[i], marks[i]);
        if (copy) low[i] = bf16(w[i]);
    }
}
