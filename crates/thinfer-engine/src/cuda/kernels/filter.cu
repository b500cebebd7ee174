// The filter gradient of a 3x3 convolution of stride 1 and padding 1, for compute capability 9.0:
//
//   dw[o][r][s][i] = sum over images and pixels (y, x) of dy[y][x][o] * x[y + r - 1][x + s - 1][i]
//
// as nine products that sum over pixels. A block has a tile of 64 outputs by IN inputs, and some chunks of
// the pixels: IMAGES images by ROWS rows by WIDTH columns of dy, and of x as much and one more on every
// side, so that what all nine products read is fetched once. Beyond the edges a fetch gives zeros: that
// is the padding, and it lets WIDTH be a multiple of 8, ROWS and IMAGES not divide the batch, and tiles
// reach beyond the last channel. One thread fetches; three groups of four warps multiply, one for each
// row r of the filter, and a tap s is the same memory read one pixel later. Where the channels of a pixel lie
// together, the three taps of a row are one product of three times as many columns, which reads dy once for all
// three.
//
// A tile of 64 outputs is half empty where there are 32. The sum is the same over the pixels that x has,
//
//   dw[o][r][s][i] = sum over images and pixels (y, x) of x[y][x][i] * dy[y - r + 1][x - s + 1][o]
//
// so with SWAPPED x and dy change places: "in" and "out" stand for outputs and inputs, and taps are turned around.
//
// `filter_parts` writes what each block has summed, `filter_sum` adds that up in its order.
#define OUT 64
#define IN TILE
#define STEPS (IMAGES * ROWS * WIDTH / 16)
#define LINE (WIDTH + 2)
// Bytes of channels that lie together, as the swizzle wants them.
#define OUT_BYTES 128
#if IN % 64 == 0
#define IN_BYTES 128
#elif IN % 32 == 0
#define IN_BYTES 64
#else
#define IN_BYTES 32
#endif
#define IN_PLANES (2 * IN / IN_BYTES)
#define OUT_BOX (IMAGES * ROWS * WIDTH * OUT_BYTES)
#define IN_BOX (IMAGES * (ROWS + 2) * LINE * IN_BYTES)
#define STAGE (WHOLE(OUT_BOX) + IN_PLANES * WHOLE(IN_BOX))
#define MULTIPLIERS 384

struct Shape {
    u32 images, height, in, out, splits;
};
// Pixels in front of a group of eight: in dy they lie one after the other, in x there are borders.
__device__ constexpr u32 pixels_before(u32 group) {
    const u32 line = group / (WIDTH / 8);
    return (line / ROWS * (ROWS + 2) + line % ROWS) * LINE + group % (WIDTH / 8) * 8;
}

#if IN_PLANES == 1
// d[s] += a b for the three taps of a row: the channels of the next pixel are columns like those of this one.
__device__ __forceinline__ void multiply_row(float (&d)[3][SUMS], u64 a, u64 b) {
#if TILE == 32
    asm volatile(MULTIPLY("96", TO_47, "%48", "%49")
                 : EIGHT_OF(d[0], 0), EIGHT_OF(d[0], 8), EIGHT_OF(d[1], 0), EIGHT_OF(d[1], 8), EIGHT_OF(d[2], 0),
                   EIGHT_OF(d[2], 8) : "l"(a), "l"(b));
#else
    asm volatile(MULTIPLY("192", TO_95, "%96", "%97")
                 : EIGHT_OF(d[0], 0), EIGHT_OF(d[0], 8), EIGHT_OF(d[0], 16), EIGHT_OF(d[0], 24), EIGHT_OF(d[1], 0),
                   EIGHT_OF(d[1], 8), EIGHT_OF(d[1], 16), EIGHT_OF(d[1], 24), EIGHT_OF(d[2], 0), EIGHT_OF(d[2], 8),
                   EIGHT_OF(d[2], 16), EIGHT_OF(d[2], 24) : "l"(a), "l"(b));
#endif
}
#endif

