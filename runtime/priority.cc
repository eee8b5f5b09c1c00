#include "runtime/priority.h"

#include <sys/resource.h>
#include <unistd.h>

namespace weft::runtime {

void YieldToCommunication() {
  constexpr int kNice = 10;
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
}

}  // namespace weft::runtime
