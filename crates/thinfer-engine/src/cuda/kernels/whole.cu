// Batch norm in one kernel each way: blocks sum their parts of the rows, wait until all parts of their
// channels are summed, and go back over the same rows, which the caches still have where they fit.
//
// A block that waits may keep one that has not begun from running, so parts are not tied to blocks: a
// block takes parts until none is left, and only then waits. Whoever is waited for is running then, and
// no launch can hang, whatever else the device does. Sums are added part by part in their order, so it
// does not matter who made them.

// Rows of a batch. A thread has two batches, one that it uses and one that is on its way, in as many
// registers as there are.
#if !defined(ACT_BF16) || defined(TWO)
#define BATCH 2
#elif defined(WRITE) || defined(EXTRA)
#define BATCH 3
#else
#define BATCH 4
#endif

// Loads and uses `count` batches of type B. The next one is under way while one is used, so that memory
// does not wait for arithmetic: one block a multiprocessor has no other block to fill the gap.
template <class B, class Load, class Use>
__device__ __forceinline__ void each_batch(u32 count, const Load& load, const Use& use) {
    if (count == 0) return;
    B even, odd;
    load(0, even);
    for (u32 at = 0;; at += 2) {
        if (at + 1 < count) load(at + 1, odd);
        use(at, even);
        if (at + 1 >= count) break;
        if (at + 2 < count) load(at + 2, even);
        use(at + 1, odd);
        if (at + 2 >= count) break;
    }
}

#define MOST_PARTS 256
#define MOST_COLUMNS (20 * V)
#define ZERO4 make_float4(0.f, 0.f, 0.f, 0.f)

__device__ __forceinline__ Tile part_of(u32 part, u32 channels, u32 tx) {
    Tile t = tile(channels, tx);
    t.active = t.active && t.y < t.ty;
    t.first = part * t.ty + t.y;
    return t;
}

// How the threads of a block go over what is normed. Rows of a part lie side by side, as many as a block has for all
// channels, and the next ones a step further on. FROM: where only some channels of a column are normed, threads are
// shared out among these alone, so that none is idle; the rows of a part stay the same.
struct Sweep {
    Tile t;
    // Groups of the column that are normed, and how many lie before them.
    u32 width, before;
    u32 batches;
#ifdef FROM
    u32 high, inverse, step;
#endif
    // The row that a thread comes to after so many others.
    __device__ __forceinline__ u32 row(u32 part, u32 at) const {
#ifdef FROM
        const u32 index = t.y + at * t.ty, turn = __umulhi(index, inverse);
        return part * high + turn * step + (index - turn * high);
#else
        return part * t.ty + t.y + at * t.step;
#endif
    }
};

__device__ __forceinline__ Sweep normed_sweep(u32 height, u32 channels, u32 tx, u32 first_channel) {
    Sweep s;
    s.t = part_of(0, channels, tx);
#ifdef FROM
    const u32 left = blockIdx.y * tx, end = min(left + tx, channels / V), first = max(left, first_channel / V);
    s.high = s.t.ty;
    s.step = s.t.step;
    s.inverse = 0xffffffffu / s.high + 1;
    // A column in front of all that is normed has nothing to do.
    s.width = first < end ? end - first : tx;
    s.before = first < end ? first - left : 0;
    s.t.x = threadIdx.x % s.width;
    s.t.y = threadIdx.x / s.width;
    s.t.ty = THREADS / s.width;
    s.t.group = left + s.before + s.t.x;
    s.t.c = s.t.group * V;
    s.t.active = first < end && s.t.y < s.t.ty;
    const u32 rows = (height + s.step - 1) / s.step * s.high;
    s.batches = (rows + BATCH * s.t.ty - 1) / (BATCH * s.t.ty);
#else
    s.width = tx;
    s.before = 0;
    s.batches = (height + BATCH * s.t.step - 1) / (BATCH * s.t.step);
#endif
    return s;
}

// What the blocks of a column share; all zero between kernels.
struct Column {
    u32* taken;   // parts that a block has begun, and one more for every block that found none
    u32* summed;  // parts whose sums are written
    u32* passed;  // blocks that need neither any more
};

__device__ __forceinline__ Column column_of(u32* counters) {
    u32* mine = counters + 3 * blockIdx.y;
    return Column{mine, mine + 1, mine + 2};
}

