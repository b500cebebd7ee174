// The filter gradient of a 3x3 convolution of stride 2 and padding 1, for compute capability 9.0:
//
//   dw[o][r][s][i] = sum over images and pixels (Y, X) of x[2 Y + r - 1][2 X + s - 1][i] * dy[Y][X][o]
//
// as nine products that sum over pixels. A block has a tile of 64 inputs by OUT outputs, and some squares of eight
// by eight pixels of dy. Of x it fetches even and odd rows by even and odd columns apart, so that a tap is one of
// these boxes read from some pixel on: the odd ones begin one before the square and have nine. Beyond the edges a
// fetch gives zeros, and so tiles may reach beyond the last channel. One thread fetches; three groups of four warps
// multiply, one for each row r of the filter.
//
// `filter_parts` writes what each block has summed, `filter_sum` adds that up in its order.
#define IN 64
#define OUT TILE
#define PIXEL (2 * IN)
// Bytes of outputs that lie together, as the swizzle wants them.
#if OUT % 64 == 0
#define TOGETHER 128
#elif OUT % 32 == 0
#define TOGETHER 64
#else
#define TOGETHER 32
#endif
#define PLANES (2 * OUT / TOGETHER)
#define OUT_BOX (8 * 8 * TOGETHER)
#define IN_BOXES WHOLE(17 * 17 * PIXEL)
#define STAGE (IN_BOXES + PLANES * OUT_BOX)
#define MULTIPLIERS 384

// Sides are those of dy.
struct Shape {
    u32 images, height, width, in, out, splits;
};

// Where the box of even or odd rows and columns begins; all but the last have a multiple of 1024 bytes.
__device__ constexpr u32 box_at(u32 a, u32 b) { return (a * 8 * 17 + b * (8 + a) * 8) * PIXEL; }

// partial: [splits][out][3][3][in].
extern "C" __global__ void __launch_bounds__(MULTIPLIERS + 128, 1) filter_parts(
    const __grid_constant__ Phases x, const __grid_constant__ Map dy, float* partial, Shape p) {
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ __align__(8) u64 barriers[2 * STAGES];
    const u32 base = shared_address(memory), full = shared_address(barriers), empty = full + 8 * STAGES;
    const u32 columns = (p.out + OUT - 1) / OUT, tiles = columns * ((p.in + IN - 1) / IN);
    const u32 tile = blockIdx.x % tiles, split = blockIdx.x / tiles;
    const u32 in = tile / columns * IN, out = tile % columns * OUT;
    const u32 high = p.height / 8, wide = p.width / 8, squares = p.images * high * wide;
    const u32 begin = (u32)((u64)squares * split / p.splits), end = (u32)((u64)squares * (split + 1) / p.splits);
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
            for (u32 square = begin; square < end; square++) {
                wait_for(empty + 8 * stage, turn ^ 1);
                const u32 to = base + stage * STAGE, barrier = full + 8 * stage;
                const int column = square % wide * 8, row = square / wide % high * 8;
                const u32 image = square / wide / high;
                expect(barrier, 17 * 17 * PIXEL + PLANES * OUT_BOX);
#pragma unroll
                for (u32 box = 0; box < 4; box++) {
                    const int a = box / 2, b = box % 2;
                    fetch_pixels(to + box_at(a, b), &x.at[box], barrier, in, column - b, row - a, image);
                }
#pragma unroll
                for (u32 plane = 0; plane < PLANES; plane++) {
                    fetch_pixels(to + IN_BOXES + plane * OUT_BOX, &dy, barrier, out + plane * (TOGETHER / 2), column,
                                 row, image);
                }
                if (++stage == STAGES) stage = 0, turn ^= 1;
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 152;");
        // Rows 0 and 2 of the filter read odd rows, from the first and the second on.
        const u32 r = group_of_warps(), a = r != 1;
        float d[3][SUMS];
#pragma unroll
        for (int s = 0; s < 3; s++) {
#pragma unroll
            for (int i = 0; i < SUMS; i++) d[s][i] = 0.f;
        }
        for (u32 square = begin; square < end; square++) {
            wait_for(full + 8 * stage, turn);
            const u32 from = base + stage * STAGE;
            products_begin();
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                const u64 right = matrix(from + IN_BOXES + k * 16 * TOGETHER, OUT_BOX, 8 * TOGETHER, TOGETHER);
#pragma unroll
                for (u32 s = 0; s < 3; s++) {
                    const u32 b = s != 1, line = 8 + b;
                    const u32 at = from + box_at(a, b) + ((2 * k + r / 2) * line + s / 2) * PIXEL;
                    multiply(d[s], matrix(at, 0, line * PIXEL, PIXEL), right);
                }
            }
            products_end();
            // All but this square are done: the stage of the one before it is free.
            products_wait<1>();
            if (threadIdx.x % 128 == 0 && square > begin) {
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
        // A thread has two neighbours of every eight outputs, of two inputs that are eight apart.
        const u32 lane = threadIdx.x % 32, i = in + threadIdx.x / 32 % 4 * 16 + lane / 4;
        float* to = partial + ((size_t)split * p.out * 9 + r * 3) * p.in;
#pragma unroll
        for (u32 s = 0; s < 3; s++) {
#pragma unroll
            for (u32 n = 0; n < SUMS; n++) {
                const u32 o = out + n / 4 * 8 + lane % 4 * 2 + n % 2, input = i + n % 4 / 2 * 8;
                if (o < p.out && input < p.in) to[((size_t)o * 9 + s) * p.in + input] = d[s][n];
            }
        }
    }
}
