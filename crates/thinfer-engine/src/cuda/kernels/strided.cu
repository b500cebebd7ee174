// A 3x3 convolution of stride 2 and padding 1, for compute capability 9.0: forward,
//
//   y[Y][X][o] = sum over taps (r, s) and inputs i of x[2 Y + r - 1][2 X + s - 1][i] * w[o][r][s][i]
//
// or, with DATA, the gradient of its input, of which an even row 2 Y gets tap r = 1 of row Y alone, and an odd row
// 2 Y + 1 gets r = 2 of row Y and r = 0 of row Y + 1; columns likewise:
//
//   dx[2 Y + a][2 X + b][i] = sum over these taps and outputs o of dy[..][..][o] * w[o][r][s][i]
//
// Below "read" and "written" are what is called i and o in the first and o and i in the second. A block keeps the
// filter of WRITTEN channels, all taps and all channels that are read, and goes over squares of eight by eight pixels
// of y or dy, which are the 64 rows of a product. What is read comes in boxes of 64 channels: forward there are
// four for a square, each an even or odd row by an even or odd column of x, so that a tap is a box read from some
// pixel on. The odd ones begin one before the square and have nine. For DATA there is one, of nine by nine. Beyond
// the edges a fetch gives zeros. One thread fetches; two groups of four warps take turns with the squares, so that
// one multiplies while the other one writes.
#define PIXEL 128
#define READ_PLANES ((READ + 63) / 64)
#define SLOT WHOLE(9 * 9 * PIXEL)
#ifdef DATA
// Bytes of the channels of a filter that lie together: all that are written.
#define TOGETHER (2 * WRITTEN)
#define TAP (READ * TOGETHER)
#define FILTER (9 * TAP)
#define BOXES READ_PLANES
#define RESULTS 4
#else
#define TAP (WRITTEN * PIXEL)
#define FILTER (READ_PLANES * 9 * TAP)
#define BOXES (4 * READ_PLANES)
#define RESULTS 1
#endif
// Boxes that are fetched before the filter, which comes from nearer.
#define AHEAD (BOXES < 4 ? BOXES : 4)
#define MULTIPLIERS 256

// Sides are those of y.
struct Shape {
    u32 images, height, width, written;
};

// Products of 16 channels in a plane of 64.
__device__ constexpr u32 steps(u32 plane) { return plane + 1 < READ_PLANES ? 4 : (READ - 64 * plane + 15) / 16; }

