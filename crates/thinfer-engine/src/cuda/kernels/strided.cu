// A convolution of stride 2, for compute capability 9.0: one of 3x3 and padding 1, forward,
//
//   y[Y][X][o] = sum over taps (r, s) and inputs i of x[2 Y + r - 1][2 X + s - 1][i] * w[o][r][s][i]
//
// or, with DATA, the gradient of its input, of which an even row 2 Y gets tap r = 1 of row Y alone, and an odd row
// 2 Y + 1 gets r = 2 of row Y and r = 0 of row Y + 1; columns likewise:
//
//   dx[2 Y + a][2 X + b][i] = sum over these taps and outputs o of dy[..][..][o] * w[o][r][s][i]
//
// With ONE it is 1x1 without padding, which is the tap r = s = 1 alone: it reads even rows and columns, and the
// gradient of the others is zero.
//
// Below "read" and "written" are what is called i and o in the first and o and i in the second. A block keeps the
// filter of WRITTEN channels, all taps and all channels that are read, and goes over squares of eight by eight pixels
// of y or dy, which are the 64 rows of a product. What is read comes in boxes of 64 channels, a plane: forward there
// are four for a square, each an even or odd row by an even or odd column of x, so that a tap is a box read from some
// pixel on. The odd ones begin one before the square and have nine. For DATA there is one, of nine by nine. Beyond
// the edges a fetch gives zeros. One thread fetches; two groups of four warps take turns with the squares, so that
// one multiplies while the other one writes. The last plane has LAST_STEPS products of 16 channels, the others four.
#define PIXEL 128
#define SLOT WHOLE(9 * 9 * PIXEL)
#define MOST_SLOTS 12
#ifdef ONE
#define TAPS 1
#define PHASES 1
#define EDGE 0
#else
#define TAPS 9
#define PHASES 4
#define EDGE 1
#endif
#ifdef DATA
// Bytes of the channels of a filter that lie together: all that are written.
#define TOGETHER (2 * WRITTEN)
#define BOXES 1
// Pixels that are written for one that is read, and those of them that are not zero.
#define RESULTS 4
#define KINDS PHASES
#else
#define BOXES PHASES
#define RESULTS 1
#define KINDS 1
#endif
#define MULTIPLIERS 256

// Sides are those of y; channels that are read are in whole products, and lie in so many planes.
struct Shape {
    u32 images, height, width, written, read, planes, slots;
};

// Adds what a box of a plane has, which is read from `at` on, in STEPS products of 16 channels.
template <u32 STEPS>
__device__ __forceinline__ void add_box(float (&d)[KINDS][SUMS], u32 at, u32 filter, u32 tap_bytes, u32 plane, u32 box) {
    products_begin();
#ifdef DATA
#pragma unroll
    for (u32 k = 0; k < STEPS; k++) {
        const u32 from = filter + (4 * plane + k) * 16 * TOGETHER;
#ifdef ONE
        multiply(d[0], matrix(at + k * 32, 0, 8 * PIXEL, PIXEL), matrix(from, 0, 8 * TOGETHER, TOGETHER), plane + k);
#else
        // Backwards: the first of the taps of every result is one of the last four.
#pragma unroll
        for (u32 tap = 9; tap-- > 0;) {
            const u32 r = tap / 3, s = tap % 3;
            const u64 left = matrix(at + ((r == 0) * 9 + (s == 0)) * PIXEL + k * 32, 0, 9 * PIXEL, PIXEL);
            const u64 right = matrix(from + tap * tap_bytes, 0, 8 * TOGETHER, TOGETHER);
            multiply(d[(r != 1) * 2 + (s != 1)], left, right, plane + k + (r == 0) + (s == 0));
        }
#endif
    }
#else
    const u32 a = box / 2, b = box % 2;
#pragma unroll
    for (u32 tap = 0; tap < (1 + a) * (1 + b); tap++) {
        // Rows and columns from which the box is read; of the filter they are 0 and 2, or 1.
        const u32 down = tap / (1 + b), across = tap % (1 + b);
        const u32 r = a ? 2 * down : EDGE, s = b ? 2 * across : EDGE;
#pragma unroll
        for (u32 k = 0; k < STEPS; k++) {
            const u32 pixel = at + (down * (8 + b) + across) * PIXEL;
            const u64 left = matrix(pixel + k * 32, 0, (8 + b) * PIXEL, PIXEL);
            const u64 right = matrix(filter + (plane * TAPS + r * 3 + s) * tap_bytes + k * 32, 0, 8 * PIXEL, PIXEL);
            multiply(d[0], left, right, plane + box + tap + k);
        }
    }
#endif
    products_end();
}

