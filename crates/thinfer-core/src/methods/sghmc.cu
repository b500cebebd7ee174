// Algorithm 2, and with marks Algorithm 3: the update of `step` in sghmc.rs, one launch.
//
// Bytes a weight: w, v, rho read and written, g and marks read, the bf16 copy written: 31.
// Defines: NOISE_RULE 0 exact, 1 paper; RHO_RULE 0 exact, 1 code, 2 printed; FORWARD 1 writes the
// masked weights as well, which saves feedback pruning a launch of its own.
#ifndef NOISE_RULE
#define NOISE_RULE 0
#endif
#ifndef RHO_RULE
#define RHO_RULE 0
#endif
#ifndef FORWARD
#define FORWARD 0
#endif
// Blocks a multiprocessor holds at once, which bounds the registers of a thread.
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 4
#endif
#define KEEP 1u
#define SLAB 2u
#define FIXED 4u

struct Scalars {
    NoiseKey key;
    float memory;      // beta1, times dt over the dt before where v follows the step size
    float drift;       // beta2 dt^2
    float k_dt;        // k dt
    float friction;    // 2 (1 - beta1)
    float paper_scale; // sqrt(2 + 2 beta1^2) k dt^1.5
    float alpha;       // k dt^1.5
    float alpha2;      // alpha^2
    float curvature;   // alpha^2 / (k dt), or 0 without noise
    float eta;
    float n;
    float over_n;
    float slab_decay;
    float spike_decay;
    u32 freeze; // pruned weights are held at zero
};

// The standard deviation of the noise that v receives.
INLINE real noise_scale(const Scalars& c, Tau t) {
#if NOISE_RULE == 1
    return real(c.paper_scale);
#else
    return real(c.k_dt) * root(real(c.friction) * t.inverse);
#endif
}

INLINE real rho_step(const Scalars& c, real rho, Tau t, real w, real g, real decay, real eps) {
#if RHO_RULE == 2
    real delta = decay * real(c.n);
    real total = g + decay * w;
    return rho + real(c.eta) * (t.inverse - real(c.alpha2) * delta * t.tau)
        - real(c.eta) * real(c.alpha) * eps * total;
#else
#if RHO_RULE == 1
    real weight = c.alpha;
#elif EXACT || NOISE_RULE == 1
    real scale = noise_scale(c, t);
    real weight = plain(scale) > 0.0f ? real(c.alpha2) / scale : real(0.0f);
#else
    real weight = c.curvature * over_root(c.friction * t.inverse);
#endif
    return rho + real(c.eta) * (real(c.over_n) * t.inverse - real(c.alpha2) * decay * t.tau - weight * eps * g);
#endif
}

struct Buffers {
    float* __restrict__ w;
    float* __restrict__ forward;
    unsigned short* __restrict__ low;
    const float* __restrict__ g;
    float* __restrict__ v;
    float* __restrict__ rho;
    const unsigned char* __restrict__ marks;
};

// The four weights of one Philox block. WHOLE: the tile ends before n, so nothing is guarded; guards
// would keep the four from overlapping.
template <bool WHOLE>
INLINE void four(const Buffers& b, const Scalars& c, const NoiseKey& now, float factor, bool copy, u32 block, u32 n) {
    const u32 first = element(block);
    float W[4], V[4], R[4], G[4];
    u32 mark[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        u32 i = first + 32u * j;
        bool in = WHOLE || i < n;
        W[j] = in ? b.w[i] : 0.0f;
        V[j] = in ? b.v[i] : 0.0f;
        R[j] = in ? b.rho[i] : 0.0f;
        G[j] = in ? b.g[i] : 0.0f;
        mark[j] = in ? b.marks[i] : 0u;
    }
    real before[4], eps[4];
    normals(c.key, block, before);
    normals(now, block, eps);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        real decay = mark[j] & SLAB ? c.slab_decay : c.spike_decay;
        real gradient = real(factor) * real(G[j]);
        real r = rho_step(c, R[j], sigmoid(R[j]), W[j], gradient, decay, before[j]);
        Tau t = sigmoid(r);
        real speed = real(c.memory) * real(V[j]) - real(c.drift) * (gradient + decay * real(W[j]))
            + noise_scale(c, t) * eps[j];
        const bool still = mark[j] & FIXED;
        float moved = still ? W[j] : plain(real(W[j]) + t.tau * speed);
        W[j] = c.freeze && !(mark[j] & KEEP) ? 0.0f : moved;
        V[j] = still ? V[j] : plain(speed);
        R[j] = still ? R[j] : plain(r);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        u32 i = first + 32u * j;
        if (WHOLE || i < n) {
            b.rho[i] = R[j];
            b.v[i] = V[j];
            b.w[i] = W[j];
#if FORWARD
            float read = mark[j] & KEEP ? W[j] : 0.0f;
            b.forward[i] = read;
            if (copy) b.low[i] = bf16(read);
#else
            if (copy) b.low[i] = bf16(W[j]);
#endif
        }
    }
}

// One weight whose noise has the number it had in a larger network.
INLINE void one(const Buffers& b, const Scalars& c, const NoiseKey& now, float factor, bool copy, u32 i, u32 from) {
    const u32 mark = b.marks[i];
    real decay = mark & SLAB ? c.slab_decay : c.spike_decay;
    real gradient = real(factor) * real(b.g[i]);
    const real w = b.w[i], rho = b.rho[i];
    real r = rho_step(c, rho, sigmoid(rho), w, gradient, decay, normal(c.key, from));
    Tau t = sigmoid(r);
    real speed = real(c.memory) * real(b.v[i]) - real(c.drift) * (gradient + decay * w)
        + noise_scale(c, t) * normal(now, from);
    const bool still = mark & FIXED;
    float moved = still ? b.w[i] : plain(w + t.tau * speed);
    moved = c.freeze && !(mark & KEEP) ? 0.0f : moved;
    if (!still) {
        b.rho[i] = plain(r);
        b.v[i] = plain(speed);
    }
    b.w[i] = moved;
#if FORWARD
    float read = mark & KEEP ? moved : 0.0f;
    b.forward[i] = read;
    if (copy) b.low[i] = bf16(read);
#else
    if (copy) b.low[i] = bf16(moved);
#endif
}

extern "C" __global__ void __launch_bounds__(256, MIN_BLOCKS) sghmc(
    float* w, float* forward, unsigned short* low, const float* g, float* v, float* rho,
    const unsigned char* marks, u32 n, const Scalars* __restrict__ table,
    const u32* __restrict__ step, const float* __restrict__ clip, const u32* __restrict__ origin)
{
    const Buffers b = {w, forward, low, g, v, rho, marks};
    const Scalars c = table[*step];
    const float factor = clip ? *clip : 1.0f;
    // Where the network reads a copy of its own, the pass that writes it writes the bf16 form too.
    const bool copy = low && (FORWARD || !forward);
    // Noise 0 is the initial one; step r injects noise r + 1.
    const NoiseKey now = next_step(c.key);
    if (origin) {
        const u32 threads = gridDim.x * blockDim.x;
        for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads) {
            one(b, c, now, factor, copy, i, origin[i]);
        }
        return;
    }
    FOR_EACH_BLOCK(block, n) {
        if (block / 32u < n / 128u) {
            four<true>(b, c, now, factor, copy, block, n);
        } else {
            four<false>(b, c, now, factor, copy, block, n);
        }
    }
}