extern "C" __global__ void __launch_bounds__(MULTIPLIERS + 128, 1) strided(
#ifdef DATA
    const __grid_constant__ Map from,
#else
    const __grid_constant__ Phases from,
#endif
    const __grid_constant__ Map w, u16* to, Shape p) {
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ __align__(8) u64 barriers[2 * SLOTS + 3];
    const u32 base = shared_address(memory), pixels = base + FILTER;
    const u32 full = shared_address(barriers), empty = full + 8 * SLOTS, filter = empty + 8 * SLOTS, go = filter + 8;
    const u32 written = blockIdx.y * WRITTEN;
    const u32 high = p.height / 8, wide = p.width / 8, squares = p.images * high * wide;
    if (threadIdx.x == 0) {
        for (u32 s = 0; s < SLOTS; s++) {
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
            u32 slot = 0, turn = 0;
            for (u32 square = blockIdx.x; square < squares; square += gridDim.x) {
                const int column = square % wide * 8, row = square / wide % high * 8;
                const u32 image = square / wide / high;
                for (u32 box = 0; box < BOXES; box++) {
                    const u32 at = pixels + slot * SLOT, barrier = full + 8 * slot;
                    wait_for(empty + 8 * slot, turn ^ 1);
#ifdef DATA
                    expect(barrier, 9 * 9 * PIXEL);
                    fetch_pixels(at, &from, barrier, 64 * box, column, row, image);
#else
                    const int a = box / 2 % 2, b = box % 2;
                    expect(barrier, (8 + a) * (8 + b) * PIXEL);
                    fetch_pixels(at, &from.at[box % 4], barrier, box / 4 * 64, column - b, row - a, image);
#endif
                    if (++slot == SLOTS) slot = 0, turn ^= 1;
                    if (square > blockIdx.x || box + 1 != AHEAD) continue;
                    expect(filter, FILTER);
                    for (u32 tap = 0; tap < 9; tap++) {
#ifdef DATA
                        fetch_filter(base + tap * TAP, &w, filter, written, tap, 0);
#else
                        for (u32 plane = 0; plane < READ_PLANES; plane++) {
                            fetch_filter(base + (plane * 9 + tap) * TAP, &w, filter, 64 * plane, tap, written);
                        }
#endif
                    }
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const u32 group = threadIdx.x / 128, lane = threadIdx.x % 32;
        const bool first = threadIdx.x % 128 == 0;
        wait_for(filter, 0);
        // Every other square of the block, and the boxes of the block before it.
        u32 done = group * BOXES, round = 0;
        for (u32 square = blockIdx.x + group * gridDim.x; square < squares; square += 2 * gridDim.x) {
            // The other group has seen all boxes before these.
            wait_for(go + 8 * group, (round ^ group ^ 1) & 1);
            float d[RESULTS][SUMS];
#pragma unroll
            for (u32 box = 0; box < BOXES; box++) {
                const u32 slot = (done + box) % SLOTS, at = pixels + slot * SLOT;
                wait_for(full + 8 * slot, (done + box) / SLOTS & 1);
                products_begin();
#ifdef DATA
#pragma unroll
                for (u32 k = 0; k < steps(box); k++) {
                    // Backwards: the first of the taps of every result is one of the last four.
#pragma unroll
                    for (u32 tap = 9; tap-- > 0;) {
                        const u32 r = tap / 3, s = tap % 3;
                        const u64 left = matrix(at + ((r == 0) * 9 + (s == 0)) * PIXEL + k * 32, 0, 9 * PIXEL, PIXEL);
                        const u64 right = matrix(base + tap * TAP + (4 * box + k) * 16 * TOGETHER, 0, 8 * TOGETHER,
                                                 TOGETHER);
                        multiply(d[(r != 1) * 2 + (s != 1)], left, right, box + k > 0 || r == 0 || s == 0);
                    }
                }
#else
                const u32 plane = box / 4, a = box / 2 % 2, b = box % 2;
#pragma unroll
                for (u32 tap = 0; tap < (1 + a) * (1 + b); tap++) {
                    // Rows and columns from which the box is read; of the filter they are 0 and 2, or 1.
                    const u32 down = tap / (1 + b), across = tap % (1 + b);
                    const u32 r = a ? 2 * down : 1, s = b ? 2 * across : 1;
#pragma unroll
                    for (u32 k = 0; k < steps(plane); k++) {
                        const u32 pixel = at + (down * (8 + b) + across) * PIXEL;
                        const u64 left = matrix(pixel + k * 32, 0, (8 + b) * PIXEL, PIXEL);
                        const u64 right = matrix(base + (plane * 9 + r * 3 + s) * TAP + k * 32, 0, 8 * PIXEL, PIXEL);
                        multiply(d[0], left, right, box + tap + k > 0);
                    }
                }
#endif
                products_end();
                // All but this box are done: the slot of the one before it is free.
                products_wait<1>();
                if (first && box > 0) arrive(empty + 8 * ((done + box - 1) % SLOTS));
            }
            if (first) arrive(go + 8 * (group ^ 1));
            products_wait<0>();
            if (first) arrive(empty + 8 * ((done + BOXES - 1) % SLOTS));
#pragma unroll
            for (u32 q = 0; q < RESULTS; q++) {
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
                    write_pixel(to + pixel * p.written, d[q], half, written, p.written);
                }
            }
            done += 2 * BOXES;
            round++;
        }
    }
}
