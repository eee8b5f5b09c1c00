// Which threads of a rank go first where ranks share a core.
#pragma once

namespace weft::runtime {

/// The calling thread computes at a lower priority than the threads that communicate, which exist by now: they need little time,
/// and other ranks wait for them. Lowering the own priority needs no privilege.
void YieldToCommunication();

}  // namespace weft::runtime