// partial: [splits][out][3][3][in].
extern "C" __global__ void __launch_bounds__(MULTIPLIERS + 128, 1) filter_parts(
    const __grid_constant__ Map x, const __grid_constant__ Map dy, float* partial, Shape p) {
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ __align__(8) u64 barriers[2 * STAGES];
    const u32 base = shared_address(memory), full = shared_address(barriers), empty = full + 8 * STAGES;
    const u32 columns = (p.in + IN - 1) / IN, tiles = columns * ((p.out + OUT - 1) / OUT);
    const u32 tile = blockIdx.x % tiles, split = blockIdx.x / tiles;
    const u32 out = tile / columns * OUT, in = tile % columns * IN;
    const u32 high = (p.height + ROWS - 1) / ROWS, chunks = (p.images + IMAGES - 1) / IMAGES * high;
    const u32 begin = (u32)((u64)chunks * split / p.splits), end = (u32)((u64)chunks * (split + 1) / p.splits);
    if (threadIdx.x == 0) {
        for (u32 s = 0; s < STAGES; s++) {
            start_barrier(full + 8 * s, 1);
            start_barrier(empty + 8 * s, 3);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    u32 stage = 0, turn = 0;
    if (threadIdx.x >= MULTIPLIERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == MULTIPLIERS) {
            for (u32 chunk = begin; chunk < end; chunk++) {
                wait_for(empty + 8 * stage, turn ^ 1);
                const u32 to = base + stage * STAGE, barrier = full + 8 * stage;
                const u32 image = chunk / high * IMAGES;
                const int row = chunk % high * ROWS;
                expect(barrier, OUT_BOX + IN_PLANES * IN_BOX);
                fetch_pixels(to, &dy, barrier, out, 0, row, image);
#pragma unroll
                for (u32 plane = 0; plane < IN_PLANES; plane++) {
                    fetch_pixels(to + WHOLE(OUT_BOX) + plane * WHOLE(IN_BOX), &x, barrier,
                                 in + plane * (IN_BYTES / 2), -1, row - 1, image);
                }
                if (++stage == STAGES) stage = 0, turn ^= 1;
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 152;");
        const u32 r = group_of_warps();
        float d[3][SUMS];
#pragma unroll
        for (int s = 0; s < 3; s++) {
#pragma unroll
            for (int i = 0; i < SUMS; i++) d[s][i] = 0.f;
        }
        for (u32 chunk = begin; chunk < end; chunk++) {
            wait_for(full + 8 * stage, turn);
            const u32 left = base + stage * STAGE, right = left + WHOLE(OUT_BOX) + r * LINE * IN_BYTES;
            products_begin();
#pragma unroll
            for (u32 k = 0; k < STEPS; k++) {
                const u32 before = pixels_before(2 * k), after = pixels_before(2 * k + 1);
                const u64 a = matrix(left + k * 16 * OUT_BYTES, 0, 8 * OUT_BYTES, OUT_BYTES);
                const u32 from = right + before * IN_BYTES, eight = (after - before) * IN_BYTES;
#if IN_PLANES == 1
                multiply_row(d, a, matrix(from, IN_BYTES, eight, IN_BYTES));
#else
#pragma unroll
                for (u32 s = 0; s < 3; s++) {
                    multiply(d[s], a, matrix(from + s * IN_BYTES, WHOLE(IN_BOX), eight, IN_BYTES));
                }
#endif
            }
            products_end();
            // All but this chunk are done: the stage of the one before it is free.
            products_wait<1>();
            if (threadIdx.x % 128 == 0 && chunk > begin) {
                arrive(empty + 8 * (stage == 0 ? STAGES - 1 : stage - 1));
            }
            if (++stage == STAGES) stage = 0, turn ^= 1;
        }
        products_wait<0>();
#pragma unroll
        for (int s = 0; s < 3; s++) {
#pragma unroll
            for (int i = 0; i < SUMS; i++) asm volatile("" : "+f"(d[s][i])::"memory");
        }
        // A thread has two neighbours of every eight inputs, in two rows that are eight apart.
        const u32 lane = threadIdx.x % 32, o = out + threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            if (o + 8 * half >= p.out) continue;
            float* to = partial + (((size_t)split * p.out + o + 8 * half) * 9 + r * 3) * p.in;
#pragma unroll
            for (u32 s = 0; s < 3; s++) {
#pragma unroll
                for (u32 j = 0; j < IN / 8; j++) {
                    const u32 i = in + 8 * j + lane % 4 * 2;
                    const float2 two = make_float2(d[s][4 * j + 2 * half], d[s][4 * j + 2 * half + 1]);
                    if (i < p.in) *(float2*)(to + s * p.in + i) = two;
                }
            }
        }
    }
}
