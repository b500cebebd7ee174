// Random channel scales, as in ops/vary.rs: y = s x + b, s = clip(m + softplus(r) z, -10, 10), a fresh
// one for every row and channel. TRAIN: row n of a batch belongs to member n mod K and n keys its
// noise; otherwise all rows belong to one member and their places in the data key their noise.
// CAUCHY: z is a Cauchy number, otherwise a normal one. WIDE: values are f32 in every precision.
#define LIMIT 10.f

#define EACH(i, count) \
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (count); i += gridDim.x * blockDim.x)

#ifdef WIDE
typedef float val;
__device__ __forceinline__ void load(const val* p, float* v) { v[0] = *p; }
__device__ __forceinline__ void save(val* p, const float* v) { *p = v[0]; }
#else
typedef act val;
__device__ __forceinline__ void load(const val* p, float* v) { take(p, v); }
__device__ __forceinline__ void save(val* p, const float* v) { put(p, v); }
#endif

// The same words in the same order as Draw in mixture.rs.
struct Draw {
    NoiseKey key;
    u32 member, first_row;
};

// `channels` of the activations, of which `own` have scales and the others are padding. A row has `of`
// scales in all nodes of the network, those of this one from `first` on.
struct Sizes {
    u32 rows, pixels, channels, own, members, first, of;
};

__device__ __forceinline__ u32 member_of(const Draw* draw, const Sizes& z, u32 row) {
#ifdef TRAIN
    return row % z.members;
#else
    return draw->member;
#endif
}

// The standard number at place `at` of a step.
__device__ __forceinline__ float standard(const NoiseKey& key, u64 at) {
    const u32 within = (u32)(at % 128u), which = within / 32u;
    const Words w = philox(key, (u32)(at / 128u * 32u) + within % 32u);
#ifdef CAUCHY
    real s, c;
    sin_cos_turn(which == 0u ? w.x : which == 1u ? w.y : which == 2u ? w.z : w.w, s, c);
    return plain(s / c);
#else
    real first, second;
    box_muller(which < 2u ? w.x : w.z, which < 2u ? w.y : w.w, first, second);
    return plain(which % 2u ? second : first);
#endif
}

// Scales of every row and channel, and in training their slopes with respect to r.
extern "C" __global__ void vary_draw(
    const float* __restrict__ posterior, const Draw* draw, const u32* step, float* scales, float* slopes, const Sizes z)
{
    const u32 at = step ? *step : 0u;
    NoiseKey key = draw->key;
#ifdef TRAIN
    key.step_low += at;
    key.step_high += key.step_low < at ? 1u : 0u;
    const u64 first_row = 0;
#else
    const u64 first_row = draw->first_row + (u64)at * z.rows;
#endif
    EACH(i, z.rows * z.channels) {
        const u32 row = i / z.channels, c = i % z.channels;
        float s = 0.f, slope = 0.f;
        if (c < z.own) {
            const float* pair = posterior + 2u * (member_of(draw, z, row) * z.own + c);
            const float number = standard(key, (first_row + row) * z.of + z.first + c);
            s = plain(real(pair[0]) + softplus(real(pair[1])) * real(number));
            slope = plain(real(number) * sigmoid(real(pair[1])).tau);
            if (s >= LIMIT || s <= -LIMIT) {
                s = s > 0.f ? LIMIT : -LIMIT;
                slope = 0.f;
            }
        }
        scales[i] = s;
#ifdef TRAIN
        slopes[i] = slope;
#endif
    }
}

extern "C" __global__ void vary_forward(
    const val* x, val* y, const float* __restrict__ scales, const float* __restrict__ bias, const Draw* draw,
    const Sizes z, u32 count)
{
    const u32 width = z.pixels * z.channels;
    EACH(i, count) {
        const u32 at = i * V, row = at / width, c = at % z.channels;
        float v[V];
        load(x + at, v);
#pragma unroll
        for (int j = 0; j < V; j++) v[j] *= scales[row * z.channels + c + j];
        if (bias) {
            const float* b = bias + member_of(draw, z, row) * z.own + c;
#pragma unroll
            for (int j = 0; j < V; j++) v[j] += b[j];
        }
        save(y + at, v);
    }
}

