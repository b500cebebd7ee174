// A 3x3 convolution of stride 1 and padding 1 that reads few channels or writes few, for compute capability 9.0: forward,
//
//   y[p][o] = sum over taps (r, s) and inputs i of x[p + (r - 1, s - 1)][i] * w[o][r][s][i]
//
// or, with DATA, the gradient of its input, which is the same with the filter turned around:
//
//   dx[p][i] = sum over taps (r, s) and outputs o of dy[p + (r - 1, s - 1)][o] * w[o][2 - r][2 - s][i]
//
// Below "read" and "written" are what is called i and o in the first and o and i in the second. A block keeps the
// filter of WRITTEN channels, all taps and all channels that are read, and goes over chunks of 128 or 256 pixels: IMAGES
// images by ROWS rows by WIDTH columns, fetched with one more pixel on every side, 64 channels at a time. Beyond the
// edges a fetch gives zeros. Eight by eight pixels are the 64 rows of a product, a tap is the same memory read from
// another pixel. One thread fetches; of the groups of four warps that multiply, two pairs take turns, so that one can
// multiply while the other one writes.
#define LINE (WIDTH + 2)
// Channels that are read lie in planes: some full ones of 64, and a last one of LAST, which is read in LAST_STEPS
// products. How many are full is known when the kernel runs, so that few kernels do for all channels.
#if LAST_STEPS > 2
#define LAST 64
#else
#define LAST (16 * LAST_STEPS)
#endif
// Bytes of the channels of a filter that lie together.
#if WRITTEN % 64 == 0
#define TOGETHER 128
#elif WRITTEN % 32 == 0
#define TOGETHER 64
#else
#define TOGETHER 32
#endif
// All taps of a full plane and of the last one, in bytes.
#define FULL_TAPS (9 * WRITTEN * 128)
#define LAST_TAPS (9 * WRITTEN * 2 * LAST)
#define PIXELS (IMAGES * (ROWS + 2) * LINE)
// Squares of eight by eight pixels that a group has of a chunk.
#define SQUARES (IMAGES * ROWS * WIDTH / 128)
#define MULTIPLIERS 512
#define MOST_STAGES 4

// `full`: planes of 64 channels before the last one. `stages`: what is on its way or being multiplied. `in_turn`:
// whether a pair begins a chunk only when the other pair has got all of the chunk before it.
struct Shape {
    u32 images, height, written, full, stages, in_turn;
};

// Fetches all taps of a plane of BYTES a pixel; returns where the next one goes.
template <u32 BYTES>
__device__ __forceinline__ u32 fetch_plane(u32 to, const Map* w, u32 barrier, u32 written, u32 read) {
    for (u32 tap = 0; tap < 9; tap++, to += WRITTEN * BYTES) {
#ifdef DATA
        for (u32 part = 0; part < 2 * WRITTEN / TOGETHER; part++) {
            fetch_filter(to + part * (BYTES / 2 * TOGETHER), w, barrier, written + part * (TOGETHER / 2), 8 - tap, read);
        }
#else
        fetch_filter(to, w, barrier, read, tap, written);
#endif
    }
    return to;
}

// Adds what a plane of BYTES a pixel has to the sums of a group's squares, which start at these places.
template <u32 BYTES, u32 STEPS>
__device__ __forceinline__ void add_plane(float (&d)[SQUARES][SUMS], const u32 (&start)[SQUARES], u32 filter, u32 added) {
    products_begin();
#pragma unroll
    for (u32 tap = 0; tap < 9; tap++) {
#pragma unroll
        for (u32 k = 0; k < STEPS; k++) {
            const u32 from = filter + tap * WRITTEN * BYTES;
#ifdef DATA
            const u64 b = matrix(from + k * 16 * TOGETHER, BYTES / 2 * TOGETHER, 8 * TOGETHER, TOGETHER);
#else
            const u64 b = matrix(from + k * 32, 0, 8 * BYTES, BYTES);
#endif
#pragma unroll
            for (u32 t = 0; t < SQUARES; t++) {
                const u32 at = start[t] + (tap / 3 * LINE + tap % 3) * BYTES + k * 32;
                multiply(d[t], matrix(at, 0, LINE * BYTES, BYTES), b, tap + k > 0 ? 1 : added);
            }
        }
    }
    products_end();
}