// Waits until all parts of the column are summed.
__device__ __forceinline__ void wait_for_sums(const Column& c) {
    if (threadIdx.x == 0) {
        while (*(volatile u32*)c.summed != gridDim.x) {}
        __threadfence();
    }
    __syncthreads();
}

// The sums of a column's parts.
__device__ __forceinline__ float* sums_of(float* partial, u32 tx) {
    return partial + (size_t)blockIdx.y * gridDim.x * 2 * tx * V;
}

// The last block of a column leaves zeros for the next kernel.
__device__ __forceinline__ void clear(const Column& c, u32 before) {
    if (threadIdx.x == 0 && before == gridDim.x - 1) *c.taken = *c.summed = *c.passed = 0;
}

__device__ __forceinline__ float4 four(const float* v) {
    return make_float4(v[0], v[1], v[2], v[3]);
}

// Adds the sums of all threads of a block, publishes them as those of `part`, and takes the next part.
__device__ void publish(const Tile& t, u32 tx, u32 part, const float* s0, const float* s1,
                        float* rows, float* partial, const Column& c, u32* next) {
    const u32 columns = tx * V, items = 2 * columns, shares = THREADS / items;
    __syncthreads();
    if (threadIdx.x == 0) *next = atomicAdd(c.taken, 1u);
    if (t.y < t.ty) {
        // Four values at once: one by one, the threads of a warp would wait for the same few banks.
        float4* to = (float4*)(rows + t.y * items + t.x * V);
#pragma unroll
        for (int j = 0; j < V / 4; j++) {
            to[j] = four(s0 + 4 * j);
            to[columns / 4 + j] = four(s1 + 4 * j);
        }
    }
    __syncthreads();
    const u32 item = threadIdx.x % items, share = threadIdx.x / items;
    float sum = 0.f;
    if (share < shares) {
#pragma unroll 8
        for (u32 row = share; row < t.ty; row += shares) sum += rows[row * items + item];
    }
    __syncthreads();
    if (share < shares) rows[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x < items) {
        sum = 0.f;
        for (u32 i = 0; i < shares; i++) sum += rows[i * items + threadIdx.x];
        partial[(size_t)part * items + threadIdx.x] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(c.summed, 1u);
    }
}

// Adds the sums of all parts: `rows[0 .. 2 * tx * V]`.
__device__ void add_parts(u32 tx, float* rows, const float* partial) {
    const u32 items = 2 * tx * V, quads = items / 4, shares = THREADS / quads;
    const float4* all = (const float4*)partial;
    const u32 quad = threadIdx.x % quads, share = threadIdx.x / quads;
    float4 sum = ZERO4;
    for (u32 first = share; first < gridDim.x && share < shares; first += 10 * shares) {
        float4 v[10];
#pragma unroll
        for (int j = 0; j < 10; j++) {
            const u32 row = first + j * shares;
            v[j] = row < gridDim.x ? __ldcg(all + row * quads + quad) : ZERO4;
        }
#pragma unroll
        for (int j = 0; j < 10; j++) {
            sum.x += v[j].x;
            sum.y += v[j].y;
            sum.z += v[j].z;
            sum.w += v[j].w;
        }
    }
    __syncthreads();
    if (share < shares) ((float4*)rows)[threadIdx.x] = sum;
    __syncthreads();
    float total = 0.f;
    if (threadIdx.x < items) {
#pragma unroll 8
        for (u32 i = 0; i < shares; i++) total += rows[i * items + threadIdx.x];
    }
    __syncthreads();
    if (threadIdx.x < items) rows[threadIdx.x] = total;
    __syncthreads();
}

#ifdef K_norm_forward
// Rows of the first and of the second pass.
struct Summed {
    Raw x[BATCH];
#ifdef SUM_IN
    Raw x2[BATCH];
#endif
};
struct Passed {
    Raw x[BATCH];
#if RES > 0
    Raw other[BATCH];
#endif
};

