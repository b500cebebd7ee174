// The Rank-1 BNN's update, as in rank1.rs: Nesterov's SGD, with decay for what members share, and for
// random scales the pull of the prior instead. s0 is buf. A location and the pre-scale behind it
// are moved by one thread, since the pull of each depends on both.
#ifndef CAUCHY
#define CAUCHY 0
#endif
#define LOCATION 8u
#define PRE_SCALE 16u

struct Scalars {
    float momentum;
    float decay;
    float rate;
    float kl;
    float prior;
};

INLINE void along(const Scalars& c, float& w, float& buf, real d) {
    real b = real(c.momentum) * real(buf) + d;
    w = plain(real(w) - real(c.rate) * (d + real(c.momentum) * b));
    buf = plain(b);
}

INLINE void move(const Scalars& c, float factor, float& w, float& buf, float g) {
    along(c, w, buf, real(factor) * real(g) + real(c.decay) * real(w));
}

INLINE void move_pair(const Scalars& c, float factor, float* w, float* buf, const float* g) {
    real scale = softplus(real(w[1])), slope = sigmoid(real(w[1])).tau;
    real apart = real(w[0]) - real(1.0f), prior = real(c.prior);
#if CAUCHY
    real sum = scale + prior;
    real inverse = real(2.0f) / (sum * sum + apart * apart);
    real of_apart = apart * inverse, of_scale = sum * inverse;
#else
    real inverse = real(1.0f) / (prior * prior);
    real of_apart = apart * inverse, of_scale = scale * inverse;
#endif
    real pull_m = real(c.kl) * of_apart;
    real pull_r = real(c.kl) * ((of_scale - real(1.0f) / scale) * slope);
    along(c, w[0], buf[0], real(factor) * real(g[0]) + pull_m);
    along(c, w[1], buf[1], real(factor) * real(g[1]) + pull_r);
}

extern "C" __global__ void __launch_bounds__(256) rank1(
    float* w, float* forward, unsigned short* low, const float* g, float* buf, float* s1,
    const unsigned char* __restrict__ marks, u32 n, const Scalars* __restrict__ table,
    const u32* __restrict__ step, const float* __restrict__ clip)
{
    const Scalars c = table[*step];
    const float factor = clip ? *clip : 1.0f;
    const bool copy = low && !forward;
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    for (u32 i = thread; i < (n + 3u) / 4u; i += threads) {
        const u32 first = 4u * i;
        const bool whole = first + 4u <= n;
        const u32 kinds = whole ? ((const u32*)marks)[i] : 0u;
        if (whole && !(kinds & 0x18181818u)) {
            float4 W = ((float4*)w)[i], B = ((float4*)buf)[i], G = ((const float4*)g)[i];
            move(c, factor, W.x, B.x, G.x);
            move(c, factor, W.y, B.y, G.y);
            move(c, factor, W.z, B.z, G.z);
            move(c, factor, W.w, B.w, G.w);
            ((float4*)w)[i] = W;
            ((float4*)buf)[i] = B;
            if (copy) ((ushort4*)low)[i] = make_ushort4(bf16(W.x), bf16(W.y), bf16(W.z), bf16(W.w));
            continue;
        }
        // A pair may begin in one group of four and end in the next: whoever has its location moves it.
        for (u32 at = first; at < n && at < first + 4u; ++at) {
            const u32 mark = marks[at];
            if (mark & PRE_SCALE) continue;
            if (mark & LOCATION) {
                move_pair(c, factor, w + at, buf + at, g + at);
                if (copy) low[at + 1u] = bf16(w[at + 1u]);
            } else {
                move(c, factor, w[at], buf[at], g[at]);
            }
            if (copy) low[at] = bf16(w[at]);
        }
    }
}
