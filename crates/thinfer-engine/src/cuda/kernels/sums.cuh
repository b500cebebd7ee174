// What filter gradients share: products that sum over pixels, of 64 channels by a TILE of others, and adding up.
#define SUMS (TILE / 2)

// d += a b, 64 by TILE by 16.
#define MULTIPLY(tile, sums, a, b) \
    "wgmma.mma_async.sync.aligned.m64n" tile "k16.f32.bf16.bf16 {" sums "}, " a ", " b ", 1, 1, 1, 1, 1;"
__device__ __forceinline__ void multiply(float (&d)[SUMS], u64 a, u64 b) {
#if TILE == 32
    asm volatile(MULTIPLY("32", TO_15, "%16", "%17") : EIGHT(0), EIGHT(8) : "l"(a), "l"(b));
#elif TILE == 48
    asm volatile(MULTIPLY("48", TO_23, "%24", "%25") : EIGHT(0), EIGHT(8), EIGHT(16) : "l"(a), "l"(b));
#elif TILE == 64
    asm volatile(MULTIPLY("64", TO_31, "%32", "%33") : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24) : "l"(a), "l"(b));
#else
    asm volatile(MULTIPLY("80", TO_39, "%40", "%41")
                 : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32) : "l"(a), "l"(b));
#endif
}

// Blocks of 256 threads, of which `shares` add up the splits of the same four neighbours. Of the input channels
// the gradient has `stored`, the others are padding.
extern "C" __global__ void __launch_bounds__(256) filter_sum(const float4* partial, float* dw, u32 quads, u32 splits,
                                                            u32 shares, u32 in, u32 stored) {
    __shared__ float4 sums[256];
    const u32 wide = 256 / shares, share = threadIdx.x / wide, i = blockIdx.x * wide + threadIdx.x % wide;
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
    if (i < quads) {
#pragma unroll 4
        for (u32 s = share; s < splits; s += shares) {
            const float4 v = __ldcg(partial + (size_t)s * quads + i);
            sum.x += v.x;
            sum.y += v.y;
            sum.z += v.z;
            sum.w += v.w;
        }
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (share > 0 || i >= quads) return;
    for (u32 other = 1; other < shares; other++) {
        const float4 v = sums[other * wide + threadIdx.x];
        sum.x += v.x;
        sum.y += v.y;
        sum.z += v.z;
        sum.w += v.w;
    }
    const float four[4] = {sum.x, sum.y, sum.z, sum.w};
    const u32 column = 4 * i % in, line = 4 * i / in;
#ifdef SWAPPED
    // Sums are [out][tap][in], the gradient is [in][8 - tap][out].
    const u32 tap = line % 9, row = line / 9;
    if (row >= stored) return;
    float* to = dw + ((size_t)column * 9 + 8 - tap) * stored + row;
#pragma unroll
    for (u32 j = 0; j < 4; j++) to[(size_t)j * 9 * stored] = four[j];
#else
    // In the flat gradient weights lie one after the other: some are not aligned.
    if (stored == in && (size_t)dw % 16 == 0) {
        ((float4*)dw)[i] = sum;
        return;
    }
#pragma unroll
    for (u32 j = 0; j < 4; j++) {
        if (column + j < stored) dw[(size_t)line * stored + column + j] = four[j];
    }
#endif
}
