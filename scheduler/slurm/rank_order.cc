#include "scheduler/slurm/rank_order.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "scheduler/slurm/hostlist.h"

namespace weft::slurm {
namespace {

constexpr size_t kMostTasks = 1 << 20;

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// 0 where `text` is no positive whole number.
size_t Count(const std::string& text) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value <= kMostTasks ? value : 0;
}

}  // namespace

Result<std::string> MakeHostFile(const std::string& order, const SlurmJobShape& job) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> nodes, ExpandHostlist(job.nodes));
  const std::vector<std::string> ordered = Split(order);
  if (nodes.empty() || !std::is_permutation(ordered.begin(), ordered.end(), nodes.begin(), nodes.end())) {
    return Fail(Code::kInvalidArgument, "the plan's order \"" + order + "\" is none of the job's hosts \"" + job.nodes + "\"");
  }
  if (ordered.front() != nodes.front()) {
    return Fail(Code::kFailedPrecondition, "the plan has rank 0 on " + ordered.front() + ", but scripts look for it on " +
                                               nodes.front());
  }
  size_t per_node = Count(job.tasks_per_node);
  if (per_node == 0 && Count(job.tasks) % nodes.size() == 0) per_node = Count(job.tasks) / nodes.size();
  if (per_node == 0) {
    return Fail(Code::kFailedPrecondition, "the job does not fix its tasks per node (--ntasks-per-node)");
  }
  if (per_node * nodes.size() > kMostTasks) return Fail(Code::kInvalidArgument, "more tasks than a host file may list");
  std::string text;
  for (const std::string& host : ordered) {
    for (size_t i = 0; i < per_node; ++i) text += host + "\n";
  }
  return text;
}

}  // namespace weft::slurm
