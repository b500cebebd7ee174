// Pooling, channels last. One thread a pixel and a group of V channels.
struct Pool { u32 images, height, width, channels, out_height, out_width, kh, kw, sh, sw, ph, pw; };

// `which` keeps the position in the window of the first largest value.
extern "C" __global__ void max_forward(const act* x, act* y, u8* which, Pool p) {
    const u32 groups = p.channels / V;
    const u32 count = p.images * p.out_height * p.out_width * groups;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const u32 g = i % groups, ow = i / groups % p.out_width;
        const u32 oh = i / groups / p.out_width % p.out_height;
        const u32 n = i / groups / p.out_width / p.out_height;
        float best[V];
        u8 at[V];
#pragma unroll
        for (int j = 0; j < V; j++) {
            best[j] = -__int_as_float(0x7f800000);
            at[j] = 255;
        }
        for (u32 a = 0; a < p.kh; a++) {
            const u32 h = oh * p.sh + a - p.ph;
            if (h >= p.height) continue;
            for (u32 b = 0; b < p.kw; b++) {
                const u32 w = ow * p.sw + b - p.pw;
                if (w >= p.width) continue;
                float v[V];
                take(x + ((size_t)(n * p.height + h) * p.width + w) * p.channels + g * V, v);
#pragma unroll
                for (int j = 0; j < V; j++)
                    if ((!(v[j] <= best[j]) && best[j] == best[j]) || at[j] == 255) {
                        best[j] = v[j];
                        at[j] = (u8)(a * p.kw + b);
                    }
            }
        }
        put(y + (size_t)i * V, best);
#pragma unroll
        for (int j = 0; j < V; j++) which[(size_t)i * V + j] = at[j];
    }
}

// Every input pixel asks the windows that saw it, so nothing is added atomically.
extern "C" __global__ void max_backward(const act* d, const u8* which, act* dx, Pool p) {
    const u32 groups = p.channels / V;
    const u32 count = p.images * p.height * p.width * groups;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const u32 g = i % groups, w = i / groups % p.width;
        const u32 h = i / groups / p.width % p.height;
        const u32 n = i / groups / p.width / p.height;
        float sum[V];
#pragma unroll
        for (int j = 0; j < V; j++) sum[j] = 0.f;
        const u32 top = h + p.ph, left = w + p.pw;
        const u32 oh0 = top < p.kh ? 0 : (top - p.kh) / p.sh + 1;
        const u32 ow0 = left < p.kw ? 0 : (left - p.kw) / p.sw + 1;
        const u32 oh1 = min(top / p.sh, p.out_height - 1), ow1 = min(left / p.sw, p.out_width - 1);
        for (u32 oh = oh0; oh <= oh1; oh++)
            for (u32 ow = ow0; ow <= ow1; ow++) {
                const u32 tap = (top - oh * p.sh) * p.kw + (left - ow * p.sw);
                const size_t at = ((size_t)(n * p.out_height + oh) * p.out_width + ow) * p.channels + g * V;
                float v[V];
                take(d + at, v);
#pragma unroll
                for (int j = 0; j < V; j++) sum[j] += which[at + j] == tap ? v[j] : 0.f;
            }
        put(dx + (size_t)i * V, sum);
    }
}

extern "C" __global__ void mean_forward(const act* x, act* y, u32 images, u32 pixels, u32 channels) {
    const u32 groups = channels / V, count = images * groups;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const act* from = x + (size_t)(i / groups) * pixels * channels + i % groups * V;
        float sum[V];
#pragma unroll
        for (int j = 0; j < V; j++) sum[j] = 0.f;
#pragma unroll 4
        for (u32 k = 0; k < pixels; k++) {
            float v[V];
            take(from + (size_t)k * channels, v);
#pragma unroll
            for (int j = 0; j < V; j++) sum[j] += v[j];
        }
#pragma unroll
        for (int j = 0; j < V; j++) sum[j] /= (float)pixels;
        put(y + (size_t)i * V, sum);
    }
}

extern "C" __global__ void mean_backward(const act* d, act* dx, u32 images, u32 pixels, u32 channels) {
    const u32 groups = channels / V, count = images * pixels * groups;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const u32 g = i % groups, n = i / groups / pixels;
        float v[V];
        take(d + ((size_t)n * groups + g) * V, v);
#pragma unroll
        for (int j = 0; j < V; j++) v[j] /= (float)pixels;
        put(dx + (size_t)i * V, v);
    }
}
