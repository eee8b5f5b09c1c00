#include "cli/demo/training_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

namespace weft::cli {
namespace {

using nlohmann::json;
using testbed::Output;

std::string LastLine(const std::string& path) {
  std::ifstream file(path);
  std::string line, last;
  while (std::getline(file, line)) {
    if (!line.empty()) last = line;
  }
  return last.empty() ? "no message" : last;
}

std::vector<std::string> Arguments(const DemoCluster& cluster, const TrainingJobOptions& options, size_t rank) {
  const bool trains = options.program != JobProgram::kNccl;
  std::vector<std::string> argv{
      cluster.installation().bin + (trains ? "/weft-train" : "/weft-nccl-job"),
      "--rank", std::to_string(rank),
      "--world", std::to_string(options.hosts.size()),
      "--rendezvous", fmt::format("{}:{}", cluster.host(options.hosts[0]).mgmt_address, options.rendezvous_port)};
  if (trains) {
    argv.insert(argv.end(), {"--job", options.name, "--plugin", cluster.installation().plugin, "--output", "json"});
  }
  argv.insert(argv.end(), options.arguments.begin(), options.arguments.end());
  return argv;
}

std::vector<std::pair<std::string, std::string>> Environment(const DemoCluster& cluster, const TrainingJobOptions& options,
                                                             size_t rank) {
  const std::string& host = cluster.host(options.hosts[rank]).name;
  std::vector<std::pair<std::string, std::string>> values{{"NCCL_SOCKET_IFNAME", fmt::format("={}", cluster.interface())},
                                                          {"WEFT_RUN_DIR", cluster.RunDirOf(host)},
                                                          {"OMP_NUM_THREADS", "1"}};
  if (options.program != JobProgram::kNccl) return values;
  // Each host a node of its own to NCCL, and the ring of which the bound knows how many bytes it sends.
  const std::vector<std::pair<std::string, std::string>> nccl{
      {"NCCL_NET", "Weft"},          {"NCCL_NET_PLUGIN", cluster.installation().plugin},
      {"NCCL_HOSTID", host},         {"NCCL_ALGO", "Ring"},
      {"WEFT_JOB_ID", options.name}, {"WEFT_RANK", std::to_string(rank)},
      {"WEFT_WORLD", std::to_string(options.hosts.size())}};
  values.insert(values.end(), nccl.begin(), nccl.end());
  return values;
}

std::optional<ApartCompute> ParseApart(const json& line) {
  const auto found = line.find("apart");
  if (found == line.end()) return std::nullopt;
  ApartCompute apart{.forward = Seconds(found->value("forward_s", 0.0)),
                     .backward = Seconds(found->value("backward_s", 0.0)),
                     .ready = {}};
  for (const double time : found->value("ready_s", std::vector<double>())) apart.ready.emplace_back(time);
  return apart;
}

Computations ParseComputations(const json& line) {
  Computations ranks;
  const auto found = line.find("computations_s");
  if (found == line.end()) return ranks;
  for (const std::vector<double>& times : found->get<std::vector<std::vector<double>>>()) {
    ranks.emplace_back();
    for (const double time : times) ranks.back().emplace_back(time);
  }
  return ranks;
}

/// All ranks' bytes, as the program's summary has them by communicator and operation.
int64_t SentBytes(const json& summary) {
  int64_t bytes = summary.value("bytes_sent", int64_t{0});
  for (const json& volume : summary.value("volumes", json::array())) bytes += volume.value("sent_bytes", int64_t{0});
  return bytes;
}

TrainingStep ParseStep(const json& line) {
  return {.step = line.value("step", int64_t{0}),
          .loss = line.value("loss", 0.0),
          .iteration = Seconds(line.value("iteration_s", 0.0)),
          .forward = Seconds(line.value("forward_s", 0.0)),
          .backward = Seconds(line.value("backward_s", 0.0)),
          .update = Seconds(line.value("update_s", 0.0)),
          .time = Seconds(line.value("time_s", 0.0)),
          .apart = ParseApart(line),
          .computations = ParseComputations(line)};
}

}  // namespace

Result<std::unique_ptr<TrainingJob>> TrainingJob::Start(DemoCluster& cluster, const TrainingJobOptions& options,
                                                        const std::string& log_directory) {
  std::unique_ptr<TrainingJob> job(new TrainingJob(options));
  for (size_t rank = 0; rank < options.hosts.size(); ++rank) {
    const auto& host = cluster.host(options.hosts[rank]);
    job->logs_.push_back(fmt::format("{}/{}-rank{}.log", log_directory, options.name, rank));
    WEFT_ASSIGN_OR_RETURN(auto process,
                          testbed::Spawn({.argv = Arguments(cluster, options, rank),
                                          .environment = Environment(cluster, options, rank),
                                          .netns = host.netns,
                                          .cores = options.cores,
                                          .out = rank == 0 ? Output::Pipe() : Output::Null(),
                                          .err = Output::File(job->logs_.back())}));
    job->ranks_.push_back(std::move(process));
  }
  const std::string steps = fmt::format("{}/{}-steps.jsonl", log_directory, options.name);
  job->reader_ = std::jthread([raw = job.get(), steps](const std::stop_token& stop) { raw->Read(steps, stop); });
  return job;
}

TrainingJob::~TrainingJob() {
  reader_.request_stop();
  for (auto& rank : ranks_) rank.Kill(SIGKILL);
}

void TrainingJob::Read(const std::string& record, const std::stop_token& stop) {
  std::ofstream out(record);
  for (;;) {
    const auto line = ranks_[0].out_lines()->Next(testbed::kNoTimeout, stop);
    if (!line || !line->has_value()) return;
    out << **line << '\n';
    const json parsed = json::parse(**line, nullptr, false);
    if (!parsed.is_object()) continue;
    const std::scoped_lock lock(mutex_);
    if (parsed.contains("step")) steps_.push_back(ParseStep(parsed));
    if (parsed.contains("job")) {
      summary_.model = parsed["job"].value("model", "");
      summary_.bucket_bytes = parsed["job"].value("bucket_bytes", std::vector<int64_t>());
    }
    if (parsed.contains("summary")) {
      const json& summary = parsed["summary"];
      summary_.steps = summary.value("steps", int64_t{0});
      summary_.bytes_sent = SentBytes(summary);
      summary_.first_loss = summary.value("first_loss", 0.0);
      summary_.final_loss = summary.value("final_loss", 0.0);
      summary_.nccl = summary.value("nccl", "");
      summary_.elements_checked = summary.value("elements_checked", int64_t{0});
    }
  }
}

std::vector<TrainingStep> TrainingJob::steps() const {
  const std::scoped_lock lock(mutex_);
  return steps_;
}

Result<TrainingSummary> TrainingJob::Finish(Seconds timeout, const std::stop_token& stop) {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const auto status = ranks_[rank].Wait(timeout, stop);
    if (!status) return Fail(status.error().WithContext(fmt::format("job {} rank {}", options_.name, rank)));
    if (!status->ok()) {
      return Fail(Code::kFailedPrecondition, fmt::format("job {} rank {} on {}: {}: {}", options_.name, rank,
                                                         options_.hosts[rank], status->ToString(),
                                                         LastLine(logs_[rank])));
    }
  }
  reader_.join();
  const std::scoped_lock lock(mutex_);
  if (steps_.size() < 2) {
    return Fail(Code::kInternal, fmt::format("{}: {} steps were reported, expected 2 and more; see {}", options_.name,
                                             steps_.size(), logs_[0]));
  }
  return summary_;
}

std::optional<Seconds> MedianIteration(const std::vector<TrainingStep>& steps, Seconds from, Seconds to) {
  std::vector<Seconds> times;
  for (const auto& step : steps) {
    if (!step.apart && step.time - step.iteration >= from && step.time < to) times.push_back(step.iteration);
  }
  if (times.size() < 2) return std::nullopt;
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

}  // namespace weft::cli
