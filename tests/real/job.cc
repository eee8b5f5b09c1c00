#include "tests/real/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

namespace weft::real {
namespace {

const testbed::FabricHost* FindHost(const testbed::Fabric& fabric, const std::string& name) {
  const auto& hosts = fabric.hosts();
  const auto found = std::find_if(hosts.begin(), hosts.end(), [&](const auto& host) { return host.name == name; });
  return found == hosts.end() ? nullptr : &*found;
}

/// The whole lines of a file that is still being written.
std::vector<std::string> LinesOf(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line) && !file.eof();) lines.push_back(line);
  return lines;
}

std::vector<std::string> ReplayCommand(const Installation& installation, const JobSpec& spec, Seconds duration) {
  std::vector<std::string> argv{installation.bin + "/weft-replay",
                                "--compute", fmt::format("{:.0f}us", spec.compute.count() * 1e6),
                                "--bucket", fmt::format("{}B", spec.bytes.count()),
                                "--duration", fmt::format("{:.0f}ms", duration.count() * 1e3)};
  if (spec.bursts.empty()) argv.insert(argv.end(), {"--bytes", fmt::format("{}B", spec.bytes.count())});
  for (const JobSpec::Burst& burst : spec.bursts) {
    argv.insert(argv.end(),
                {"--burst", fmt::format("{:.0f}us:{}B:{:.0f}us", burst.times.release.count() * 1e6, burst.bytes.count(),
                                        burst.times.needed.count() * 1e6)});
  }
  return argv;
}

/// What weft-train's summary says of volumes and ranks.
void AddProgram(const nlohmann::json& summary, JobEnd* end) {
  for (const auto& volume : summary.value("volumes", nlohmann::json::array())) {
    end->bytes_sent += volume.value("sent_bytes", int64_t{0});
    end->bytes_planned += volume.value("planned_bytes", int64_t{0});
  }
  for (const auto& rank : summary.value("ranks", nlohmann::json::array())) {
    if (!rank.is_object() || !rank.contains("measured")) continue;
    end->busy += rank["measured"].value("busy", 0.0);
    end->overruns = std::max(end->overruns, rank["measured"].value("overruns", 0.0));
  }
}

}  // namespace

std::string LastLine(const std::string& path) {
  std::ifstream file(path);
  std::string line, last = "no output";
  while (std::getline(file, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

std::vector<JobSpec::Flow> FlowsOf(const JobSpec& spec) {
  if (!spec.flows.empty()) return spec.flows;
  const auto ranks = static_cast<int64_t>(spec.hosts.size());
  // Ring all-reduce: every rank passes on 2 (n - 1) / n of the gradients.
  const auto passed_on = [&](Bytes bytes) { return Bytes(bytes.count() * 2 * (ranks - 1) / ranks); };
  JobSpec::Flow flow{.bytes = passed_on(spec.bytes)};
  for (const JobSpec::Burst& burst : spec.bursts) flow.per_burst.push_back(passed_on(burst.bytes));
  std::vector<JobSpec::Flow> flows(spec.hosts.size(), flow);
  for (size_t r = 0; r < flows.size(); ++r) flows[r].from = r, flows[r].to = (r + 1) % flows.size();
  return flows;
}

std::string FabricJob::LogOf(size_t rank) const { return fmt::format("{}-{}.log", log_, rank); }

Result<FabricJob> FabricJob::Start(const testbed::Fabric& fabric, const Installation& installation,
                                   const JobSpec& spec, int port, Seconds duration) {
  FabricJob job(spec, fmt::format("{}/{}", installation.run_dir, spec.name));
  const testbed::FabricHost* first = FindHost(fabric, spec.hosts.front());
  for (size_t rank = 0; rank < spec.hosts.size(); ++rank) {
    const testbed::FabricHost* host = FindHost(fabric, spec.hosts[rank]);
    if (!first || !host) {
      return Fail(Code::kNotFound, fmt::format("job {}: no host \"{}\"", spec.name, spec.hosts[rank]));
    }
    testbed::ProcessOptions options{
        .argv = spec.command.empty() ? ReplayCommand(installation, spec, duration) : spec.command,
        .environment = {{"NCCL_SOCKET_IFNAME", "=eth0"}, {"WEFT_RUN_DIR", installation.RunDirOf(host->name)},
                        {"OMP_NUM_THREADS", "1"}},
        .netns = host->netns,
        .out = rank == 0 ? testbed::Output::File(job.log_ + ".out") : testbed::Output::Null(),
        .err = testbed::Output::File(job.LogOf(rank))};
    options.argv.insert(options.argv.end(),
                        {"--job", spec.name, "--rank", std::to_string(rank), "--world", std::to_string(spec.hosts.size()),
                         "--rendezvous", fmt::format("{}:{}", first->mgmt_address, port), "--plugin", installation.plugin});
    WEFT_ASSIGN_OR_RETURN(testbed::Process process, testbed::Spawn(options));
    job.ranks_.push_back(std::move(process));
  }
  return job;
}

bool FabricJob::Running() {
  return std::ranges::all_of(ranks_, [](testbed::Process& rank) { return rank.Running(); });
}

Result<std::vector<Step>> FabricJob::Steps() {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].Running()) continue;
    WEFT_ASSIGN_OR_RETURN(const testbed::ExitStatus status, ranks_[rank].Wait());
    if (!status.ok()) {
      return Fail(Code::kUnavailable, fmt::format("job {}: rank {} ended with {}: {}", spec_.name, rank,
                                                  status.ToString(), LastLine(LogOf(rank))));
    }
  }
  std::vector<Step> steps;
  for (const std::string& line : LinesOf(log_ + ".out")) {
    const auto parsed = nlohmann::json::parse(line, nullptr, false);
    if (!parsed.is_object()) return Fail(Code::kInternal, fmt::format("job {}: unexpected \"{}\"", spec_.name, line));
    if (!parsed.contains("step")) continue;
    const double end = parsed.value("time_s", 0.0);
    steps.push_back({end - parsed.value("iteration_s", 0.0), end});
  }
  return steps;
}

Result<JobEnd> FabricJob::Finish(Seconds timeout) {
  for (testbed::Process& rank : ranks_) {
    const auto ended = rank.Wait(timeout);
    if (!ended) return Fail(ended.error().WithContext("job " + spec_.name));
  }
  WEFT_RETURN_IF_ERROR(Steps());  // says which rank failed, if one did
  const auto summary = nlohmann::json::parse(LastLine(log_ + ".out"), nullptr, false);
  if (!summary.is_object() || !summary.contains("summary")) {
    return Fail(Code::kInternal, fmt::format("job {}: no summary at the end", spec_.name));
  }
  const nlohmann::json& facts = summary["summary"];
  JobEnd end{.steps = facts.value("steps", int64_t{0}), .bytes_sent = facts.value("bytes_sent", int64_t{0})};
  AddProgram(facts, &end);
  return end;
}

}  // namespace weft::real