extern "C" __global__ void __launch_bounds__(MULTIPLIERS + 128, 1) strided(
#ifdef DATA
    const __grid_constant__ Map from,
#else
    const __grid_constant__ Phases from,
#endif
    const __grid_constant__ Map w, u16* to, Shape p) {
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ __align__(8) u64 barriers[2 * MOST_SLOTS + 3];
#ifdef DATA
    const u32 tap_bytes = p.read * TOGETHER, filter_bytes = TAPS * tap_bytes;
#else
    const u32 tap_bytes = WRITTEN * PIXEL, filter_bytes = p.planes * TAPS * tap_bytes;
#endif
    const u32 base = shared_address(memory), pixels = base + WHOLE(filter_bytes), boxes = p.planes * BOXES;
    const u32 full = shared_address(barriers), empty = full + 8 * MOST_SLOTS, filter = empty + 8 * MOST_SLOTS;
    const u32 go = filter + 8;
    const u32 written = blockIdx.y * WRITTEN;
    const u32 high = p.height / 8, wide = p.width / 8, squares = p.images * high * wide;
    if (threadIdx.x == 0) {
        for (u32 s = 0; s < p.slots; s++) {
            start_barrier(full + 8 * s, 1);
            start_barrier(empty + 8 * s, 1);
        }
        start_barrier(filter, 1);
        start_barrier(go, 1);
        start_barrier(go + 8, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= MULTIPLIERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == MULTIPLIERS) {
            // Boxes that are fetched before the filter, which comes from nearer.
            const u32 ahead = boxes < 4 ? boxes : 4;
            u32 slot = 0, turn = 0;
            for (u32 square = blockIdx.x; square < squares; square += gridDim.x) {
                const int column = square % wide * 8, row = square / wide % high * 8;
                const u32 image = square / wide / high;
                for (u32 box = 0; box < boxes; box++) {
                    const u32 at = pixels + slot * SLOT, barrier = full + 8 * slot;
                    wait_for(empty + 8 * slot, turn ^ 1);
#ifdef DATA
                    expect(barrier, (8 + EDGE) * (8 + EDGE) * PIXEL);
                    fetch_pixels(at, &from, barrier, 64 * box, column, row, image);
#else
                    const int phase = box % PHASES, a = phase / 2, b = phase % 2;
                    expect(barrier, (8 + a) * (8 + b) * PIXEL);
                    fetch_pixels(at, &from.at[phase], barrier, box / PHASES * 64, column - b, row - a, image);
#endif
                    if (++slot == p.slots) slot = 0, turn ^= 1;
                    if (square > blockIdx.x || box + 1 != ahead) continue;
                    expect(filter, filter_bytes);
                    for (u32 tap = 0; tap < TAPS; tap++) {
#ifdef DATA
                        fetch_filter(base + tap * tap_bytes, &w, filter, written, tap, 0);
#else
                        for (u32 plane = 0; plane < p.planes; plane++) {
                            fetch_filter(base + (plane * TAPS + tap) * tap_bytes, &w, filter, 64 * plane, tap, written);
                        }
#endif
                    }
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const u32 group = group_of_warps(), lane = threadIdx.x % 32;
        const bool first = threadIdx.x % 128 == 0;
        wait_for(filter, 0);
        // Every other square of the block; the boxes of the others are passed over.
        u32 slot = group * boxes, turn = 0, mine = group ^ 1;
        const auto wrap = [&] {
            while (slot >= p.slots) slot -= p.slots, turn ^= 1;
        };
        wrap();
        for (u32 square = blockIdx.x + group * gridDim.x; square < squares; square += 2 * gridDim.x) {
            // The other group has seen all boxes before these.
            wait_for(go + 8 * group, mine);
            mine ^= 1;
            float d[KINDS][SUMS];
            u32 before = p.slots;
            const auto begin = [&] {
                wait_for(full + 8 * slot, turn);
                return pixels + slot * SLOT;
            };
            const auto end = [&] {
                // All but this box are done: the slot of the one before it is free.
                products_wait<1>();
                if (first && before < p.slots) arrive(empty + 8 * before);
                before = slot++;
                wrap();
            };
            for (u32 plane = 0; plane + 1 < p.planes; plane++) {
#pragma unroll
                for (u32 box = 0; box < BOXES; box++) {
                    add_box<4>(d, begin(), base, tap_bytes, plane, box);
                    end();
                }
            }
#pragma unroll
            for (u32 box = 0; box < BOXES; box++) {
                add_box<LAST_STEPS>(d, begin(), base, tap_bytes, p.planes - 1, box);
                end();
            }
            if (first) arrive(go + 8 * (group ^ 1));
            products_wait<0>();
            if (first) arrive(empty + 8 * before);
#pragma unroll
            for (u32 q = 0; q < KINDS; q++) {
#pragma unroll
                for (u32 i = 0; i < SUMS; i++) asm volatile("" : "+f"(d[q][i])::"memory");
            }
            const u32 column = square % wide * 8 + lane / 4, image = square / wide / high;
            const u32 row = square / wide % high * 8 + threadIdx.x / 32 % 4 * 2;
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
#pragma unroll
                for (u32 q = 0; q < RESULTS; q++) {
#ifdef DATA
                    const size_t line = (size_t)(image * p.height + row + half) * 2 + q / 2;
                    const size_t pixel = (line * p.width + column) * 2 + q % 2;
#else
                    const size_t pixel = (size_t)(image * p.height + row + half) * p.width + column;
#endif
                    float none[SUMS] = {};
                    write_pixel(to + pixel * p.written, q < KINDS ? d[q % KINDS] : none, half, written, p.written);
                }
            }
            slot += boxes;
            wrap();
        }
    }
}
