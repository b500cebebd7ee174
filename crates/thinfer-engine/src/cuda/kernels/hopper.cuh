// What kernels for compute capability 9.0 share: tensors are fetched box by box into shared memory, and its tensor
// cores read them there.
#define WHOLE(bytes) (((bytes) + 1023) / 1024 * 1024)

// A tensor as the fetching hardware knows it.
struct __align__(64) Map {
    u64 words[16];
};

// Every second row and column of a batch of pixels: from the even or odd row and the even or odd column on, in this
// order and columns first.
struct Phases {
    Map at[4];
};

// The group of four warps that a thread is in. It is the same for all threads of a warp, which the compiler would not
// know: places are made once for all of them.
__device__ __forceinline__ u32 group_of_warps() { return __shfl_sync(~0u, threadIdx.x / 128, 0); }

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void start_barrier(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives, and lets the barrier wait for so many fetched bytes as well.
__device__ __forceinline__ void expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void wait_for(u32 barrier, u32 parity) {
    asm volatile(
        "{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra GO;\nbra AGAIN;\nGO:\n}" ::"r"(barrier), "r"(parity) : "memory");
}

// A box of pixels, from these channels, column, row and image on. Beyond the edges there are zeros.
__device__ __forceinline__ void fetch_pixels(u32 to, const Map* map, u32 barrier, u32 channel, int column, int row,
                                             u32 image) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
        "[%2];" ::"r"(to), "l"(map), "r"(barrier), "r"(channel), "r"(column), "r"(row), "r"(image) : "memory");
}

// How the tensor cores read a matrix: its start, how far apart planes and groups of eight rows are, and how many
// bytes of a row lie together, which is how they are swizzled.
__device__ __forceinline__ u64 matrix(u32 address, u32 plane, u32 eight, u32 together) {
    const u64 swizzle = together == 128 ? 1 : together == 64 ? 2 : 3;
    return (u64)(address >> 4) | (u64)(plane >> 4) << 16 | (u64)(eight >> 4) << 32 | swizzle << 62;
}

__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most LEFT batches of products are under way.
template <int LEFT>
__device__ __forceinline__ void products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// Operands of an instruction are numbered, so each width of a product is written out.
#define EIGHT_OF(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), \
                       "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define EIGHT(i) EIGHT_OF(d, i)
#define TO_7 "%0, %1, %2, %3, %4, %5, %6, %7"
#define TO_15 TO_7 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define TO_23 TO_15 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define TO_31 TO_23 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define TO_39 TO_31 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define TO_47 TO_39 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define TO_55 TO_47 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define TO_63 TO_55 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define TO_71 TO_63 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define TO_79 TO_71 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define TO_87 TO_79 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define TO_95 TO_87 ", %88, %89, %90, %91, %92, %93, %94, %95"
