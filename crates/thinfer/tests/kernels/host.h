// What CUDA C++ has and C++ has not, so that a kernel runs on the processor, one thread at a time.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
// Blocks of one thread only, where a kernel shares memory.
#define __shared__ static
#define __syncthreads()

struct Index { unsigned x, y; };
static Index blockIdx, blockDim, threadIdx, gridDim;
struct float4 { float x, y, z, w; };
struct uchar4 { unsigned char x, y, z, w; };
struct ushort4 { unsigned short x, y, z, w; };
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static ushort4 make_ushort4(unsigned short x, unsigned short y, unsigned short z, unsigned short w) { return {x, y, z, w}; }
static float __fadd_rn(float a, float b) { return a + b; }
static float __fsub_rn(float a, float b) { return a - b; }
static float __fmul_rn(float a, float b) { return a * b; }
static float __fdiv_rn(float a, float b) { return a / b; }
static float __fsqrt_rn(float a) { return sqrtf(a); }
static unsigned __float_as_uint(float a) { unsigned b; memcpy(&b, &a, 4); return b; }
static float __uint_as_float(unsigned a) { float b; memcpy(&b, &a, 4); return b; }

// Converts to whatever pointer a kernel asks for.
struct Any {
    void* at;
    template <class T> operator T*() const { return (T*)at; }
};

// Sections of the file that the test wrote: a length in bytes, then the bytes.
static std::vector<std::vector<char>> read_sections(const char* path) {
    std::vector<std::vector<char>> sections;
    FILE* file = fopen(path, "rb");
    uint64_t bytes;
    while (file && fread(&bytes, 8, 1, file) == 1) {
        sections.emplace_back(bytes);
        if (fread(sections.back().data(), 1, bytes, file) != bytes) break;
    }
    if (file) fclose(file);
    return sections;
}

static void write_sections(const char* path, const std::vector<std::vector<char>>& sections) {
    FILE* file = fopen(path, "wb");
    for (auto& s : sections) {
        uint64_t bytes = s.size();
        fwrite(&bytes, 8, 1, file);
        fwrite(s.data(), 1, bytes, file);
    }
    fclose(file);
}

template <class F> static void launch(unsigned blocks, unsigned threads, F kernel) {
    gridDim.x = blocks;
    blockDim.x = threads;
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
        for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) kernel();
}
