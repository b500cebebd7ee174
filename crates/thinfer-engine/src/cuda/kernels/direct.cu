// Plain convolutions for shapes the libraries refuse. Right before fast; a linear layer is the case
// of one pixel. OUT_F32: results leave as f32.
struct Direct { u32 images, height, width, channels, out_height, out_width, out, kh, kw, sh, sw, ph, pw; };
#ifdef OUT_F32
typedef float out_t;
__device__ __forceinline__ out_t leave(float x) { return x; }
#else
typedef act out_t;
__device__ __forceinline__ out_t leave(float x) { return down(x); }
#endif

extern "C" __global__ void direct_forward(const act* x, const act* w, out_t* y, Direct p) {
    const u32 count = p.images * p.out_height * p.out_width * p.out;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const u32 k = i % p.out, ow = i / p.out % p.out_width;
        const u32 oh = i / p.out / p.out_width % p.out_height;
        const u32 n = i / p.out / p.out_width / p.out_height;
        float sum = 0.f;
        for (u32 a = 0; a < p.kh; a++)
            for (u32 b = 0; b < p.kw; b++) {
                const u32 h = oh * p.sh + a - p.ph, v = ow * p.sw + b - p.pw;
                if (h >= p.height || v >= p.width) continue;
                const act* px = x + ((size_t)(n * p.height + h) * p.width + v) * p.channels;
                const act* pw = w + ((size_t)(k * p.kh + a) * p.kw + b) * p.channels;
                for (u32 c = 0; c < p.channels; c++) sum = fmaf(up(px[c]), up(pw[c]), sum);
            }
        y[i] = leave(sum);
    }
}

extern "C" __global__ void direct_data(out_t* dx, const act* w, const act* dy, Direct p) {
    const u32 count = p.images * p.height * p.width * p.channels;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const u32 c = i % p.channels, v = i / p.channels % p.width;
        const u32 h = i / p.channels / p.width % p.height;
        const u32 n = i / p.channels / p.width / p.height;
        float sum = 0.f;
        for (u32 a = 0; a < p.kh; a++)
            for (u32 b = 0; b < p.kw; b++) {
                const u32 th = h + p.ph - a, tw = v + p.pw - b;
                if (h + p.ph < a || v + p.pw < b || th % p.sh || tw % p.sw) continue;
                const u32 oh = th / p.sh, ow = tw / p.sw;
                if (oh >= p.out_height || ow >= p.out_width) continue;
                const act* py = dy + ((size_t)(n * p.out_height + oh) * p.out_width + ow) * p.out;
                for (u32 k = 0; k < p.out; k++)
                    sum = fmaf(up(py[k]), up(w[((size_t)(k * p.kh + a) * p.kw + b) * p.channels + c]), sum);
            }
        dx[i] = leave(sum);
    }
}

// One warp a weight.
extern "C" __global__ void direct_filter(const act* x, out_t* dw, const act* dy, Direct p) {
    const u32 count = p.out * p.kh * p.kw * p.channels, lane = threadIdx.x % 32;
    const u32 warps = gridDim.x * blockDim.x / 32;
    for (u32 i = (blockIdx.x * blockDim.x + threadIdx.x) / 32; i < count; i += warps) {
        const u32 c = i % p.channels, b = i / p.channels % p.kw, a = i / p.channels / p.kw % p.kh;
        const u32 k = i / p.channels / p.kw / p.kh;
        const u32 pixels = p.images * p.out_height * p.out_width;
        float sum = 0.f;
        for (u32 q = lane; q < pixels; q += 32) {
            const u32 ow = q % p.out_width, oh = q / p.out_width % p.out_height;
            const u32 n = q / p.out_width / p.out_height;
            const u32 h = oh * p.sh + a - p.ph, v = ow * p.sw + b - p.pw;
            if (h >= p.height || v >= p.width) continue;
            sum = fmaf(up(x[((size_t)(n * p.height + h) * p.width + v) * p.channels + c]),
                       up(dy[(size_t)q * p.out + k]), sum);
        }
        for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
        if (lane == 0) dw[i] = leave(sum);
    }
}
