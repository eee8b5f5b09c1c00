// What the command line of weft-nccl-job says, and who is in which group.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "collectives/nccl/nccl_data.h"
#include "collectives/nccl/nccl_job.h"
#include "common/parse_units.h"

namespace weft::collectives {
namespace {

std::optional<NcclGroup> ParseGroup(const std::string& text) {
  constexpr std::pair<const char*, NcclGroup> kGroups[] = {
      {"world", NcclGroup::kWorld}, {"tp", NcclGroup::kTensor}, {"dp", NcclGroup::kData}, {"pp", NcclGroup::kPipeline}};
  const auto* found = std::find_if(std::begin(kGroups), std::end(kGroups), [&](const auto& group) { return text == group.first; });
  return found == std::end(kGroups) ? std::nullopt : std::optional(found->second);
}

/// All of `text` is a whole number.
template <class Number>
bool IsNumber(const std::string& text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end;
}

const char* NameOf(NcclGroup group) {
  constexpr const char* kNames[] = {"world", "tp", "dp", "pp"};
  return kNames[static_cast<size_t>(group)];
}

bool Uses(const NcclJobOptions& options, NcclGroup group) {
  return std::any_of(options.steps.begin(), options.steps.end(),
                     [&](const NcclStep& step) { return step.call != NcclCall::kCompute && step.group == group; });
}

/// Results are compared to the last bit, so every sum must be exact, whatever its order.
Status CheckReductions(const NcclJobOptions& options) {
  for (const NcclStep& step : options.steps) {
    const bool reduces = step.call == NcclCall::kAllReduce || step.call == NcclCall::kReduceScatter || step.call == NcclCall::kReduce;
    if (!reduces || !options.check) continue;
    const size_t ranks = RanksOfGroups(step.group, options.world, options.tensor, options.pipeline).front().size();
    if (!IsExact(options.op, options.type, ranks)) {
      return Fail(Code::kInvalidArgument, fmt::format("--op and --type: over the {} ranks of {} not every result is exact; expected fewer "
                                                      "ranks, a power of two for avg, another type, or --no-check",
                                                      ranks, NameOf(step.group)));
    }
  }
  return Ok();
}

}  // namespace

Result<NcclStep> ParseNcclStep(const std::string& text) {
  constexpr std::pair<const char*, NcclCall> kCalls[] = {
      {"allreduce", NcclCall::kAllReduce}, {"allgather", NcclCall::kAllGather}, {"reducescatter", NcclCall::kReduceScatter},
      {"broadcast", NcclCall::kBroadcast}, {"reduce", NcclCall::kReduce},       {"alltoall", NcclCall::kAllToAll},
      {"sendrecv", NcclCall::kNextStage}};
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals), value = equals == std::string::npos ? "" : text.substr(equals + 1);
  const auto wrong = [&](const std::string& what) {
    return Fail(Code::kInvalidArgument,
                fmt::format("--step \"{}\": {}; expected compute=TIME, GROUP.CALL=BYTES or GROUP.CALL=BYTESxN with a group of "
                            "world, tp, dp, pp and a "
                            "call of allreduce, allgather, reducescatter, broadcast, reduce, alltoall, sendrecv", text, what));
  };
  NcclStep step;
  if (name == "compute") {
    const auto time = ParseDuration(value);
    if (!time) return wrong(time.error().message());
    step.compute = *time;
    return step;
  }
  const size_t dot = name.find('.');
  const std::string group = name.substr(0, dot), call = dot == std::string::npos ? "" : name.substr(dot + 1);
  const auto found_group = ParseGroup(group);
  const auto* found_call = std::find_if(std::begin(kCalls), std::end(kCalls), [&](const auto& c) { return call == c.first; });
  if (!found_group) return wrong(fmt::format("no group \"{}\"", group));
  if (found_call == std::end(kCalls)) return wrong(fmt::format("no call \"{}\"", call));
  const size_t times = value.rfind('x');
  if (times != std::string::npos) {
    if (!IsNumber(value.substr(times + 1), step.calls) || step.calls < 1) return wrong("no number of calls after x");
    step.timed = true;
  }
  const auto bytes = ParseBytes(value.substr(0, times));
  if (!bytes) return wrong(bytes.error().message());
  step.group = *found_group;
  step.call = found_call->second;
  step.bytes = *bytes;
  return step;
}

