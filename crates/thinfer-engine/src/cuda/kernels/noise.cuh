// Keyed noise and elementary functions, as noise.rs and elementary.rs have them. Every kernel that
// updates weights starts with this text: NVRTC has no include path.
//
// EXACT=1: no fused multiply-add, IEEE division and square root. The numbers are the bits that the
// CPU gives. EXACT=0: the same formulas and polynomials, fused and with the hardware's fast
// reciprocal, exponential and square root; they agree with the CPU within 1e-6. Only this one runs
// at the speed of the memory.
#ifndef EXACT
#define EXACT 0
#endif

typedef unsigned int u32;
typedef unsigned long long u64;
#define INLINE __device__ __forceinline__

#if EXACT
// A float whose sums and products the compiler may not fuse.
struct real {
    float x;
    INLINE real() {}
    INLINE real(float value) : x(value) {}
};
INLINE real operator+(real a, real b) { return __fadd_rn(a.x, b.x); }
INLINE real operator-(real a, real b) { return __fsub_rn(a.x, b.x); }
INLINE real operator*(real a, real b) { return __fmul_rn(a.x, b.x); }
INLINE real operator/(real a, real b) { return __fdiv_rn(a.x, b.x); }
INLINE real operator-(real a) { return -a.x; }
INLINE float plain(real a) { return a.x; }
INLINE real root(real a) { return __fsqrt_rn(a.x); }
#else
typedef float real;
INLINE float plain(real a) { return a; }
#ifdef __CUDA_ARCH__
// One instruction each; the forms without ftz add scaling for denormals that never occur here.
#define HARDWARE(name, instruction)                                        \
    INLINE float name(float a) {                                           \
        float r;                                                           \
        asm(instruction ".approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a)); \
        return r;                                                          \
    }
HARDWARE(root, "sqrt")
HARDWARE(over_root, "rsqrt")
HARDWARE(over, "rcp")
HARDWARE(power_of_two, "ex2")
#else
INLINE float root(float a) { return sqrtf(a); }
INLINE float over_root(float a) { return 1.0f / sqrtf(a); }
INLINE float over(float a) { return 1.0f / a; }
INLINE float power_of_two(float a) { return exp2f(a); }
#endif
#endif

INLINE real natural_log(float x) {
    u32 bits = __float_as_uint(x);
    int exponent = (int)(bits >> 23) - 126;
    float mantissa = __uint_as_float((bits & 0x007fffffu) | 0x3f000000u);
    bool below = mantissa < 0.70710678f;
    real m = below ? real(mantissa) + real(mantissa) - real(1.0f) : real(mantissa) - real(1.0f);
    real e = real((float)(below ? exponent - 1 : exponent));
    real z = m * m;
    real p = 7.0376836e-2f;
    p = p * m - real(1.15146103e-1f);
    p = p * m + real(1.16769987e-1f);
    p = p * m - real(1.24201408e-1f);
    p = p * m + real(1.42493228e-1f);
    p = p * m - real(1.66680577e-1f);
    p = p * m + real(2.00007148e-1f);
    p = p * m - real(2.4999994e-1f);
    p = p * m + real(3.3333331e-1f);
    real y = p * m * z;
    y = y + e * real(-2.1219444e-4f);
    y = y - real(0.5f) * z;
    return m + y + e * real(0.693359375f);
}

// sin and cos of a turn times word / 2^32, shifted by an eighth of a turn.
INLINE void sin_cos_turn(u32 word, real& s, real& c) {
    u32 quadrant = word >> 30;
    int within = (int)(word & 0x3fffffffu) - (1 << 29);
    real a = real((float)within) * real(1.57079632679489661923f / 1073741824.0f);
    real z = a * a;
    real p = -1.9515296e-4f;
    p = p * z + real(8.332161e-3f);
    p = p * z - real(1.6666655e-1f);
    p = p * z * a + a;
    real q = 2.4433157e-5f;
    q = q * z - real(1.3887316e-3f);
    q = q * z + real(4.1666646e-2f);
    q = q * z * z - real(0.5f) * z + real(1.0f);
    bool odd = quadrant & 1u;
    s = odd ? q : p;
    c = odd ? -p : q;
    if (quadrant & 2u) {
        s = -s;
        c = -c;
    }
}

// e^-x, bounded so that 1 + e^-x stays finite; not-a-number passes through the comparisons.
INLINE real exp_negative(real x) {
#if EXACT
    float t = -x.x;
    t = t > 88.0f ? 88.0f : t;
    t = t < -87.0f ? -87.0f : t;
    real scaled = real(t) * real(1.44269504088896340736f);
    real n = (scaled + real(12582912.0f)) - real(12582912.0f);
    real r = real(t) - n * real(0.693359375f) - n * real(-2.1219444e-4f);
    real p = 1.9875691e-4f;
    p = p * r + real(1.3981999e-3f);
    p = p * r + real(8.333452e-3f);
    p = p * r + real(4.1665796e-2f);
    p = p * r + real(1.6666665e-1f);
    p = p * r + real(0.5f);
    real y = p * r * r + r + real(1.0f);
    // The mask keeps the conversion defined when n is not a number; y is not one either then.
    u32 power = (u32)((n.x == n.x ? (int)n.x : 0) + 127) << 23;
    return y * real(__uint_as_float(power));
#else
    return power_of_two((x < -86.0f ? -86.0f : x) * -1.44269504088896340736f);
#endif
}

// tau = sigmoid(rho) and what the updates divide by it.
struct Tau {
    real tau;
    real inverse; // 1 + e^-rho
};
INLINE Tau sigmoid(real rho) {
    Tau t;
    t.inverse = real(1.0f) + exp_negative(rho);
#if EXACT
    t.tau = real(1.0f) / t.inverse;
#else
    t.tau = over(t.inverse);
#endif
    return t;
}

// ln(1 + e^x); the series keeps the digits of a small e, which 1 + e loses.
INLINE real softplus(real x) {
    float at = plain(x);
    real e = exp_negative(real(at < 0.0f ? -at : at));
    real series = e * (real(1.0f) - e * (real(0.5f) - e * (real(1.0f / 3.0f) - real(0.25f) * e)));
    real tail = plain(e) >= 0.03f ? natural_log(plain(real(1.0f) + e)) : series;
    return at > 0.0f ? x + tail : tail;
}

// 1 / (n tau)
INLINE real one_over(real n, real over_n, Tau t) {
#if EXACT
    return real(1.0f) / (n * t.tau);
#else
    return over_n * t.inverse;
#endif
}

// Seed, chain, stream and step of one draw; the same words in the same order as KeyWords in noise.rs.
struct NoiseKey {
    u32 seed_low, seed_high, chain, stream, step_low, step_high;
};

INLINE NoiseKey next_step(NoiseKey key) {
    key.step_low += 1u;
    key.step_high += key.step_low == 0u ? 1u : 0u;
    return key;
}

struct Words {
    u32 x, y, z, w;
};

// Philox4x32 with ten rounds.
INLINE Words philox(const NoiseKey& key, u32 block) {
    u32 c0 = block, c1 = key.step_low, c2 = key.step_high << 16 | key.stream, c3 = key.chain;
    u32 k0 = key.seed_low, k1 = key.seed_high;
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        u64 a = (u64)0xD2511F53u * c0;
        u64 b = (u64)0xCD9E8D57u * c2;
        c0 = (u32)(b >> 32) ^ c1 ^ k0;
        c1 = (u32)b;
        c2 = (u32)(a >> 32) ^ c3 ^ k1;
        c3 = (u32)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    Words out = {c0, c1, c2, c3};
    return out;
}

INLINE void box_muller(u32 radius, u32 angle, real& first, real& second) {
    real u = (real((float)(int)(radius >> 1)) + real(0.5f)) * real(1.0f / 2147483648.0f);
    real twice = real(-2.0f) * natural_log(plain(u));
    real r = root(fmaxf(plain(twice), 0.0f));
    real s, c;
    sin_cos_turn(angle, s, c);
    first = r * c;
    second = r * s;
}

// The four standard normal numbers of one Philox block: elements at, at + 32, at + 64, at + 96 of a
// tile of 128, where `block` is 32 (tile) + at.
INLINE void normals(const NoiseKey& key, u32 block, real (&out)[4]) {
    Words w = philox(key, block);
    box_muller(w.x, w.y, out[0], out[1]);
    box_muller(w.z, w.w, out[2], out[3]);
}

// The standard normal number of one element.
INLINE real normal(const NoiseKey& key, u32 at) {
    const u32 within = at % 128u;
    Words w = philox(key, at / 128u * 32u + within % 32u);
    const u32 which = within / 32u;
    real first, second;
    box_muller(which < 2u ? w.x : w.z, which < 2u ? w.y : w.w, first, second);
    return which % 2u ? second : first;
}

// The nearest bf16, ties to even.
INLINE unsigned short bf16(float x) {
#ifdef __CUDA_ARCH__
    unsigned short r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
#else
    u32 bits = __float_as_uint(x);
    return (unsigned short)(x != x ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#endif
}

// A thread of a grid-stride loop owns the four elements of one Philox block: `block` walks over the
// blocks, `element(block)` is the first of the four, and the others follow 32 apart. A warp then
// reads whole lines of 128 bytes, and one Philox call serves four weights.
#define BLOCKS(n) (((n) + 127u) / 128u * 32u)
#define FOR_EACH_BLOCK(block, n)                                                  \
    for (u32 block = blockIdx.x * blockDim.x + threadIdx.x; block < BLOCKS(n); \
         block += gridDim.x * blockDim.x)
INLINE u32 element(u32 block) { return block / 32u * 128u + block % 32u; }
