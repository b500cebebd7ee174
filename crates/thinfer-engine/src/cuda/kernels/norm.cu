// Batch norm over rows = images x pixels, fused with a residual sum and ReLU.

// Every kernel is compiled alone, by its K_ name, with the variant that its defines ask for.

#ifdef K_norm_stats
// SUM_IN: x is the sum of two inputs and is written on the way.
extern "C" __global__ void __launch_bounds__(THREADS) norm_stats(
    const act* x, const act* x2, act* sum, float* partial, u32* counters, const float* scale,
    const float* shift, float* saved, float* running_mean, float* running_variance, u32 rows,
    u32 channels, u32 tx, float momentum, float eps) {
    __shared__ float total[2 * 32 * V];
    const Tile t = tile(channels, tx);
    // What the last block needs is read now, while there is other work to hide the wait.
    const u32 own = blockIdx.y * tx * V + threadIdx.x;
    const bool finishes = threadIdx.x < tx * V && own < channels;
    float own_x = 0.f, own_scale = 0.f, own_shift = 0.f, own_mean = 0.f, own_variance = 0.f;
    if (finishes) {
        own_x = up(x[own]);
#ifdef SUM_IN
        own_x = rounded(own_x + up(x2[own]));
#endif
        own_scale = scale[own];
        own_shift = shift[own];
        own_mean = running_mean[own];
        own_variance = running_variance[own];
    }
    float around[V], s0[V], s1[V];
#pragma unroll
    for (int j = 0; j < V; j++) around[j] = s0[j] = s1[j] = 0.f;
    if (t.active) {
        take(x + t.c, around);
#ifdef SUM_IN
        float other[V];
        take(x2 + t.c, other);
#pragma unroll
        for (int j = 0; j < V; j++) around[j] = rounded(around[j] + other[j]);
#endif
        for (u32 r = t.first; r < rows; r += ROWS_AHEAD * t.step) {
            Raw raw[ROWS_AHEAD];
#ifdef SUM_IN
            Raw raw2[ROWS_AHEAD];
#endif
#pragma unroll
            for (int i = 0; i < ROWS_AHEAD; i++) {
                const u32 row = min(r + i * t.step, rows - 1);
                raw[i] = fetch(x + (size_t)row * channels + t.c);
#ifdef SUM_IN
                raw2[i] = fetch(x2 + (size_t)row * channels + t.c);
#endif
            }
#pragma unroll
            for (int i = 0; i < ROWS_AHEAD; i++) {
                const u32 row = r + i * t.step;
                if (row >= rows) break;
                float v[V];
                open(raw[i], v);
#ifdef SUM_IN
                float w[V];
                open(raw2[i], w);
#pragma unroll
                for (int j = 0; j < V; j++) v[j] = rounded(v[j] + w[j]);
                put(sum + (size_t)row * channels + t.c, v);
#endif
#pragma unroll
                for (int j = 0; j < V; j++) {
                    const float d = v[j] - around[j];
                    s0[j] += d;
                    s1[j] += d * d;
                }
            }
        }
    }
    if (!column_totals(t, tx, s0, s1, partial, counters, total)) return;
    if (!finishes) return;
    const Normal c = normal_of(own_x, total[threadIdx.x], total[tx * V + threadIdx.x], (float)rows,
                               own_scale, own_shift, eps);
    save_normal(c, saved, channels, own);
    move_running(c, running_mean, running_variance, own, own_mean, own_variance, rows, momentum);
}

#endif

#ifdef K_norm_fold
// Inference: a and b of every batch norm from the running statistics. One row of blocks a norm.
struct Fold { u32 scale, shift, mean, variance, saved, channels; float eps; u32 unused; };
extern "C" __global__ void norm_fold(const Fold* table, const float* weights, const float* stats,
                                     float* saved) {
    const Fold f = table[blockIdx.x];
    for (u32 c = threadIdx.x; c < f.channels; c += blockDim.x) {
        const float a = weights[f.scale + c] / sqrtf(stats[f.variance + c] + f.eps);
        saved[f.saved + c] = a;
        saved[f.saved + f.channels + c] = weights[f.shift + c] - stats[f.mean + c] * a;
    }
}

