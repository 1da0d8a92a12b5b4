// What `envcheck preflight` runs on a card, without PyTorch. tests/data/build_memory_ptx.py makes
// memory.ptx of it, which the driver compiles.
//
// Words are of 8 bytes. Each is known by its index, which counts through all chunks of a card's
// memory, so that two addresses which are one cell cannot both be right. envcheck/guest/patterns.py
// works out the same words in Python.

typedef unsigned long long u64;

enum { ADDRESS = 0, RANDOM = 1, WALKING = 2 };
enum { KEPT = 8 };  // mismatches that are told one by one

struct Report {
    u64 count;
    u64 bits;  // every bit that differed anywhere
    u64 first[KEPT][3];  // index, expected, found
};

// splitmix64 (Steele, Lea, Flood 2014): a hash of a counter, so that no word needs another.
__device__ u64 random_word(u64 index)
{
    u64 z = (index + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

__device__ u64 word(u64 index, unsigned kind, u64 seed, u64 mask)
{
    u64 value = index;
    if (kind == RANDOM) value = random_word(index ^ (seed << 48));
    if (kind == WALKING) value = 1ull << ((index + seed) & 63);
    return value ^ mask;
}

__device__ u64 first_index() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ u64 stride() { return (u64)gridDim.x * blockDim.x; }

extern "C" __global__ void nothing() {}

extern "C" __global__ void fill(u64 *words, u64 count, u64 start, unsigned kind, u64 seed, u64 mask)
{
    for (u64 i = first_index(); i < count; i += stride())
        words[i] = word(start + i, kind, seed, mask);
}

extern "C" __global__ void verify(const u64 *words, u64 count, u64 start, unsigned kind, u64 seed,
                                  u64 mask, Report *report)
{
    for (u64 i = first_index(); i < count; i += stride()) {
        u64 expected = word(start + i, kind, seed, mask), found = words[i];
        if (found == expected) continue;
        u64 place = atomicAdd(&report->count, 1ull);
        atomicOr(&report->bits, found ^ expected);
        if (place < KEPT) {
            report->first[place][0] = start + i;
            report->first[place][1] = expected;
            report->first[place][2] = found;
        }
    }
}

extern "C" __global__ void copy(uint4 *to, const uint4 *from, u64 count)
{
    u64 step = stride(), i = first_index();
    for (; i + 3 * step < count; i += 4 * step) {
        uint4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
        to[i] = a;
        to[i + step] = b;
        to[i + 2 * step] = c;
        to[i + 3 * step] = d;
    }
    for (; i < count; i += step) to[i] = from[i];
}