// A block takes one row and `width` groups of V channels: DX writes dx = s dy, and the sums over pixels
// of x dy go to `sums`, with BIAS those of dy to `shifts`.
extern "C" __global__ void __launch_bounds__(256) vary_backward(
    const val* x, const act* dy, const float* __restrict__ scales, act* dx, float* sums, float* shifts, const Sizes z,
    u32 width)
{
    __shared__ float parts[256 * V];
#ifdef BIAS
    __shared__ float shift_parts[256 * V];
#endif
    const u32 row = blockIdx.x, lanes = 256u / width, lane = threadIdx.x / width, column = threadIdx.x % width;
    const u32 c = (blockIdx.y * width + column) * V;
    const bool there = lane < lanes && c < z.channels;
    float sum[V], shift[V], s[V];
#pragma unroll
    for (int j = 0; j < V; j++) sum[j] = shift[j] = 0.f;
    if (there) {
#pragma unroll
        for (int j = 0; j < V; j++) s[j] = scales[row * z.channels + c + j];
        for (u32 pixel = lane; pixel < z.pixels; pixel += lanes) {
            const u32 at = (row * z.pixels + pixel) * z.channels + c;
            float v[V], d[V];
            load(x + at, v);
            take(dy + at, d);
#pragma unroll
            for (int j = 0; j < V; j++) {
                sum[j] += v[j] * d[j];
                shift[j] += d[j];
                d[j] *= s[j];
            }
#ifdef DX
            put(dx + at, d);
#endif
        }
#pragma unroll
        for (int j = 0; j < V; j++) {
            parts[threadIdx.x * V + j] = sum[j];
#ifdef BIAS
            shift_parts[threadIdx.x * V + j] = shift[j];
#endif
        }
    }
    __syncthreads();
    if (lane != 0u || !there) return;
    // In order, so that the bits are the same every time.
    for (u32 other = 1; other < lanes; other++) {
#pragma unroll
        for (int j = 0; j < V; j++) {
            sum[j] += parts[(other * width + column) * V + j];
#ifdef BIAS
            shift[j] += shift_parts[(other * width + column) * V + j];
#endif
        }
    }
#pragma unroll
    for (int j = 0; j < V; j++) {
        sums[row * z.channels + c + j] = sum[j];
#ifdef BIAS
        shifts[row * z.channels + c + j] = shift[j];
#endif
    }
}

// Sums over the rows of each member: 32 channels of one member a block.
extern "C" __global__ void __launch_bounds__(256) vary_gradient(
    const float* __restrict__ sums, const float* __restrict__ shifts, const float* __restrict__ scales,
    const float* __restrict__ slopes, float* posterior, float* bias, const Sizes z)
{
    __shared__ float parts[3][8][32];
    const u32 column = threadIdx.x % 32u, lane = threadIdx.x / 32u;
    const u32 c = blockIdx.x * 32u + column, member = blockIdx.y;
    float m = 0.f, r = 0.f, b = 0.f;
    if (c < z.own) {
        for (u32 row = member + lane * z.members; row < z.rows; row += 8u * z.members) {
            const u32 at = row * z.channels + c;
            const float d = sums[at];
            m += fabsf(scales[at]) >= LIMIT ? 0.f : d;
            r += d * slopes[at];
#ifdef BIAS
            b += shifts[at];
#endif
        }
    }
    parts[0][lane][column] = m;
    parts[1][lane][column] = r;
    parts[2][lane][column] = b;
    __syncthreads();
    if (lane != 0u || c >= z.own) return;
    for (u32 other = 1; other < 8u; other++) {
        m += parts[0][other][column];
        r += parts[1][other][column];
        b += parts[2][other][column];
    }
    const u32 to = member * z.own + c;
    posterior[2u * to] = m;
    posterior[2u * to + 1u] = r;
#ifdef BIAS
    bias[to] = b;
#endif
}