// y = a x + b with a and b from the batch, and what `norm_apply` can add and cut. SUM_IN: x is the sum of
// two inputs and is written on the way.
extern "C" __global__ void __launch_bounds__(THREADS, 1) norm_forward(
    const act* x, const act* x2, act* sum, const act* other, const float* saved2, act* y, u8* mask,
    float* partial, u32* counters, const float* scale, const float* shift, float* saved,
    float* running_mean, float* running_variance, u32 height, u32 channels, u32 tx,
    float momentum, float eps PART_ARGUMENT FROM_ARGUMENT) {
    __shared__ __align__(16) float rows[2 * THREADS * V];
    __shared__ float coefficients[2 * MOST_COLUMNS];
    __shared__ u16 parts[MOST_PARTS];
    __shared__ u32 next;
    const Column column = column_of(counters);
    partial = sums_of(partial, tx);
    if (threadIdx.x == 0) next = atomicAdd(column.taken, 1u);
    const Sweep sweep = normed_sweep(height, channels, tx, FIRST);
    const u32 column_own = (blockIdx.y * tx + sweep.before) * V + threadIdx.x, own = column_own - FIRST;
    const bool finishes = threadIdx.x < sweep.width * V && column_own < channels && column_own >= FIRST;
    float own_x = 0.f, own_scale = 0.f, own_shift = 0.f;
    if (finishes) {
        own_x = up(x[own]);
#ifdef SUM_IN
        own_x = rounded(own_x + up(x2[own]));
#endif
        own_scale = scale[own];
        own_shift = shift[own];
    }
    float around[V];
#pragma unroll
    for (int j = 0; j < V; j++) around[j] = 0.f;
    if (sweep.t.active) {
        const Tile& t = sweep.t;
        take(x + t.c - FIRST, around);
#ifdef SUM_IN
        float first[V];
        take(x2 + t.c, first);
#pragma unroll
        for (int j = 0; j < V; j++) around[j] = rounded(around[j] + first[j]);
#endif
    }
    __syncthreads();
    u32 count = 0;
    while (next < gridDim.x) {
        const u32 part = next;
        const Tile& t = sweep.t;
        float s0[V], s1[V];
#pragma unroll
        for (int j = 0; j < V; j++) s0[j] = s1[j] = 0.f;
        // From the last row to the first: the cache still has what was written last. The second pass
        // goes the other way and begins with what this one has read last.
        const auto row_of = [&](u32 at, u32 i) { return sweep.row(part, (sweep.batches - 1 - at) * BATCH + i); };
        const auto load = [&](u32 at, Summed& b) {
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                const size_t from = NORMED_AT(min(row_of(at, i), height - 1));
                b.x[i] = fetch(x + from);
#ifdef SUM_IN
                b.x2[i] = fetch(x2 + from);
#endif
            }
        };
        const auto use = [&](u32 at, Summed& b) {
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                const u32 row = row_of(at, i);
                if (row >= height) break;
                float v[V];
                open(b.x[i], v);
#ifdef SUM_IN
                float w[V];
                open(b.x2[i], w);
#pragma unroll
                for (int j = 0; j < V; j++) v[j] += w[j];
                b.x[i] = close(v);
                open(b.x[i], v);
                store(sum + (size_t)row * channels + t.c, b.x[i]);
#endif
#pragma unroll
                for (int j = 0; j < V; j++) {
                    const float d = v[j] - around[j];
                    s0[j] += d;
                    s1[j] = fmaf(d, d, s1[j]);
                }
            }
        };
        each_batch<Summed>(t.active ? sweep.batches : 0, load, use);
        if (threadIdx.x == 0) parts[count] = (u16)part;
        count++;
        publish(t, sweep.width, part, s0, s1, rows, partial, column, &next);
    }
    if (count > 0) wait_for_sums(column);
    u32 before = 0;
    if (threadIdx.x == 0) before = atomicAdd(column.passed, 1u);
    if (count > 0) add_parts(sweep.width, rows, partial);
    if (finishes && count > 0) {
        const Normal c = normal_of(own_x, rows[threadIdx.x], rows[sweep.width * V + threadIdx.x], (float)height,
                                   own_scale, own_shift, eps);
        float* mine = coefficients + sweep.before * V + threadIdx.x;
        mine[0] = c.a;
        mine[tx * V] = c.b;
        if (parts[0] == 0) {
            save_normal(c, saved, NORMED, own);
            move_running(c, running_mean, running_variance, own, running_mean[own],
                         running_variance[own], height, momentum);
        }
    }
    __syncthreads();
