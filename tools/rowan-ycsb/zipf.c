/* Zipfian numbers. One pow a draw. The sum that the method needs is added term by term for the first
 * ranks and by the Euler-Maclaurin formula for the rest, so that a billion records cost no seconds. */
#include "tools/rowan-ycsb/zipf.h"

#include <math.h>

enum {
    EXACT_TERMS = 1 << 16,
    NEAR_TERMS = 64, /* from here on the formula's error is below 1e-9 */
};

#define FNV_OFFSET UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME  UINT64_C(0x100000001b3)

/* The sum for i of from + 1 to `to`. */
static double further(double from, double to)
{
    const double theta = ZIPF_THETA;
    double integral = (pow(to, 1 - theta) - pow(from, 1 - theta)) / (1 - theta);
    double ends = (pow(to, -theta) - pow(from, -theta)) / 2;
    double slopes = theta * (pow(from, -theta - 1) - pow(to, -theta - 1)) / 12;

    return integral + ends + slopes;
}

/* The sum for i of 1 to count. */
static double zeta(uint64_t count)
{
    uint64_t exact = count < EXACT_TERMS ? count : EXACT_TERMS;
    double sum = 0;

    for (uint64_t i = exact; i > 0; i--) /* small terms first */
        sum += pow((double)i, -ZIPF_THETA);
    return count == exact ? sum : sum + further((double)exact, (double)count);
}

static void fit(struct zipf *zipf, uint64_t count, double zetan)
{
    const double theta = ZIPF_THETA;
    double zeta2 = 1 + pow(0.5, theta);

    *zipf =
        (struct zipf){.count = count, .zetan = zetan, .alpha = 1 / (1 - theta), .second = zeta2};
    if (count > 2)
        zipf->eta = (1 - pow(2 / (double)count, 1 - theta)) / (1 - zeta2 / zetan);
}

void zipf_init(struct zipf *zipf, uint64_t count)
{
    fit(zipf, count, zeta(count));
}

void zipf_grow(struct zipf *zipf, uint64_t count)
{
    if (zipf->count < NEAR_TERMS)
        zipf_init(zipf, count);
    else
        fit(zipf, count, zipf->zetan + further((double)zipf->count, (double)count));
}

uint64_t zipf_rank(const struct zipf *zipf, double unit)
{
    double scaled = unit * zipf->zetan;

    if (scaled < 1)
        return 0;
    if (scaled < zipf->second || zipf->count <= 2)
        return zipf->count > 1;
    uint64_t rank =
        (uint64_t)((double)zipf->count * pow(zipf->eta * unit - zipf->eta + 1, zipf->alpha));

    return rank < zipf->count ? rank : zipf->count - 1;
}

uint64_t zipf_scramble(uint64_t rank, uint64_t count)
{
    uint64_t hash = FNV_OFFSET;

    for (int i = 0; i < 8; i++, rank >>= 8)
        hash = (hash ^ (rank & 0xff)) * FNV_PRIME;
    return zipf_scale(hash, count);
}