extern "C" __global__ void __launch_bounds__(MULTIPLIERS + 128, 1) narrow(
    const __grid_constant__ Map x, const __grid_constant__ Map x_last, const __grid_constant__ Map w,
    const __grid_constant__ Map w_last, u16* y, Shape p) {
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ __align__(8) u64 barriers[2 * MOST_STAGES + 3];
    const u32 taps = p.full * FULL_TAPS + LAST_TAPS, size = WHOLE(PIXELS * (p.full > 0 ? 128 : 2 * LAST));
    const u32 base = shared_address(memory), pixels = base + WHOLE(taps);
    const u32 full = shared_address(barriers), empty = full + 8 * MOST_STAGES, filter = empty + 8 * MOST_STAGES;
    const u32 go = filter + 8;
    const u32 written = blockIdx.y * WRITTEN;
    const u32 high = p.height / ROWS, chunks = (p.images + IMAGES - 1) / IMAGES * high;
    if (threadIdx.x == 0) {
        for (u32 s = 0; s < p.stages; s++) {
            start_barrier(full + 8 * s, 1);
            start_barrier(empty + 8 * s, 2);
        }
        start_barrier(filter, 1);
        start_barrier(go, 2);
        start_barrier(go + 8, 2);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= MULTIPLIERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == MULTIPLIERS) {
            expect(filter, taps);
            u32 to = base;
            for (u32 plane = 0; plane < p.full; plane++) to = fetch_plane<128>(to, &w, filter, written, 64 * plane);
            fetch_plane<2 * LAST>(to, &w_last, filter, written, 64 * p.full);
            u32 stage = 0, turn = 0;
            for (u32 chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
                for (u32 plane = 0; plane <= p.full; plane++) {
                    wait_for(empty + 8 * stage, turn ^ 1);
                    expect(full + 8 * stage, PIXELS * (plane < p.full ? 128 : 2 * LAST));
                    fetch_pixels(pixels + stage * size, plane < p.full ? &x : &x_last, full + 8 * stage, 64 * plane, -1,
                                 (int)(chunk % high * ROWS) - 1, chunk / high * IMAGES);
                    if (++stage == p.stages) stage = 0, turn ^= 1;
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 104;");
        const u32 group = group_of_warps(), pair = group / 2, lane = threadIdx.x % 32;
        // The planes of a chunk are stages one after the other; those of the other pair's chunks are passed over.
        u32 stage = pair * (p.full + 1), turn = 0, mine = pair ^ 1;
        const auto wrap = [&] {
            while (stage >= p.stages) stage -= p.stages, turn ^= 1;
        };
        wrap();
        wait_for(filter, 0);
        for (u32 chunk = blockIdx.x + pair * gridDim.x; chunk < chunks; chunk += 2 * gridDim.x) {
            float d[SQUARES][SUMS];
            u32 start[SQUARES], from = base;
            const auto begin = [&](u32 bytes) {
                wait_for(full + 8 * stage, turn);
#pragma unroll
                for (u32 t = 0; t < SQUARES; t++) {
                    // Which eight by eight pixels: columns first, then rows, then images.
                    const u32 square = group % 2 * SQUARES + t;
                    const u32 column = square % (WIDTH / 8), row = square / (WIDTH / 8) % (ROWS / 8);
                    const u32 image = square / (WIDTH / 8) / (ROWS / 8);
                    start[t] = pixels + stage * size + ((image * (ROWS + 2) + row * 8) * LINE + column * 8) * bytes;
                }
            };
            const auto end = [&] {
                products_wait<0>();
                if (threadIdx.x % 128 == 0) arrive(empty + 8 * stage);
                stage++;
                wrap();
            };
            // Fetches end in any order, so what a pair waits for may be two turns of a stage away, and a barrier tells
            // only one turn from the next.
            if (p.in_turn) wait_for(go + 8 * pair, mine);
            mine ^= 1;
            for (u32 plane = 0; plane < p.full; plane++, from += FULL_TAPS) {
                begin(128);
                add_plane<128, 4>(d, start, from, plane);
                end();
            }
            begin(2 * LAST);
            add_plane<2 * LAST, LAST_STEPS>(d, start, from, p.full);
            if (p.in_turn && threadIdx.x % 128 == 0) arrive(go + 8 * (pair ^ 1));
            end();
#pragma unroll
            for (u32 t = 0; t < SQUARES; t++) {
                const u32 square = group % 2 * SQUARES + t;
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
            stage += p.full + 1;
            wrap();
        }
    }
}
