// Passes over n = count * V values, and moves between the flat parameter buffers and what the
// libraries want to read.

#define EACH(i, count) \
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (count); i += gridDim.x * blockDim.x)

__device__ __forceinline__ float curve(float x) {
#ifdef TANH
    return tanhf(x);
#else
    // Written so that what is not a number stays so and is noticed.
    return x <= 0.f ? 0.f : x;
#endif
}

extern "C" __global__ void curve_forward(const act* x, act* y, u32 count) {
    EACH(i, count) {
        float v[V];
        take(x + (size_t)i * V, v);
#pragma unroll
        for (int j = 0; j < V; j++) v[j] = curve(v[j]);
        put(y + (size_t)i * V, v);
    }
}

// From the output: relu' = [y > 0], tanh' = 1 - y^2.
extern "C" __global__ void curve_backward(const act* y, const act* d, act* dx, u32 count) {
    EACH(i, count) {
        float v[V], g[V];
        take(y + (size_t)i * V, v);
        take(d + (size_t)i * V, g);
#pragma unroll
        for (int j = 0; j < V; j++) {
#ifdef TANH
            g[j] *= 1.f - v[j] * v[j];
#else
            g[j] = v[j] > 0.f ? g[j] : 0.f;
#endif
        }
        put(dx + (size_t)i * V, g);
    }
}

extern "C" __global__ void sum_two(const act* a, const act* b, act* y, u32 count) {
    EACH(i, count) {
        float v[V], w[V];
        take(a + (size_t)i * V, v);
        take(b + (size_t)i * V, w);
#pragma unroll
        for (int j = 0; j < V; j++) v[j] += w[j];
        put(y + (size_t)i * V, v);
    }
}

extern "C" __global__ void add_bias(act* y, const float* bias, u32 count, u32 channels) {
    EACH(i, count) {
        const u32 c = (u32)(((size_t)i * V) % channels);
        float v[V];
        take(y + (size_t)i * V, v);
#pragma unroll
        for (int j = 0; j < V; j++) v[j] += bias[c + j];
        put(y + (size_t)i * V, v);
    }
}

extern "C" __global__ void add_bias_f32(float* y, const float* bias, u32 count, u32 channels) {
    EACH(i, count) y[i] += bias[i % channels];
}

extern "C" __global__ void widen(const act* x, float* y, u32 count) {
    EACH(i, count) y[i] = up(x[i]);
}

// One piece of a weight tensor: `count` values from `flat` on in the flat buffers, whose innermost
// axis has `inner` values there and `padded` values at `packed`.
struct Piece { u32 flat, packed, first, count, inner, padded; };

// Flat weights into an aligned, padded copy. Padding stays zero from the allocation.
extern "C" __global__ void pack_weights(const Piece* pieces, const act* flat, act* packed) {
    const Piece p = pieces[blockIdx.x];
    for (u32 i = threadIdx.x; i < p.count; i += blockDim.x) {
        const u32 at = p.first + i;
        const u32 to = p.inner == p.padded ? at : at / p.inner * p.padded + at % p.inner;
        packed[(size_t)p.packed + to] = flat[(size_t)p.flat + at];
    }
}

// Weight gradients as the libraries wrote them into the flat f32 gradient.
extern "C" __global__ void unpack_gradients(const Piece* pieces, const act* packed, float* flat) {
    const Piece p = pieces[blockIdx.x];
    const act* from = packed + p.packed;
    float* to = flat + p.flat;
    if (p.inner == p.padded && p.flat % 4 == 0 && p.first % 8 == 0) {
        const u32 whole = p.count / 8;
        for (u32 i = threadIdx.x; i < whole; i += blockDim.x) {
            const size_t at = p.first + (size_t)i * 8;
            float v[8];
#ifdef ACT_BF16
            const uint4 raw = *(const uint4*)(from + at);
            const u32 w[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                v[2 * j] = __uint_as_float(w[j] << 16);
                v[2 * j + 1] = __uint_as_float(w[j] & 0xffff0000u);
            }
#else
#pragma unroll
            for (int j = 0; j < 8; j++) v[j] = from[at + j];
#endif
            ((float4*)(to + at))[0] = make_float4(v[0], v[1], v[2], v[3]);
            ((float4*)(to + at))[1] = make_float4(v[4], v[5], v[6], v[7]);
        }
        for (u32 i = whole * 8 + threadIdx.x; i < p.count; i += blockDim.x)
            to[p.first + i] = up(from[p.first + i]);
        return;
    }
    for (u32 i = threadIdx.x; i < p.count; i += blockDim.x) {
        const u32 at = p.first + i;
        to[at] = up(from[at / p.inner * p.padded + at % p.inner]);
    }
}
