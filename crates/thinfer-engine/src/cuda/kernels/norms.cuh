// What both forms of batch norm compute by channel and by row: `norm.cu` has them as kernels of their own,
// `whole.cu` each way in one.
// `saved` holds by channel: a, b (y = a x + b), mean, 1/sd, and for the way back c2, c3.
#ifndef RES
#define RES 0
#endif

struct Normal { float mean, variance, inverse, a, b; };

// From the sums over n rows of x - first and of its square. They are taken around the first row, so that a
// large mean does not swallow the variance.
__device__ __forceinline__ Normal normal_of(float first, float sum, float squares, float n, float scale,
                                            float shift, float eps) {
    Normal c;
    const float d = sum / n;
    c.mean = first + d;
    c.variance = fmaxf(squares / n - d * d, 0.f);
    c.inverse = 1.f / sqrtf(c.variance + eps);
    c.a = scale * c.inverse;
    c.b = shift - c.mean * c.a;
    return c;
}

__device__ __forceinline__ void save_normal(const Normal& c, float* saved, u32 channels, u32 own) {
    saved[own] = c.a;
    saved[channels + own] = c.b;
    saved[2 * channels + own] = c.mean;
    saved[3 * channels + own] = c.inverse;
}

// Brings the running statistics, which were `mean` and `variance`, nearer to those of the batch.
__device__ __forceinline__ void move_running(const Normal& c, float* running_mean, float* running_variance,
                                             u32 own, float mean, float variance, u32 rows,
                                             float momentum) {
    running_mean[own] = mean + momentum * (c.mean - mean);
    // A single pixel has no unbiased variance: the old one stays.
    if (rows > 1) {
        const float n = (float)rows, unbiased = c.variance * (n / (n - 1.f));
        running_variance[own] = variance + momentum * (unbiased - variance);
    }
}

// RES 0: v = a v + b; 1: + w; 2: + a2 w + b2.
// The other side of a residual sum. PART: it has only the first `other_channels`, and the others are zero.
#ifdef PART
#define PART_ARGUMENT , u32 other_channels
#define HAS_OTHER (t.c < other_channels)
#define OTHER_AT(row) ((size_t)(row) * other_channels + t.c)
#else
#define PART_ARGUMENT
#define HAS_OTHER true
#define OTHER_AT(row) ((size_t)(row) * channels + t.c)
#endif

// What is normed. FROM: it has only the channels from FIRST on, and before them the sum is its other side.
#ifdef FROM
#define FROM_ARGUMENT , u32 first_channel
#define FIRST first_channel
#else
#define FROM_ARGUMENT
#define FIRST 0u
#endif
#define NORMED (channels - FIRST)
#define IS_NORMED (t.c >= FIRST)
#define NORMED_AT(row) ((size_t)(row) * NORMED + t.c - FIRST)

// Of channels that are not normed nothing is left.
__device__ __forceinline__ void no_norm(float* a, float* b) {
#pragma unroll
    for (int j = 0; j < V; j++) a[j] = b[j] = 0.f;
}

__device__ __forceinline__ void apply_norm(float* v, const float* w, const float* a, const float* b,
                                           const float* a2, const float* b2) {
#pragma unroll
    for (int j = 0; j < V; j++) v[j] = fmaf(a[j], v[j], b[j]);
#if RES > 0
#pragma unroll
    for (int j = 0; j < V; j++) {
#if RES == 2
        v[j] += fmaf(a2[j], w[j], b2[j]);
#else
        v[j] += w[j];
#endif
    }
#endif
}

// RELU: cuts at zero. MASK: one bit a value says what was cut, because the sum cannot be recomputed on the
// way back.
__device__ __forceinline__ void mark_and_cut(float* v, u8* mask, u32 row, u32 channels, const Tile& t) {
#ifdef MASK
    u32 bits = 0;
#pragma unroll
    for (int j = 0; j < V; j++) bits |= (v[j] > 0.f ? 1u : 0u) << j;
    mask[(size_t)row * (channels / V) + t.group] = (u8)bits;
#endif
#ifdef RELU
#pragma unroll
    for (int j = 0; j < V; j++) v[j] = v[j] <= 0.f ? 0.f : v[j];
#endif
}

// Of the way back, dx = a g + c2 x + c3: from the sums over n rows of g and of g (x - mean).
struct Slope { float c2, c3; };

__device__ __forceinline__ Slope slope_of(float a, float mean, float inverse, float sum, float product,
                                          float n) {
    Slope s;
    s.c2 = -a * inverse * inverse * (product / n);
    s.c3 = -a * (sum / n) - s.c2 * mean;
    return s;
}

__device__ __forceinline__ void norm_slope(float* g, const float* v, const float* a, const float* c2,
                                           const float* c3) {
#pragma unroll
    for (int j = 0; j < V; j++) g[j] = fmaf(a[j], g[j], fmaf(c2[j], v[j], c3[j]));
}