#ifdef SUM_IN
    const act* from = sum;
#else
    const act* from = x;
#endif
    Tile t = part_of(0, channels, tx);
    const u32 batches = (height + BATCH * t.step - 1) / (BATCH * t.step);
    float a[V], b[V], a2[V], b2[V], w[V];
    per_channel(coefficients, t.x * V, a);
    per_channel(coefficients + tx * V, t.x * V, b);
    if (!IS_NORMED) no_norm(a, b);
#if RES == 2
    if (t.active) {
        per_channel(saved2, t.c, a2);
        per_channel(saved2 + channels, t.c, b2);
    }
#endif
    for (u32 at_part = count; at_part > 0; at_part--) {
        t = part_of(parts[at_part - 1], channels, tx);
        const auto row_of = [&](u32 at, u32 i) { return t.first + (at * BATCH + i) * t.step; };
        const auto load = [&](u32 at, Passed& batch) {
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                const u32 row = min(row_of(at, i), height - 1);
                batch.x[i] = IS_NORMED ? fetch(from + NORMED_AT(row)) : Raw{};
#if RES > 0
                batch.other[i] = HAS_OTHER ? fetch(other + OTHER_AT(row)) : Raw{};
#endif
            }
        };
        const auto use = [&](u32 at, const Passed& batch) {
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                const u32 row = row_of(at, i);
                if (row >= height) break;
                float v[V];
                open(batch.x[i], v);
#if RES > 0
                open(batch.other[i], w);
#endif
                apply_norm(v, w, a, b, a2, b2);
                mark_and_cut(v, mask, row, channels, t);
                put(y + (size_t)row * channels + t.c, v);
            }
        };
        each_batch<Passed>(t.active ? batches : 0, load, use);
    }
    clear(column, before);
}
#endif

#ifdef K_norm_backward
// Rows of the first and of the second pass.
struct Summed {
    Raw x[BATCH];
    Gradient g[BATCH];
};
struct Passed {
    Raw x[BATCH];
#ifdef WRITE
    Raw g[BATCH];
#else
    Gradient g[BATCH];
#endif
#ifdef EXTRA
    Raw extra[BATCH];
#endif
};

