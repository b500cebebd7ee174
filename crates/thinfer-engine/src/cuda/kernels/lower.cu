// The bf16 copy of what the network reads, a pass that reads no scalars. A thread takes four
// neighbours; the last block has the tail.
#define FOR_EACH_FOUR(i, n)                                                                      \
    for (u32 i = 4u * (blockIdx.x * blockDim.x + threadIdx.x); i < (n); i += 4u * gridDim.x * blockDim.x)

INLINE ushort4 bf16(float4 w) { return make_ushort4(bf16(w.x), bf16(w.y), bf16(w.z), bf16(w.w)); }

// low <- what the network reads, for the first step and after weights were set from outside.
extern "C" __global__ void __launch_bounds__(256) lower(
    const float* __restrict__ w, const float* __restrict__ forward, unsigned short* __restrict__ low,
    const float* g, const float* s0, const float* s1, const unsigned char* marks, u32 n,
    const void* table, const u32* step, const float* clip)
{
    const float* read = forward ? forward : w;
    FOR_EACH_FOUR(i, n) {
        if (i + 4u <= n) {
            *(ushort4*)(low + i) = bf16(*(const float4*)(read + i));
        } else {
            for (u32 j = i; j < n; ++j) low[j] = bf16(read[j]);
        }
    }
}
