// What kernels that write WRITTEN channels of pixels share.
#define SUMS (WRITTEN / 2)

__device__ __forceinline__ void fetch_filter(u32 to, const Map* map, u32 barrier, u32 in, u32 tap, u32 out) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
        "[%2];" ::"r"(to), "l"(map), "r"(barrier), "r"(in), "r"(tap), "r"(out) : "memory");
}

// d += a b or d = a b, 64 by WRITTEN by 16.
#ifdef DATA
#define TURNED "1"
#else
#define TURNED "0"
#endif
#define MULTIPLY(written, sums, a, b, add)                                             \
    "{\n.reg .pred add;\nsetp.ne.u32 add, " add ", 0;\n"                                \
    "wgmma.mma_async.sync.aligned.m64n" written "k16.f32.bf16.bf16 {" sums "}, " a ", " b \
    ", add, 1, 1, 0, " TURNED ";\n}"
__device__ __forceinline__ void multiply(float (&d)[SUMS], u64 a, u64 b, u32 add) {
#if WRITTEN == 32
    asm volatile(MULTIPLY("32", TO_15, "%16", "%17", "%18") : EIGHT(0), EIGHT(8) : "l"(a), "l"(b), "r"(add));
#elif WRITTEN == 48
    asm volatile(MULTIPLY("48", TO_23, "%24", "%25", "%26")
                 : EIGHT(0), EIGHT(8), EIGHT(16) : "l"(a), "l"(b), "r"(add));
#elif WRITTEN == 64
    asm volatile(MULTIPLY("64", TO_31, "%32", "%33", "%34")
                 : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24) : "l"(a), "l"(b), "r"(add));
#elif WRITTEN == 80
    asm volatile(MULTIPLY("80", TO_39, "%40", "%41", "%42")
                 : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32) : "l"(a), "l"(b), "r"(add));
#elif WRITTEN == 96
    asm volatile(MULTIPLY("96", TO_47, "%48", "%49", "%50")
                 : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40) : "l"(a), "l"(b), "r"(add));
#elif WRITTEN == 112
    asm volatile(MULTIPLY("112", TO_55, "%56", "%57", "%58")
                 : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40), EIGHT(48)
                 : "l"(a), "l"(b), "r"(add));
#else
    asm volatile(MULTIPLY("128", TO_63, "%64", "%65", "%66")
                 : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40), EIGHT(48), EIGHT(56)
                 : "l"(a), "l"(b), "r"(add));
#endif
}

// Writes the channels from `written` on of a thread's first or second pixel, of which there are `channels`.
__device__ __forceinline__ void write_pixel(u16* to, const float (&d)[SUMS], u32 half, u32 written, u32 channels) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (u32 j = 0; j < WRITTEN / 8; j += 2) {
        // Neighbouring threads swap, so that each has four neighbours instead of two and two.
        const u32 even = to_bf16x2(d[4 * j + 2 * half], d[4 * j + 2 * half + 1]);
        const u32 odd = to_bf16x2(d[4 * j + 4 + 2 * half], d[4 * j + 5 + 2 * half]);
        const bool second = lane % 2;
        const u32 other = __shfl_xor_sync(~0u, second ? even : odd, 1);
        const u32 channel = written + 8 * (j + second) + lane % 4 / 2 * 4;
        if (channel < channels) {
            *(uint2*)(to + channel) = second ? make_uint2(other, odd) : make_uint2(even, other);
        }
    }
}
