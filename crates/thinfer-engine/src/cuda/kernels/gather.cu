// Batches from a data set that lives on the device: rows order[step * batch ..], made into what the
// network reads. LOW=1 writes bf16, otherwise f32.
#ifndef LOW
#define LOW 0
#endif
#if LOW
typedef unsigned short out_t;
INLINE out_t made(float x) { return bf16(x); }
#else
typedef float out_t;
INLINE out_t made(float x) { return x; }
#endif

// The same fields in the same order as ImageBatch in augment.rs.
struct ImageBatch {
    u32 batch, height, width, channels;
    u32 out_channels; // channels of the output; those beyond `channels` are zero
    u32 padding;      // pixels of byte 0 around the image that a crop may reach into; 0: no crop
    u32 flip;         // whether images are mirrored at random
    float mean[4], sd[4];
};

// One thread a pixel. A padded pixel is byte 0 before normalisation, as in torchvision.
// `key`: stream of augmentation, step = epoch. It lies in device memory, since a captured launch
// serves every epoch.
extern "C" __global__ void __launch_bounds__(256) gather_images(
    const unsigned char* __restrict__ images, const int* __restrict__ labels, const u32* __restrict__ order,
    const u32* __restrict__ step, const NoiseKey* __restrict__ key, out_t* __restrict__ out,
    int* __restrict__ targets, const ImageBatch b)
{
    const u32 pixels = b.height * b.width;
    const u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= b.batch * pixels) return;
    const u32 slot = at / pixels, pixel = at % pixels;
    const u32 row = order[(u64)*step * b.batch + slot];
    int y = pixel / b.width, x = pixel % b.width;
    if (b.padding | b.flip) {
        Words w = philox(*key, row);
        if (b.flip && w.z >> 31) x = (int)b.width - 1 - x;
        u32 positions = 2u * b.padding + 1u;
        y += (int)((u64)w.x * positions >> 32) - (int)b.padding;
        x += (int)((u64)w.y * positions >> 32) - (int)b.padding;
    }
    const bool inside = y >= 0 && y < (int)b.height && x >= 0 && x < (int)b.width;
    const unsigned char* from = images + ((u64)row * pixels + (u32)y * b.width + (u32)x) * b.channels;
    out_t* to = out + (u64)at * b.out_channels;
    for (u32 c = 0; c < b.out_channels; ++c) {
        float value = 0.0f;
        if (c < b.channels) {
            float byte = inside ? (float)from[c] : 0.0f;
            // Division, not a product with the inverse: the same bits as the CPU and PyTorch.
            value = __fdiv_rn(__fsub_rn(__fdiv_rn(byte, 255.0f), b.mean[c]), b.sd[c]);
        }
        to[c] = made(value);
    }
    if (pixel == 0 && targets) targets[slot] = labels[row];
}

// Rows of a plain table. One thread a number; `targets` may be null. A row of the output has
// out_columns numbers, of which those beyond `columns` are left alone.
extern "C" __global__ void __launch_bounds__(256) gather_table(
    const float* __restrict__ inputs, const float* __restrict__ outcomes, const u32* __restrict__ order,
    const u32* __restrict__ step, out_t* __restrict__ out, float* __restrict__ targets, u32 batch,
    u32 columns, u32 out_columns, u32 target_columns)
{
    const u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    const u32* rows = order + (u64)*step * batch;
    if (at < batch * columns) {
        out[(u64)(at / columns) * out_columns + at % columns] = made(inputs[(u64)rows[at / columns] * columns + at % columns]);
    }
    if (targets && at < batch * target_columns) {
        targets[at] = outcomes[(u64)rows[at / target_columns] * target_columns + at % target_columns];
    }
}