// The gradients of scale, shift and input. WRITE: the gradient behind the cut goes out too, for the other
// branch of a residual sum, with PART for the channels that it has; of the others it is kept in the place of dx until
// the second pass. FROM: channels in front of what is normed have only that. EXTRA: x already has a gradient from
// elsewhere, which is added.
extern "C" __global__ void __launch_bounds__(THREADS, 1) norm_backward(
    const act* x, const act* d, const act* d2, const u8* mask, const float* saved, float* partial,
    u32* counters, act* g_out, float* dscale, float* dshift, const act* extra, act* dx, u32 height,
    u32 channels, u32 tx PART_ARGUMENT FROM_ARGUMENT) {
    __shared__ __align__(16) float rows[2 * THREADS * V];
    __shared__ float coefficients[2 * MOST_COLUMNS];
    __shared__ u16 parts[MOST_PARTS];
    __shared__ u32 next;
    const Column column = column_of(counters);
    partial = sums_of(partial, tx);
    if (threadIdx.x == 0) next = atomicAdd(column.taken, 1u);
    const u32 column_own = blockIdx.y * tx * V + threadIdx.x, own = column_own - FIRST;
    const bool finishes = threadIdx.x < tx * V && column_own < channels && column_own >= FIRST;
    float own_a = 0.f, own_mean = 0.f, own_inverse = 0.f;
    if (finishes) {
        own_a = saved[own];
        own_mean = saved[2 * NORMED + own];
        own_inverse = saved[3 * NORMED + own];
    }
    float a[V], b[V], mean[V];
    Tile t = part_of(0, channels, tx);
    const u32 batches = (height + BATCH * t.step - 1) / (BATCH * t.step);
    if (t.active && IS_NORMED) {
        per_channel(saved + 2 * NORMED, t.c - FIRST, mean);
        per_channel(saved, t.c - FIRST, a);
#if CUT == 1
        per_channel(saved + NORMED, t.c - FIRST, b);
#endif
    }
    __syncthreads();
    u32 count = 0;
    while (next < gridDim.x) {
        const u32 part = next;
        t = part_of(part, channels, tx);
        float s0[V], s1[V];
#pragma unroll
        for (int j = 0; j < V; j++) s0[j] = s1[j] = 0.f;
        const auto row_of = [&](u32 at, u32 i) { return t.first + ((batches - 1 - at) * BATCH + i) * t.step; };
        const auto load = [&](u32 at, Summed& batch) {
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                const u32 row = min(row_of(at, i), height - 1);
                batch.x[i] = IS_NORMED ? fetch(x + NORMED_AT(row)) : Raw{};
                batch.g[i] = fetch_gradient(d, d2, mask, row, channels, t);
            }
        };
        const auto use = [&](u32 at, const Summed& batch) {
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                const u32 row = row_of(at, i);
                if (row >= height) break;
                float v[V], g[V];
                open(batch.x[i], v);
                open_gradient(batch.g[i], v, a, b, g);
#ifdef WRITE
                if (HAS_OTHER) put(g_out + OTHER_AT(row), g);
                else if (IS_NORMED) put(dx + NORMED_AT(row), g);
#endif
                if (!IS_NORMED) continue;
#pragma unroll
                for (int j = 0; j < V; j++) {
                    s0[j] += g[j];
                    s1[j] = fmaf(g[j], v[j] - mean[j], s1[j]);
                }
            }
        };
        each_batch<Summed>(t.active ? batches : 0, load, use);
        if (threadIdx.x == 0) parts[count] = (u16)part;
        count++;
        publish(t, tx, part, s0, s1, rows, partial, column, &next);
    }
    if (count > 0) wait_for_sums(column);
    u32 before = 0;
    if (threadIdx.x == 0) before = atomicAdd(column.passed, 1u);
    if (count > 0) add_parts(tx, rows, partial);
    if (finishes && count > 0) {
        const float sum = rows[threadIdx.x], product = rows[tx * V + threadIdx.x];
        const Slope s = slope_of(own_a, own_mean, own_inverse, sum, product, (float)height);
        coefficients[threadIdx.x] = s.c2;
        coefficients[tx * V + threadIdx.x] = s.c3;
        if (parts[0] == 0) {
            dshift[own] = sum;
            dscale[own] = product * own_inverse;
        }
    }
    __syncthreads();
    const Sweep sweep = normed_sweep(height, channels, tx, FIRST);
    float c2[V], c3[V];
    per_channel(coefficients, (sweep.before + sweep.t.x) * V, c2);
    per_channel(coefficients + tx * V, (sweep.before + sweep.t.x) * V, c3);
#ifdef FROM
    if (sweep.t.active) per_channel(saved, sweep.t.c - FIRST, a);
#endif
    for (u32 at_part = count; at_part > 0; at_part--) {
        const u32 part = parts[at_part - 1];
        const Tile& t = sweep.t;
        const auto row_of = [&](u32 at, u32 i) { return sweep.row(part, at * BATCH + i); };
        const auto load = [&](u32 at, Passed& batch) {
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                const u32 row = min(row_of(at, i), height - 1);
                batch.x[i] = fetch(x + NORMED_AT(row));
#ifdef WRITE
                batch.g[i] = fetch(HAS_OTHER ? g_out + OTHER_AT(row) : dx + NORMED_AT(row));
#else
                batch.g[i] = fetch_gradient(d, d2, mask, row, channels, t);
#endif
#ifdef EXTRA
                batch.extra[i] = fetch(extra + NORMED_AT(row));
#endif
            }
        };
        const auto use = [&](u32 at, const Passed& batch) {
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                const u32 row = row_of(at, i);
                if (row >= height) break;
                float v[V], g[V];
                open(batch.x[i], v);
#ifdef WRITE
                open(batch.g[i], g);
#else
                open_gradient(batch.g[i], v, a, b, g);
#endif
                norm_slope(g, v, a, c2, c3);
#ifdef EXTRA
                float w[V];
                open(batch.extra[i], w);
#pragma unroll
                for (int j = 0; j < V; j++) g[j] += w[j];
#endif
                put(dx + NORMED_AT(row), g);
            }
        };
        each_batch<Passed>(t.active ? sweep.batches : 0, load, use);
    }
    clear(column, before);
}
#endif
