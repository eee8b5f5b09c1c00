// The driver's counters that have to do with priorities and lost packets (`ethtool -S`): rx_prio3_pause, tx_prio3_bytes,
// rx_discards_phy and the like, as drivers name them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace weft::agent {

/// Whether a counter of that name is of interest.
bool IsQosCounter(const std::string& name);

/// Of one interface, 128 at most; none where the driver has no such counters.
std::map<std::string, int64_t> ReadDriverCounters(const std::string& interface);

/// The priority in a name such as "rx_prio3_pause"; -1: none.
int PriorityOf(const std::string& name);

}  // namespace weft::agent
