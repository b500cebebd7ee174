// The mean of each window, channels last. One thread a pixel and a group of V channels; zeros of
// the padding count. After pool.cu, whose struct Pool it takes.
extern "C" __global__ void average_forward(const act* x, act* y, Pool p) {
    const u32 groups = p.channels / V;
    const u32 count = p.images * p.out_height * p.out_width * groups;
    const float share = 1.f / (float)(p.kh * p.kw);
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const u32 g = i % groups, ow = i / groups % p.out_width;
        const u32 oh = i / groups / p.out_width % p.out_height;
        const u32 n = i / groups / p.out_width / p.out_height;
        float sum[V];
#pragma unroll
        for (int j = 0; j < V; j++) sum[j] = 0.f;
        for (u32 a = 0; a < p.kh; a++) {
            const u32 h = oh * p.sh + a - p.ph;
            if (h >= p.height) continue;
            for (u32 b = 0; b < p.kw; b++) {
                const u32 w = ow * p.sw + b - p.pw;
                if (w >= p.width) continue;
                float v[V];
                take(x + ((size_t)(n * p.height + h) * p.width + w) * p.channels + g * V, v);
#pragma unroll
                for (int j = 0; j < V; j++) sum[j] += v[j];
            }
        }
#pragma unroll
        for (int j = 0; j < V; j++) sum[j] *= share;
        put(y + (size_t)i * V, sum);
    }
}

// Every input pixel asks the windows that saw it, so nothing is added atomically.
extern "C" __global__ void average_backward(const act* d, act* dx, Pool p) {
    const u32 groups = p.channels / V;
    const u32 count = p.images * p.height * p.width * groups;
    const float share = 1.f / (float)(p.kh * p.kw);
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
                float v[V];
                take(d + (((size_t)n * p.out_height + oh) * p.out_width + ow) * p.channels + g * V, v);
#pragma unroll
                for (int j = 0; j < V; j++) sum[j] += v[j];
            }
#pragma unroll
        for (int j = 0; j < V; j++) sum[j] *= share;
        put(dx + (size_t)i * V, sum);
    }
}
