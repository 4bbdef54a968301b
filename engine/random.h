/* Random numbers without state: functions of a key and a counter. */
#ifndef ENGINE_RANDOM_H
#define ENGINE_RANDOM_H

#include <stdint.h>

/* SplitMix64's finaliser (Steele et al. 2014): every input bit reaches every output bit. */
uint64_t random_bits(uint64_t key, uint64_t counter);
/* A key for stream `stream` of a seed. */
uint64_t random_key(uint64_t seed, uint64_t stream);
/* A permutation of 0 .. n-1 (n >= 1) chosen by the key: where i goes. A Feistel network on the
 * smallest even number of bits that holds n, walked until it lands inside. */
uint64_t random_permute(uint64_t key, uint64_t i, uint64_t n);

#endif