#endif

#ifdef K_norm_apply
// y from x, and by RES from another value or norm.
extern "C" __global__ void __launch_bounds__(THREADS) norm_apply(
    const act* x, const float* saved, const act* other, const float* saved2, act* y, u8* mask,
    u32 rows, u32 channels, u32 tx PART_ARGUMENT FROM_ARGUMENT) {
    const Tile t = tile(channels, tx);
    if (!t.active) return;
    float a[V], b[V], a2[V], b2[V], w[V];
    if (IS_NORMED) {
        per_channel(saved, t.c - FIRST, a);
        per_channel(saved + NORMED, t.c - FIRST, b);
    } else {
        no_norm(a, b);
    }
#if RES == 2
    per_channel(saved2, t.c, a2);
    per_channel(saved2 + channels, t.c, b2);
#endif
    for (u32 r = t.first; r < rows; r += ROWS_AHEAD * t.step) {
        Raw raw[ROWS_AHEAD];
#if RES > 0
        Raw more[ROWS_AHEAD];
#endif
#pragma unroll
        for (int i = 0; i < ROWS_AHEAD; i++) {
            const u32 row = min(r + i * t.step, rows - 1);
            raw[i] = IS_NORMED ? fetch(x + NORMED_AT(row)) : Raw{};
#if RES > 0
            more[i] = HAS_OTHER ? fetch(other + OTHER_AT(row)) : Raw{};
#endif
        }
#pragma unroll
        for (int i = 0; i < ROWS_AHEAD; i++) {
            const u32 row = r + i * t.step;
            if (row >= rows) break;
            float v[V];
            open(raw[i], v);
#if RES > 0
            open(more[i], w);
#endif
            apply_norm(v, w, a, b, a2, b2);
            mark_and_cut(v, mask, row, channels, t);
            put(y + (size_t)row * channels + t.c, v);
        }
    }
}

#endif

#ifdef K_norm_reduce
// Sums of g and g (x - mean): the gradients of shift and scale and the coefficients of `norm_dx`.
// WRITE: the gradient goes out too, for the other branch of a residual sum.
extern "C" __global__ void __launch_bounds__(THREADS) norm_reduce(
    const act* x, const act* d, const act* d2, const u8* mask, float* saved, float* partial,
    u32* counters, act* g_out, float* dscale, float* dshift, u32 rows, u32 channels, u32 tx PART_ARGUMENT) {
    __shared__ float total[2 * 32 * V];
    const Tile t = tile(channels, tx);
    // What the last block needs is read now, while there is other work to hide the wait.
    const u32 own = blockIdx.y * tx * V + threadIdx.x;
    const bool finishes = threadIdx.x < tx * V && own < channels;
    float own_a = 0.f, own_mean = 0.f, own_inverse = 0.f;
    if (finishes) {
        own_a = saved[own];
        own_mean = saved[2 * channels + own];
        own_inverse = saved[3 * channels + own];
    }
    float s0[V], s1[V];
#pragma unroll
    for (int j = 0; j < V; j++) s0[j] = s1[j] = 0.f;
    if (t.active) {
        float mean[V], a[V], b[V];
        per_channel(saved + 2 * channels, t.c, mean);
#if CUT == 1
        per_channel(saved, t.c, a);
        per_channel(saved + channels, t.c, b);
#endif
        for (u32 r = t.first; r < rows; r += ROWS_AHEAD * t.step) {
            Raw raw[ROWS_AHEAD];
            Gradient raw_g[ROWS_AHEAD];
#pragma unroll
            for (int i = 0; i < ROWS_AHEAD; i++) {
                const u32 row = min(r + i * t.step, rows - 1);
                raw[i] = fetch(x + (size_t)row * channels + t.c);
                raw_g[i] = fetch_gradient(d, d2, mask, row, channels, t);
            }
#pragma unroll
            for (int i = 0; i < ROWS_AHEAD; i++) {
                const u32 row = r + i * t.step;
                if (row >= rows) break;
                float v[V], g[V];
                open(raw[i], v);
                open_gradient(raw_g[i], v, a, b, g);
#ifdef WRITE
                if (HAS_OTHER) put(g_out + OTHER_AT(row), g);
#endif
#pragma unroll
                for (int j = 0; j < V; j++) {
                    s0[j] += g[j];
                    s1[j] = fmaf(g[j], v[j] - mean[j], s1[j]);
                }
            }
        }
    }
    if (!column_totals(t, tx, s0, s1, partial, counters, total)) return;
    if (!finishes) return;
    const float sum = total[threadIdx.x], product = total[tx * V + threadIdx.x];
    const Slope s = slope_of(own_a, own_mean, own_inverse, sum, product, (float)rows);
    dshift[own] = sum;
    dscale[own] = product * own_inverse;
    saved[4 * channels + own] = s.c2;
    saved[5 * channels + own] = s.c3;
}

