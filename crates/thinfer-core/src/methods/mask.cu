// The pass of em_mcmc.rs over the marks. It reads no scalars.
#define KEEP 1u

// A thread takes four neighbours; the last block has the tail.
#define FOR_EACH_FOUR(i, n)                                                                      \
    for (u32 i = 4u * (blockIdx.x * blockDim.x + threadIdx.x); i < (n); i += 4u * gridDim.x * blockDim.x)

INLINE float kept(float w, u32 mark) { return mark & KEEP ? w : 0.0f; }

INLINE float4 kept(float4 w, uchar4 mark) {
    return make_float4(kept(w.x, mark.x), kept(w.y, mark.y), kept(w.z, mark.z), kept(w.w, mark.w));
}

INLINE ushort4 bf16(float4 w) { return make_ushort4(bf16(w.x), bf16(w.y), bf16(w.z), bf16(w.w)); }

// forward <- mask w
extern "C" __global__ void __launch_bounds__(256) mask(
    const float* __restrict__ w, float* __restrict__ forward, unsigned short* __restrict__ low,
    const float* g, const float* s0, const float* s1, const unsigned char* __restrict__ marks, u32 n,
    const void* table, const u32* step, const float* clip)
{
    FOR_EACH_FOUR(i, n) {
        if (i + 4u <= n) {
            float4 x = kept(*(const float4*)(w + i), *(const uchar4*)(marks + i));
            *(float4*)(forward + i) = x;
            if (low) *(ushort4*)(low + i) = bf16(x);
        } else {
            for (u32 j = i; j < n; ++j) {
                float x = kept(w[j], marks[j]);
                forward[j] = x;
                if (low) low[j] = bf16(x);
            }
        }
    }
}
