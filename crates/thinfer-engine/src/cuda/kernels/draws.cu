// The noise by itself, for the self test: numbers `first ..` of a step as updates draw them, four by a
// Philox block, and those of the step after it as updates of a smaller network do, one by one. `first` is
// a multiple of 128.
extern "C" __global__ void draws(const NoiseKey* __restrict__ keys, u32 first, u32 n, float* fours, float* ones)
{
    const NoiseKey key = *keys;
    const NoiseKey after = next_step(key);
    FOR_EACH_BLOCK(block, n) {
        real eps[4];
        normals(key, first / 128u * 32u + block, eps);
        for (int j = 0; j < 4; ++j) {
            const u32 i = element(block) + 32u * j;
            if (i < n) {
                fours[i] = plain(eps[j]);
                ones[i] = plain(normal(after, first + i));
            }
        }
    }
}
