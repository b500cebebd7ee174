// The last node of a captured step: the next replay reads the next row of every table.
extern "C" __global__ void advance(unsigned int* step) { *step += 1u; }