#endif

#ifdef K_norm_dx
// dx = a g + c2 x + c3. EXTRA: plus a gradient that x already has from elsewhere.
extern "C" __global__ void __launch_bounds__(THREADS) norm_dx(
    const act* x, const act* d, const act* d2, const u8* mask, const float* saved,
    const act* extra, act* dx, u32 rows, u32 channels, u32 tx) {
    const Tile t = tile(channels, tx);
    if (!t.active) return;
    float a[V], b[V], c2[V], c3[V];
    per_channel(saved, t.c, a);
#if CUT == 1
    per_channel(saved + channels, t.c, b);
#endif
    per_channel(saved + 4 * channels, t.c, c2);
    per_channel(saved + 5 * channels, t.c, c3);
    for (u32 r = t.first; r < rows; r += ROWS_AHEAD * t.step) {
        Raw raw[ROWS_AHEAD];
        Gradient raw_g[ROWS_AHEAD];
#ifdef EXTRA
        Raw more[ROWS_AHEAD];
#endif
#pragma unroll
        for (int i = 0; i < ROWS_AHEAD; i++) {
            const u32 row = min(r + i * t.step, rows - 1);
            const size_t at = (size_t)row * channels + t.c;
            raw[i] = fetch(x + at);
            raw_g[i] = fetch_gradient(d, d2, mask, row, channels, t);
#ifdef EXTRA
            more[i] = fetch(extra + at);
#endif
        }
#pragma unroll
        for (int i = 0; i < ROWS_AHEAD; i++) {
            const u32 row = r + i * t.step;
            if (row >= rows) break;
            float v[V], g[V];
            open(raw[i], v);
            open_gradient(raw_g[i], v, a, b, g);
            norm_slope(g, v, a, c2, c3);
#ifdef EXTRA
            float w[V];
            open(more[i], w);
#pragma unroll
            for (int j = 0; j < V; j++) g[j] += w[j];
#endif
            put(dx + (size_t)row * channels + t.c, g);
        }
    }
}

#endif

#ifdef K_bias_gradient
// Gradient of a bias: column sums of d.
extern "C" __global__ void __launch_bounds__(THREADS) bias_gradient(
    const act* d, float* partial, u32* counters, float* dbias, u32 rows, u32 channels, u32 tx) {
    __shared__ float total[2 * 32 * V];
    const Tile t = tile(channels, tx);
    float s0[V], s1[V];
#pragma unroll
    for (int j = 0; j < V; j++) s0[j] = s1[j] = 0.f;
    if (t.active) {
        for (u32 r = t.first; r < rows; r += t.step) {
            float v[V];
            take(d + (size_t)r * channels + t.c, v);
#pragma unroll
            for (int j = 0; j < V; j++) s0[j] += v[j];
        }
    }
    if (!column_totals(t, tx, s0, s1, partial, counters, total)) return;
    for (u32 i = threadIdx.x; i < tx * V; i += blockDim.x) {
        const u32 c = blockIdx.y * tx * V + i;
        if (c < channels) dbias[c] = total[i];
    }
}
#endif