Result<NcclDelay> ParseNcclDelay(const std::string& text) {
  const auto wrong = [&] {
    return Fail(Code::kInvalidArgument, fmt::format("--delay \"{}\": expected RANK:CALL:TIME, as in 2:50:1s", text));
  };
  const size_t first = text.find(':'), second = text.find(':', first == std::string::npos ? first : first + 1);
  if (second == std::string::npos) return wrong();
  NcclDelay delay;
  const bool numbers = IsNumber(text.substr(0, first), delay.rank) && IsNumber(text.substr(first + 1, second - first - 1), delay.call);
  const auto time = ParseDuration(text.substr(second + 1));
  if (!numbers || !time || delay.rank < 0 || delay.call < 1) return wrong();
  delay.time = *time;
  return delay;
}

Result<std::pair<NcclGroup, int>> ParseNcclTrafficClass(const std::string& text) {
  const size_t equals = text.find('=');
  const auto group = ParseGroup(text.substr(0, equals));
  int value = -1;
  if (!group || equals == std::string::npos || !IsNumber(text.substr(equals + 1), value) || value < 0 || value > 255) {
    return Fail(Code::kInvalidArgument, fmt::format("--traffic-class \"{}\": expected GROUP=CLASS with a group of world, tp, dp, pp and a "
                                                    "TOS byte of 0 to 255, as in tp=104", text));
  }
  return std::pair(*group, value);
}

Status CheckNcclJobOptions(const NcclJobOptions& options) {
  if (options.steps.empty()) return Fail(Code::kInvalidArgument, "no --step: expected at least one, as in dp.allreduce=2MiB");
  if (options.iterations.has_value() == options.duration.has_value()) {
    return Fail(Code::kInvalidArgument, "expected one of --iterations and --duration");
  }
  if (options.iterations && *options.iterations < 1) {
    return Fail(Code::kInvalidArgument, fmt::format("--iterations {}: expected at least 1", *options.iterations));
  }
  if (options.min_iterations < 1) {
    return Fail(Code::kInvalidArgument, fmt::format("--min-iterations {}: expected at least 1", options.min_iterations));
  }
  if (options.apart_every < 0 || options.apart_every == 1) {
    return Fail(Code::kInvalidArgument, fmt::format("--apart-every {}: expected 0, or 2 and more", options.apart_every));
  }
  if (options.tensor < 1 || options.tensor > options.world || options.pipeline < 1 || options.pipeline > options.world / options.tensor ||
      options.world % (options.tensor * options.pipeline) != 0) {
    return Fail(Code::kInvalidArgument, fmt::format("--tp {} and --pp {}: expected factors of --world {}", options.tensor,
                                                    options.pipeline, options.world));
  }
  if (options.delay && options.delay->rank >= options.world) {
    return Fail(Code::kInvalidArgument, fmt::format("--delay: rank {}: expected 0 to {}", options.delay->rank, options.world - 1));
  }
  for (const auto& [group, traffic_class] : options.traffic_classes) {
    if (!Uses(options, group)) {
      return Fail(Code::kInvalidArgument, fmt::format("--traffic-class {}={}: no --step uses that group", NameOf(group), traffic_class));
    }
  }
  return CheckReductions(options);
}

std::vector<std::vector<int>> RanksOfGroups(NcclGroup group, int world, int tensor, int pipeline) {
  const int data = world / (tensor * pipeline);
  std::map<int, std::vector<int>> groups;
  for (int rank = 0; rank < world; ++rank) {
    const int t = rank % tensor, d = rank / tensor % data, p = rank / (tensor * data);
    const int index = group == NcclGroup::kWorld    ? 0
                      : group == NcclGroup::kTensor ? p * data + d
                      : group == NcclGroup::kData   ? p * tensor + t
                                                    : d * tensor + t;
    groups[index].push_back(rank);
  }
  std::vector<std::vector<int>> found;
  for (auto& [index, ranks] : groups) found.push_back(std::move(ranks));
  return found;
}

}  // namespace weft::collectives
