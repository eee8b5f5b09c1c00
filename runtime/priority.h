// Which threads of a rank go first where ranks share a core.
#pragma once

namespace weft::runtime {

/// The calling thread computes at a lower priority than the threads that communicate, which exist by now: they need little time,
/// and other ranks wait for them. Lowering the own priority needs no privilege.
void YieldToCommunication();

/// The calling thread communicates: it asks the scheduler for short turns soon instead of long ones later, as it has little to do and
/// other ranks wait for it. Needs no privilege; since Linux 6.12 a waking thread with shorter turns interrupts one with longer ones,
/// older kernels ignore it.
void PreferShortTurns();

}  // namespace weft::runtime
