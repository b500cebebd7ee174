// cSGHMC, as in csgmcmc.rs: u <- m u - lr (g + wd w) + s eps; w <- w + u. s0 is u.
//
// Defines: MOMENTUM 0 is cSGLD, which has no u. Bytes a weight: w and u read and written, g read, the
// bf16 copy written: 22 with momentum, 14 without.
#ifndef MOMENTUM
#define MOMENTUM 1
#endif

struct Scalars {
    NoiseKey key;
    float momentum; // m: beta, times sqrt(lr / lr before) where there is noise
    float rate;
    float decay;
    float noise; // 0 in the epochs without noise
};

// The four weights of one Philox block. WHOLE: the tile ends before n, so nothing is guarded.
template <bool WHOLE>
INLINE void four(const Scalars& c, float factor, float* __restrict__ w, unsigned short* __restrict__ low,
                 const float* __restrict__ g, float* __restrict__ u, u32 block, u32 n)
{
    const u32 first = element(block);
    float W[4], U[4], G[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        u32 i = first + 32u * j;
        bool in = WHOLE || i < n;
        W[j] = in ? w[i] : 0.0f;
        U[j] = MOMENTUM && in ? u[i] : 0.0f;
        G[j] = in ? g[i] : 0.0f;
    }
    real eps[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (c.noise > 0.0f) normals(c.key, block, eps);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        real speed = real(c.momentum) * real(U[j])
            - real(c.rate) * (real(factor) * real(G[j]) + real(c.decay) * real(W[j])) + real(c.noise) * eps[j];
        U[j] = plain(speed);
        W[j] = plain(real(W[j]) + speed);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        u32 i = first + 32u * j;
        if (WHOLE || i < n) {
            if (MOMENTUM) u[i] = U[j];
            w[i] = W[j];
            if (low) low[i] = bf16(W[j]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) csgmcmc(
    float* w, float* forward, unsigned short* low, const float* g, float* u, float* s1,
    const unsigned char* marks, u32 n, const Scalars* __restrict__ table,
    const u32* __restrict__ step, const float* __restrict__ clip)
{
    const Scalars c = table[*step];
    const float factor = clip ? *clip : 1.0f;
    unsigned short* copy = forward ? nullptr : low;
    FOR_EACH_BLOCK(block, n) {
        if (block / 32u < n / 128u) {
            four<true>(c, factor, w, copy, g, u, block, n);
        } else {
            four<false>(c, factor, w, copy, g, u, block, n);
        }
    }
}
