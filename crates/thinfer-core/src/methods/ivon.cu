// IVON: the draw of the weights that the network reads, and the update, as in ivon.rs.
// Both have one signature, so each leaves some buffers alone: s0 is g, s1 is h.

struct Scalars {
    NoiseKey key;
    float k;
    float over_k;
    float beta1;
    float share1; // 1 - beta1
    float share2; // 1 - beta2
    float unbias; // 1 / (1 - beta1^t)
    float rate;
    float decay;
};

// WHOLE: the tile of 128 ends before n, so nothing is guarded.
template <bool WHOLE>
INLINE void draw(const Scalars& c, const float* __restrict__ mean, float* __restrict__ forward,
                 unsigned short* __restrict__ low, const float* __restrict__ h, u32 block, u32 n)
{
    const u32 first = element(block);
    float M[4], H[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        u32 i = first + 32u * j;
        M[j] = WHOLE || i < n ? mean[i] : 0.0f;
        H[j] = WHOLE || i < n ? h[i] : 1.0f;
    }
    real eps[4];
    normals(c.key, block, eps);
#pragma unroll
    for (int j = 0; j < 4; ++j)
        M[j] = plain(real(M[j]) + real(c.k) / root(real(H[j]) + real(c.decay)) * eps[j]);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        u32 i = first + 32u * j;
        if (WHOLE || i < n) {
            forward[i] = M[j];
            if (low) low[i] = bf16(M[j]);
        }
    }
}

template <bool WHOLE>
INLINE void update(const Scalars& c, float factor, float* __restrict__ mean, unsigned short* __restrict__ low,
                   const float* __restrict__ at, float* __restrict__ g, float* __restrict__ h, u32 block, u32 n)
{
    const u32 first = element(block);
    float M[4], G[4], H[4], A[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        u32 i = first + 32u * j;
        bool in = WHOLE || i < n;
        M[j] = in ? mean[i] : 0.0f;
        G[j] = in ? g[i] : 0.0f;
        H[j] = in ? h[i] : 1.0f;
        A[j] = in ? at[i] : 0.0f;
    }
    real eps[4];
    normals(c.key, block, eps);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        real gradient = real(factor) * real(A[j]);
        real precision = real(H[j]) + real(c.decay);
        real estimate = real(c.over_k) * root(precision) * eps[j] * gradient;
        real moved = real(c.share2) * (estimate - real(H[j]));
        real curvature = real(H[j]) + moved + real(0.5f) * moved * moved / precision;
        real along = real(c.beta1) * real(G[j]) + real(c.share1) * gradient;
        M[j] = plain(real(M[j]) - real(c.rate) * (real(c.unbias) * along + real(c.decay) * real(M[j]))
            / (curvature + real(c.decay)));
        H[j] = plain(curvature);
        G[j] = plain(along);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        u32 i = first + 32u * j;
        if (WHOLE || i < n) {
            g[i] = G[j];
            h[i] = H[j];
            mean[i] = M[j];
            if (low) low[i] = bf16(M[j]);
        }
    }
}

// forward <- m + k / sqrt(h + wd) eps
extern "C" __global__ void __launch_bounds__(256) ivon_draw(
    const float* mean, float* forward, unsigned short* low, const float* at, const float* g, const float* h,
    const unsigned char* marks, u32 n, const Scalars* __restrict__ table, const u32* __restrict__ step,
    const float* clip)
{
    const Scalars c = table[*step];
    FOR_EACH_BLOCK(block, n) {
        if (block / 32u < n / 128u) {
            draw<true>(c, mean, forward, low, h, block, n);
        } else {
            draw<false>(c, mean, forward, low, h, block, n);
        }
    }
}

// g <- beta1 g + (1 - beta1) ghat;  hhat = ghat eps / sigma
// h <- h + d + d^2 / (2 (h + wd)),  d = (1 - beta2) (hhat - h)
// m <- m - l (g / (1 - beta1^t) + wd m) / (h + wd)
extern "C" __global__ void __launch_bounds__(256) ivon(
    float* mean, float* forward, unsigned short* low, const float* at, float* g, float* h,
    const unsigned char* marks, u32 n, const Scalars* __restrict__ table, const u32* __restrict__ step,
    const float* __restrict__ clip)
{
    const Scalars c = table[*step];
    const float factor = clip ? *clip : 1.0f;
    // Where the network reads a copy of its own, the draw writes its bf16 form.
    unsigned short* copy = forward ? nullptr : low;
    FOR_EACH_BLOCK(block, n) {
        if (block / 32u < n / 128u) {
            update<true>(c, factor, mean, copy, at, g, h, block, n);
        } else {
            update<false>(c, factor, mean, copy, at, g, h, block, n);
        }
    }
}
