#include "cli/online.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "cli/explain_text.h"
#include "cli/proto_json.h"
#include "common/exit_code.h"
#include "common/parse_units.h"
#include "formats/given_strategy.h"
#include "formats/job_yaml.h"
#include "planner/planner.h"
#include "proto/plan_codec.h"

namespace weft::cli {
namespace {

int Complain(const Error& error) {
  fmt::print(stderr, "weft: {}\n", error.message());
  return ExitCodeOf(error);
}

/// Of what the controller answered: a job that it does not know is no mistake in the command line.
int ComplainOfAnswer(const Error& error) {
  fmt::print(stderr, "weft: {}\n", error.message());
  return error.code() == Code::kInvalidArgument ? kExitUsage : kExitFailed;
}

void PrintStrategy(const v1::JobPlan& plan) {
  if (plan.origin() == "given") return fmt::print("your own strategy: {}\n", GivenText(plan));
  // Of an older controller there is no text.
  const std::string text = plan.strategy().text().empty() ? fmt::format("dp={}", plan.strategy().dp()) : plan.strategy().text();
  fmt::print("{}  bucket {}  predicted iteration {}  bound {}\n", text, FormatBytes(Bytes(plan.strategy().bucket_bytes())),
             FormatDuration(Seconds(plan.predicted().iteration_s())), FormatDuration(Seconds(plan.lower_bound_s())));
}

void PrintPlan(const v1::JobPlan& plan) {
  PrintStrategy(plan);
  for (int rank = 0; rank < plan.rank_hosts_size(); ++rank) {
    fmt::print("{}rank {} on {}", rank == 0 ? "" : ", ", rank, plan.rank_hosts(rank));
  }
  if (plan.rank_hosts_size() > 0) fmt::print("\n");
  for (const auto& reason : plan.why()) fmt::print("  {}\n", reason);
}

/// How the job is to be started.
void PrintLaunch(const v1::JobPlan& plan) {
  constexpr size_t kLongest = 200;  // of a value that a person would copy
  if (plan.arguments_size() > 0) fmt::print("arguments: {}\n", fmt::join(plan.arguments(), " "));
  for (const v1::LaunchFile& file : plan.files()) {
    fmt::print("file {}: {} bytes, see --output json\n", file.name(), file.content().size());
  }
  const std::map<std::string, std::string> sorted(plan.environment().begin(), plan.environment().end());
  if (!sorted.empty()) fmt::print("environment of every rank:\n");
  for (const auto& [key, value] : sorted) {
    if (value.size() > kLongest) {
      fmt::print("  {}: {} characters, see --output json\n", key, value.size());
    } else {
      fmt::print("  {}={}\n", key, value);
    }
  }
}

/// Whose plan the job has.
const char* PlanOf(const v1::JobStatus& job) {
  if (!job.has_plan()) return "-";  // its connections came without a submission
  if (!job.plan().has_strategy()) return "none";
  if (job.plan().origin() == "asked") return "asked";  // for while it ran, by an operator
  return job.plan().origin() == "given" ? "own" : "weft";
}

void PrintJob(const v1::JobStatus& job) {
  fmt::print("{:<16} {:<10} plan {:<5} flows {:<4} epoch {:<5} iteration {:<9} sending {}\n", job.spec().job_id(), job.state(),
             PlanOf(job), job.flows(), job.policy_epoch(),
             job.iteration_s() > 0 ? FormatDuration(Seconds(job.iteration_s())) : std::string("-"),
             FormatRate(BitsPerSecond(job.send_rate_bps())));
}

/// Connects, calls, and prints the answer as JSON or by `print`.
template <typename Response>
int Ask(const OnlineOptions& options, const std::function<Result<Response>(ControllerClient&)>& call,
        const std::function<void(const Response&)>& print) {
  auto client = ControllerClient::Connect(options.controller);
  if (!client) return Complain(client.error());
  auto response = call(**client);
  if (!response) return ComplainOfAnswer(response.error());
  if (options.json) {
    fmt::print("{}", ToJsonText(*response));
  } else {
    print(*response);
  }
  return kExitDone;
}

/// What the command line says, else what the job's file says.
Result<std::optional<formats::GivenStrategy>> StrategyOf(const OnlineOptions& options, const formats::JobFile& file) {
  if (options.plan.empty()) return formats::StrategyOf(file);
  WEFT_ASSIGN_OR_RETURN(formats::GivenStrategy given, formats::ReadPlanJson(options.plan, options.plan_index));
  return std::optional<formats::GivenStrategy>(std::move(given));
}

Result<v1::JobSpec> ReadJob(const OnlineOptions& options) {
  if (options.plan_index != 0 && options.plan.empty()) {
    return Fail(Code::kInvalidArgument,
                fmt::format("--plan-index {}: without --plan, expected both or neither", options.plan_index));
  }
  WEFT_ASSIGN_OR_RETURN(const formats::JobFile file, formats::ReadJobYaml(options.job));
  for (const std::string& warning : file.warnings) fmt::print(stderr, "warning: {}\n", warning);
  WEFT_ASSIGN_OR_RETURN(const std::optional<formats::GivenStrategy> given, StrategyOf(options, file));
  v1::JobSpec spec;
  spec.set_job_id(file.job.name);
  spec.set_name(file.job.name);
  spec.set_model_config_json(file.model_config_json);
  spec.set_global_batch(file.job.global_batch);
  spec.set_sequence(file.job.sequence);
  spec.set_precision(std::string(planner::PrecisionName(file.job.precision)));
  spec.set_gpus(file.job.gpus);
  for (const auto& host : file.hosts) spec.add_hosts(host);
  spec.set_ranks_per_host(file.ranks_per_host);
  spec.set_min_gpus(file.min_gpus);
  spec.set_max_gpus(file.max_gpus);
  spec.set_iterations(file.iterations);
  spec.set_deadline_s(file.deadline.count());
  spec.set_framework(file.framework);
  spec.set_reshard(file.reshard);
  for (const std::string& word : file.allow) spec.add_allow(word);
  if (given) *spec.mutable_given_strategy() = proto::ToGivenProto(given->strategy, given->source);
  if (file.job.measured_compute) spec.set_measured_compute_s(file.job.measured_compute->count());
  return spec;
}

/// Only what is named: what is not has its default, the bucket weft-train's own.
Result<v1::ReshardJobRequest> ReadReshard(const OnlineOptions& options) {
  if (options.back == !options.strategy.empty())
    return Fail(Code::kInvalidArgument, "reshard: expected --strategy, or --back, and not both");
  WEFT_ASSIGN_OR_RETURN(const Seconds hold, ParseDuration(options.hold));
  if (!(hold > Seconds(0))) return Fail(Code::kInvalidArgument, fmt::format("--hold {}: expected more than 0", options.hold));
  v1::ReshardJobRequest request;
  request.set_job_id(options.job);
  request.set_back(options.back);
  request.set_dry_run(options.dry_run);
  request.set_hold_s(hold.count());
  if (options.back) return request;
  const Result<planner::FixedVariables> named = planner::ParseFixed(options.strategy);
  if (!named) return Fail(named.error().WithContext("--strategy"));
  request.mutable_strategy()->set_source("weft reshard");
  for (const auto& [name, value] : *named) {
    v1::StrategyValue& one = *request.mutable_strategy()->add_values();
    one.set_name(name);
    one.set_value(planner::FindStrategyVariable(name)->print(value));
  }
  return request;
}

}  // namespace

int RunSubmit(const OnlineOptions& options) {
  const auto spec = ReadJob(options);
  if (!spec) return Complain(spec.error());
  bool taken = true, placed = true;
  const int asked = Ask<v1::SubmitJobResponse>(
      options,
      [&](ControllerClient& client) {
        auto response = client.SubmitJob(*spec);
        const bool asks = spec->min_gpus() > 0 || spec->max_gpus() > 0;
        placed = !asks || !response || response->plan().rank_hosts_size() > 0;
        taken = !spec->has_given_strategy() || !response || response->plan().origin() == "given";
        return response;
      },
      [&](const v1::SubmitJobResponse& response) {
        if (response.plan().has_strategy()) {
          PrintPlan(response.plan());
        } else {
          fmt::print("job {} is managed, not planned\n", spec->job_id());
          for (const auto& reason : response.plan().why()) fmt::print("  {}\n", reason);
        }
        PrintLaunch(response.plan());
      });
  if (asked == kExitDone && !placed) {
    fmt::print(stderr, "weft: job \"{}\" is submitted without hosts: controller {} is older than this command and knows neither min_gpus nor "
               "max_gpus\n", spec->job_id(), options.controller.address);
    return kExitFailed;
  }
  if (asked != kExitDone || taken) return asked;
  fmt::print(stderr, "weft: job \"{}\" is submitted without its strategy: controller {} is older than this command and took no "
             "notice of it\n", spec->job_id(), options.controller.address);
  return kExitFailed;
}

int RunRelease(const OnlineOptions& options) {
  return Ask<v1::ReleaseJobResponse>(
      options,
      [&](ControllerClient& client) -> Result<v1::ReleaseJobResponse> {
        // Releasing is idempotent, so that hooks may repeat it; of a mistyped id a person wants to know.
        const auto known = client.ExplainJob(options.job);
        if (!known && known.error().code() == Code::kNotFound) {
          return Fail(Code::kNotFound, fmt::format("controller {} has no job \"{}\"", options.controller.address,
                                                   options.job));
        }
        return client.ReleaseJob(options.job);
      },
      [&](const v1::ReleaseJobResponse& response) {
        fmt::print("job {} is released\n", options.job);
        if (!response.warning().empty()) fmt::print(stderr, "weft: {}\n", response.warning());
      });
}

int RunReshard(const OnlineOptions& options) {
  const Result<v1::ReshardJobRequest> request = ReadReshard(options);
  if (!request) return Complain(request.error());
  return Ask<v1::ReshardJobResponse>(
      options, [&](ControllerClient& client) { return client.ReshardJob(*request); },
      [&](const v1::ReshardJobResponse& response) { fmt::print("{}", ReshardText(options.job, response.plan(), options.dry_run)); });
}

int RunJobs(const OnlineOptions& options) {
  return Ask<v1::ListJobsResponse>(
      options, [](ControllerClient& client) { return client.ListJobs(); },
      [](const v1::ListJobsResponse& response) {
        if (response.jobs_size() == 0) fmt::print("no jobs\n");
        for (const auto& job : response.jobs()) PrintJob(job);
      });
}

int RunExplain(const OnlineOptions& options) {
  return Ask<v1::ExplainJobResponse>(
      options, [&](ControllerClient& client) { return client.ExplainJob(options.job); },
      [](const v1::ExplainJobResponse& response) {
        fmt::print("{}", ExplainText(response));
      });
}

int RunTopology(const OnlineOptions& options) {
  return Ask<v1::GetTopologyResponse>(
      options, [](ControllerClient& client) { return client.GetTopology(); },
      [](const v1::GetTopologyResponse& response) {
        for (const auto& host : response.hosts()) {
          fmt::print("{:<16} {:<12} {}\n", host.host(), host.connected() ? "connected" : "lost",
                     fmt::join(host.addresses(), " "));
        }
        fmt::print("{} links\n", response.links_size());
      });
}

int RunLinks(const OnlineOptions& options) {
  return Ask<v1::GetTopologyResponse>(
      options, [](ControllerClient& client) { return client.GetTopology(); },
      [](const v1::GetTopologyResponse& response) {
        fmt::print("{:<16} {:<16} {:>14} {:>14} {:>14} {:>6}  jobs\n", "from", "to", "line rate", "available", "used",
                   "use");
        for (const auto& link : response.links()) {
          fmt::print("{:<16} {:<16} {:>14} {:>14} {:>14} {:>5.0f}%  {}\n", link.from(), link.to(),
                     FormatRate(BitsPerSecond(link.line_rate_bps())), FormatRate(BitsPerSecond(link.available_bps())),
                     FormatRate(BitsPerSecond(link.used_bps())), link.utilisation() * 100,
                     fmt::join(link.jobs(), " "));
        }
      });
}

}  // namespace weft::cli
