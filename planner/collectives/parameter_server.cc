#include "planner/collectives/parameter_server.h"

#include <fmt/format.h>

#include <algorithm>

#include "planner/collectives/schedule_builder.h"

namespace weft::planner::inline collectives {

Result<Schedule> ParameterServerSchedule(Collective collective, int32_t ranks, int32_t servers) {
  if (collective != Collective::kAllReduce) {
    return Fail(Code::kInvalidArgument, fmt::format("ps {}: expected allreduce", CollectiveName(collective)));
  }
  if (servers < 1 || servers > ranks) {
    return Fail(Code::kInvalidArgument, fmt::format("ps: {} servers among {} ranks, expected 1 to the number of ranks",
                                                    servers, ranks));
  }
  ScheduleBuilder builder(collective, "ps", ranks, servers);
  for (int32_t rank = 0; rank < ranks; ++rank) {
    for (int32_t c = 0; c < servers; ++c) builder.Copy(rank, OutputChunk(c), InputChunk(c));
  }
  // Server c hears the ranks behind it first, so that at no time all send to one server.
  for (int32_t shift = 1; shift < ranks; ++shift) {
    for (int32_t c = 0; c < servers; ++c) {
      builder.TransferAndAdd((c + shift) % ranks, OutputChunk(c), c, OutputChunk(c));
    }
  }
  for (int32_t shift = 1; shift < ranks; ++shift) {
    for (int32_t c = 0; c < servers; ++c) {
      builder.Transfer(c, OutputChunk(c), (c + shift) % ranks, OutputChunk(c));
    }
  }
  return builder.Finish();
}

Seconds ParameterServerTime(int32_t ranks, int32_t servers, Bytes bytes, BitsPerSecond rate, Seconds latency) {
  if (ranks <= 1) return Seconds(0);
  const int32_t others = ranks - 1;
  const int32_t window = std::max(3, servers);  // as ScheduleBuilder allots scratch
  const Seconds part = (bytes / rate) / servers;
  const Seconds out = latency + part * others;
  // A window of parts arrives, is summed, and the next one begins: late, where the parts are sent faster than they arrive.
  const Seconds idle = latency + part - part * window;
  const int32_t waits = (others - 1) / window;
  return 2 * out + std::max(Seconds(0), idle) * waits;
}

// Every GPU machine sends M and, as a server of share g, receives (n-1) g and sends it back; a CPU machine receives and sends
// n c. With x its traffic per direction: x = M - g + (n-1) g for a GPU machine, x = n c for a CPU machine, n g + k c = M.
ServerShares BestServerShares(int32_t machines, int32_t spare) {
  const double n = machines, k = spare;
  if (machines == 1) return {.gpu_machine = 1, .cpu_machine = 0};
  const double scale = n * n + k * n - 2 * k;
  return {.gpu_machine = (n - k) / scale, .cpu_machine = k == 0 ? 0 : 2 * (n - 1) / scale};
}

Seconds SpareServerTime(int32_t machines, int32_t spare, Bytes bytes, BitsPerSecond rate, Seconds latency) {
  if (machines <= 1) return Seconds(0);
  const double n = machines, k = spare;
  return 2 * latency + (bytes / rate) * (2 * n * (n - 1) / (n * n + k * n - 2 * k));
}

}  // namespace weft::planner::collectives
