// Shared by all kernels. ACT_BF16: activations are bf16, otherwise f32. V: channels a thread holds,
// 8 where the channels allow 16-byte accesses, else 1.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifndef V
#define V 8
#endif

__device__ __forceinline__ float from_bf16(u16 x) { return __uint_as_float((u32)x << 16); }

__device__ __forceinline__ u16 to_bf16(float x) {
    u16 r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
}

__device__ __forceinline__ u32 to_bf16x2(float low, float high) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

#ifdef ACT_BF16
typedef u16 act;
__device__ __forceinline__ float up(act x) { return from_bf16(x); }
__device__ __forceinline__ act down(float x) { return to_bf16(x); }
#else
typedef float act;
__device__ __forceinline__ float up(act x) { return x; }
__device__ __forceinline__ act down(float x) { return x; }
#endif

// V activations as they lie in memory, so that several loads can be under way at once.
#if V == 8 && defined(ACT_BF16)
struct Raw { uint4 a; };
__device__ __forceinline__ Raw fetch(const act* p) { return Raw{*(const uint4*)p}; }
__device__ __forceinline__ void open(const Raw& r, float* v) {
    const u32 w[4] = {r.a.x, r.a.y, r.a.z, r.a.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[2 * i] = __uint_as_float(w[i] << 16);
        v[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
    }
}
__device__ __forceinline__ Raw close(const float* v) {
    return Raw{make_uint4(to_bf16x2(v[0], v[1]), to_bf16x2(v[2], v[3]), to_bf16x2(v[4], v[5]),
                          to_bf16x2(v[6], v[7]))};
}
__device__ __forceinline__ void store(act* p, const Raw& r) { *(uint4*)p = r.a; }
#elif V == 8
struct Raw { float4 a, b; };
__device__ __forceinline__ Raw fetch(const act* p) {
    return Raw{((const float4*)p)[0], ((const float4*)p)[1]};
}
__device__ __forceinline__ void open(const Raw& r, float* v) {
    v[0] = r.a.x; v[1] = r.a.y; v[2] = r.a.z; v[3] = r.a.w;
    v[4] = r.b.x; v[5] = r.b.y; v[6] = r.b.z; v[7] = r.b.w;
}
__device__ __forceinline__ Raw close(const float* v) {
    return Raw{make_float4(v[0], v[1], v[2], v[3]), make_float4(v[4], v[5], v[6], v[7])};
}
__device__ __forceinline__ void store(act* p, const Raw& r) {
    ((float4*)p)[0] = r.a;
    ((float4*)p)[1] = r.b;
}
#else
struct Raw { act a; };
__device__ __forceinline__ Raw fetch(const act* p) { return Raw{*p}; }
__device__ __forceinline__ void open(const Raw& r, float* v) { v[0] = up(r.a); }
__device__ __forceinline__ Raw close(const float* v) { return Raw{down(v[0])}; }
__device__ __forceinline__ void store(act* p, const Raw& r) { *p = r.a; }
#endif

__device__ __forceinline__ void take(const act* p, float* v) { open(fetch(p), v); }
__device__ __forceinline__ void put(act* p, const float* v) { store(p, close(v)); }

// Values the next layer will see: what a later kernel recomputes must be rounded in the same way.
__device__ __forceinline__ float rounded(float x) { return up(down(x)); }
