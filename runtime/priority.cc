#include "runtime/priority.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace weft::runtime {
namespace {

/// The kernel's struct sched_attr in its first version (sched_setattr(2)); its own header cannot stand beside <sched.h>.
struct SchedulerAttributes {
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime, deadline, period;
};
static_assert(sizeof(SchedulerAttributes) == 48);

}  // namespace

void YieldToCommunication() {
  constexpr int kNice = 10;
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
}

void PreferShortTurns() {
  SchedulerAttributes attributes{};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  attributes.runtime = 100'000;  // nanoseconds, the least that is granted
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace weft::runtime
