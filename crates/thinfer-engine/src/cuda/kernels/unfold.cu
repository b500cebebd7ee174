// The windows of a convolution as channels: pixel by pixel of the output, the values under its window
// and zeros up to UNFOLDED. One thread eight values.
#define UNFOLDED 32

struct Unfold {
    u32 images, height, width, channels, stored, out_height, out_width, kh, kw, sh, sw, ph, pw;
};

extern "C" __global__ void unfold(const act* x, act* y, Unfold p) {
    const u32 count = p.images * p.out_height * p.out_width * (UNFOLDED / 8);
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const u32 pixel = i / (UNFOLDED / 8), first = i % (UNFOLDED / 8) * 8;
        const u32 ow = pixel % p.out_width, oh = pixel / p.out_width % p.out_height;
        const u32 n = pixel / p.out_width / p.out_height;
        u32 c = first % p.channels;
        u32 kx = first / p.channels % p.kw, ky = first / p.channels / p.kw;
        float v[8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const u32 h = oh * p.sh + ky - p.ph, w = ow * p.sw + kx - p.pw;
            const bool inside = ky < p.kh && h < p.height && w < p.width;
            v[j] = inside ? up(x[((size_t)(n * p.height + h) * p.width + w) * p.stored + c]) : 0.f;
            // Counted, not divided: divisions would take longer than the memory.
            if (++c == p.channels) {
                c = 0;
                if (++kx == p.kw) {
                    kx = 0;
                    ky++;
                }
            }
        }
        put(y + (size_t)i * 8, v);
    }
}
