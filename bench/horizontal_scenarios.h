// Two kinds of shared clusters on which policies are compared, drawn from a seed.
//
// CassiniLike: 24 hosts with one GPU and one 50 Gbit/s NIC, 12 leaves of two hosts under one spine (13 switches), 2:1
// oversubscribed; eight data-parallel jobs of two models, on three hosts each, wherever they were free; gradients
// travel around a ring, nothing overlapped; every third job arrives later.
// Source of shape and models: CASSINI (NSDI'24, arXiv 2308.00852): 24 servers, 13 logical switches, 2:1, 50 Gbit/s;
// sizes of the 13-model table; VGG16 computes 141 ms of 255 ms.
//
// CruxLike: 288 hosts of 8 GPUs and 4 x 200 Gbit/s, on two or three tiers, oversubscribed above the leaves; 40 jobs,
// 10 % of them with 128 GPUs or more, the largest with 512; never fewer than 30 at once; 8 classes.
// Source of the distribution: Crux (SIGCOMM'24), its trace of 2,000+ GPUs.
#pragma once

#include <cstdint>

#include "planner/jobs/simulate/scenario.h"

namespace weft::bench {

planner::Scenario CassiniLike(uint64_t seed);
/// `tiers`: 2 or 3; `oversubscription` of the leaves: a divisor of 18.
planner::Scenario CruxLike(uint64_t seed, int tiers, int oversubscription);

}  // namespace weft::bench
