// A 3x3 convolution of stride 1 and padding 1 that reads few channels, for compute capability 9.0: forward,
//
//   y[p][o] = sum over taps (r, s) and inputs i of x[p + (r - 1, s - 1)][i] * w[o][r][s][i]
//
// or, with DATA, the gradient of its input, which is the same with the filter turned around:
//
//   dx[p][i] = sum over taps (r, s) and outputs o of dy[p + (r - 1, s - 1)][o] * w[o][2 - r][2 - s][i]
//
// Below "read" and "written" are what is called i and o in the first and o and i in the second. A block keeps the
// filter of WRITTEN channels, all taps and all channels that are read, and goes over chunks of 256 pixels: IMAGES
// images by ROWS rows by WIDTH columns, fetched once with one more pixel on every side. Beyond the edges a fetch
// gives zeros. Eight by eight pixels are the 64 rows of a product, a tap is the same memory read from another pixel.
// One thread fetches; of the groups of four warps that multiply, two pairs take turns, so that one can multiply while
// the other one writes.
#define LINE (WIDTH + 2)
// Bytes of a pixel, and of the channels of a filter that lie together.
#define PIXEL (READ > 32 ? 128 : 64)
#if WRITTEN % 64 == 0
#define TOGETHER 128
#elif WRITTEN % 32 == 0
#define TOGETHER 64
#else
#define TOGETHER 32
#endif
#define PLANES (2 * WRITTEN / TOGETHER)
#define PLANE (PIXEL / 2 * TOGETHER)
#define TAP (WRITTEN * PIXEL)
#define FILTER WHOLE(9 * TAP)
#define BOX (IMAGES * (ROWS + 2) * LINE * PIXEL)
#define STAGE WHOLE(BOX)
#define STEPS ((READ + 15) / 16)
#define MULTIPLIERS 512

struct Shape {
    u32 images, height, written;
};

extern "C" __global__ void __launch_bounds__(MULTIPLIERS + 128, 1) narrow(
    const __grid_constant__ Map x, const __grid_constant__ Map w, u16* y, Shape p) {
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ __align__(8) u64 barriers[2 * STAGES + 1];
    const u32 base = shared_address(memory), pixels = base + FILTER;
    const u32 full = shared_address(barriers), empty = full + 8 * STAGES, filter = empty + 8 * STAGES;
    const u32 written = blockIdx.y * WRITTEN;
    const u32 high = p.height / ROWS, chunks = (p.images + IMAGES - 1) / IMAGES * high;
    if (threadIdx.x == 0) {
        for (u32 s = 0; s < STAGES; s++) {
            start_barrier(full + 8 * s, 1);
            start_barrier(empty + 8 * s, 2);
        }
        start_barrier(filter, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= MULTIPLIERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == MULTIPLIERS) {
            expect(filter, 9 * TAP);
            for (u32 tap = 0; tap < 9; tap++) {
#ifdef DATA
                for (u32 plane = 0; plane < PLANES; plane++) {
                    fetch_filter(base + tap * TAP + plane * PLANE, &w, filter, written + plane * (TOGETHER / 2), 8 - tap, 0);
                }
#else
                fetch_filter(base + tap * TAP, &w, filter, 0, tap, written);
#endif
            }
            u32 stage = 0, turn = 0;
            for (u32 chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
                wait_for(empty + 8 * stage, turn ^ 1);
                expect(full + 8 * stage, BOX);
                fetch_pixels(pixels + stage * STAGE, &x, full + 8 * stage, 0, -1, (int)(chunk % high * ROWS) - 1,
                             chunk / high * IMAGES);
                if (++stage == STAGES) stage = 0, turn ^= 1;
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 104;");
        const u32 group = threadIdx.x / 128, pair = group / 2, lane = threadIdx.x % 32;
        u32 stage = pair % STAGES, turn = pair / STAGES % 2;
        wait_for(filter, 0);
        for (u32 chunk = blockIdx.x + pair * gridDim.x; chunk < chunks; chunk += 2 * gridDim.x) {
            wait_for(full + 8 * stage, turn);
            float d[2][SUMS];
            products_begin();
            u32 start[2];
#pragma unroll
            for (u32 t = 0; t < 2; t++) {
                // Which eight by eight pixels: columns first, then rows, then images.
                const u32 square = group % 2 * 2 + t;
                const u32 column = square % (WIDTH / 8), row = square / (WIDTH / 8) % (ROWS / 8);
                const u32 image = square / (WIDTH / 8) / (ROWS / 8);
                start[t] = pixels + stage * STAGE + ((image * (ROWS + 2) + row * 8) * LINE + column * 8) * PIXEL;
            }
#pragma unroll
            for (u32 tap = 0; tap < 9; tap++) {
#pragma unroll
                for (u32 k = 0; k < STEPS; k++) {
#ifdef DATA
                    const u64 b = matrix(base + tap * TAP + k * 16 * TOGETHER, PLANE, 8 * TOGETHER, TOGETHER);
#else
                    const u64 b = matrix(base + tap * TAP + k * 32, 0, 8 * PIXEL, PIXEL);
#endif
#pragma unroll
                    for (u32 t = 0; t < 2; t++) {
                        const u32 at = start[t] + (tap / 3 * LINE + tap % 3) * PIXEL + k * 32;
                        multiply(d[t], matrix(at, 0, LINE * PIXEL, PIXEL), b, tap + k > 0);
                    }
                }
            }
            products_end();
            products_wait<0>();
            if (threadIdx.x % 128 == 0) arrive(empty + 8 * stage);
#pragma unroll
            for (u32 t = 0; t < 2; t++) {
                const u32 square = group % 2 * 2 + t;
                const u32 image = chunk / high * IMAGES + square / (WIDTH / 8) / (ROWS / 8);
                if (image >= p.images) continue;
                const u32 column = square % (WIDTH / 8) * 8 + lane / 4;
                const u32 row = chunk % high * ROWS + square / (WIDTH / 8) % (ROWS / 8) * 8 + threadIdx.x / 32 % 4 * 2;
#pragma unroll
                for (u32 half = 0; half < 2; half++) {
                    u16* to = y + ((size_t)(image * p.height + row + half) * WIDTH + column) * p.written;
                    write_pixel(to, d[t], half, written, p.written);
                }
            }
            stage += 2;
            if (stage >= STAGES) stage -= STAGES, turn ^= 1;
        }
    }
}
