// Algorithm 1: the draw of the weights that the network reads, and the update, as in cv_adam.rs.
// Both have one signature, so each leaves some buffers alone: s0 is m, s1 is rho.

struct Scalars {
    NoiseKey key;
    float beta1;
    float beta2;
    float rate;
    float alpha;
    float alpha2_decay; // alpha^2 wd
    float eta;
    float n;
    float over_n;
    float decay;
};

// WHOLE: the tile of 128 ends before n, so nothing is guarded; guards would keep the four weights of
// a thread from overlapping.
template <bool WHOLE>
INLINE void draw(const Scalars& c, const float* __restrict__ mu, float* __restrict__ forward,
                 unsigned short* __restrict__ low, const float* __restrict__ rho, u32 block, u32 n)
{
    const u32 first = element(block);
    float M[4], R[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        u32 i = first + 32u * j;
        M[j] = WHOLE || i < n ? mu[i] : 0.0f;
        R[j] = WHOLE || i < n ? rho[i] : 0.0f;
    }
    real eps[4];
    normals(c.key, block, eps);
#pragma unroll
    for (int j = 0; j < 4; ++j) M[j] = plain(real(M[j]) + real(c.alpha) * sigmoid(R[j]).tau * eps[j]);
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
INLINE void update(const Scalars& c, float factor, float* __restrict__ mu, unsigned short* __restrict__ low,
                   const float* __restrict__ g, float* __restrict__ m, float* __restrict__ rho, u32 block, u32 n)
{
    const u32 first = element(block);
    float U[4], M[4], R[4], G[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        u32 i = first + 32u * j;
        bool in = WHOLE || i < n;
        U[j] = in ? mu[i] : 0.0f;
        M[j] = in ? m[i] : 0.0f;
        R[j] = in ? rho[i] : 0.0f;
        G[j] = in ? g[i] : 0.0f;
    }
    real eps[4];
    normals(c.key, block, eps);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        real gradient = real(factor) * real(G[j]);
        real mean = real(c.beta1) * real(M[j]) + real(c.beta2) * (gradient + real(c.decay) * real(U[j]));
        Tau t = sigmoid(R[j]);
        real r = real(R[j]) + real(c.eta)
            * (one_over(c.n, c.over_n, t) - real(c.alpha2_decay) * t.tau - real(c.alpha) * eps[j] * gradient);
        U[j] = plain(real(U[j]) - real(c.rate) * sigmoid(r).tau * mean);
        M[j] = plain(mean);
        R[j] = plain(r);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        u32 i = first + 32u * j;
        if (WHOLE || i < n) {
            m[i] = M[j];
            rho[i] = R[j];
            mu[i] = U[j];
            if (low) low[i] = bf16(U[j]);
        }
    }
}

// forward <- mu + alpha tau eps
extern "C" __global__ void __launch_bounds__(256) cv_adam_draw(
    const float* mu, float* forward, unsigned short* low, const float* g, const float* m, const float* rho,
    const unsigned char* marks, u32 n, const Scalars* __restrict__ table, const u32* __restrict__ step,
    const float* clip)
{
    const Scalars c = table[*step];
    FOR_EACH_BLOCK(block, n) {
        if (block / 32u < n / 128u) {
            draw<true>(c, mu, forward, low, rho, block, n);
        } else {
            draw<false>(c, mu, forward, low, rho, block, n);
        }
    }
}

// m <- beta1 m + beta2 (g + wd mu)
// rho <- rho + eta (1 / (N tau) - alpha^2 wd tau - alpha eps g)
// mu <- mu - l tau m
extern "C" __global__ void __launch_bounds__(256) cv_adam(
    float* mu, float* forward, unsigned short* low, const float* g, float* m, float* rho,
    const unsigned char* marks, u32 n, const Scalars* __restrict__ table, const u32* __restrict__ step,
    const float* __restrict__ clip)
{
    const Scalars c = table[*step];
    const float factor = clip ? *clip : 1.0f;
    // Where the network reads a copy of its own, the draw writes its bf16 form.
    unsigned short* copy = forward ? nullptr : low;
    FOR_EACH_BLOCK(block, n) {
        if (block / 32u < n / 128u) {
            update<true>(c, factor, mu, copy, g, m, rho, block, n);
        } else {
            update<false>(c, factor, mu, copy, g, m, rho, block, n);
        }
    }
}
