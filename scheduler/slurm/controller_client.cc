#include "scheduler/slurm/controller_client.h"

#include <grpcpp/grpcpp.h>

#include "proto/controller.grpc.pb.h"
#include "proto/credentials.h"

namespace weft::slurm {
namespace {

using Stub = v1::ControllerService::Stub;
using Deadline = std::chrono::system_clock::time_point;

Deadline DeadlineOf(const HookConfig& config) {
  return std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::milliseconds>(config.timeout);
}

rpc::TlsFiles TlsOf(const HookConfig& config) {
  return {.certificate = config.tls_certificate, .key = config.tls_key, .authority = config.tls_authority};
}

Result<std::unique_ptr<Stub>> Connect(const HookConfig& config) {
  WEFT_ASSIGN_OR_RETURN(const auto credentials, rpc::MakeChannelCredentials(TlsOf(config)));
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // a proxy of slurmctld's environment is not meant for the cluster
  return v1::ControllerService::NewStub(grpc::CreateCustomChannel(config.controller, credentials, arguments));
}

Error ErrorOf(const HookConfig& config, const grpc::Status& status) {
  const bool unreachable = status.error_code() == grpc::UNAVAILABLE;
  return Error(static_cast<Code>(status.error_code()),
               "controller " + config.controller + ": " +
                   (unreachable ? rpc::ExplainNoConnection(TlsOf(config), status.error_message())
                                : status.error_message()));
}

v1::JobSpec SpecOf(const HookConfig& config, const HookJob& job) {
  v1::JobSpec spec;
  spec.set_job_id(job.id);
  spec.set_name(job.name);
  if (job.user) spec.set_user_id(*job.user);
  spec.set_model_config_json(job.model_json);
  spec.set_global_batch(job.batch);
  spec.set_sequence(job.sequence);
  spec.set_precision(config.precision);
  spec.set_gpus(static_cast<int64_t>(job.hosts.size()) * config.ranks_per_host);
  spec.set_ranks_per_host(config.ranks_per_host);
  for (const std::string& host : job.hosts) spec.add_hosts(host);
  spec.set_framework(job.framework.empty() ? config.framework : job.framework);
  if (spec.framework() == "weft-train") spec.set_precision("fp32");  // it trains in no other
  if (job.strategy.empty()) return spec;
  v1::GivenStrategy& given = *spec.mutable_given_strategy();
  given.set_source("--weft-plan=" + job.plan);
  for (const auto& [name, value] : job.strategy) {
    v1::StrategyValue* entry = given.add_values();
    entry->set_name(name);
    entry->set_value(value);
  }
  return spec;
}

grpc::Status Submit(Stub& stub, Deadline deadline, const v1::JobSpec& spec, v1::SubmitJobResponse& response) {
  grpc::ClientContext context;
  context.set_deadline(deadline);
  v1::SubmitJobRequest request;
  *request.mutable_spec() = spec;
  return stub.SubmitJob(&context, request, &response);
}

grpc::Status Release(Stub& stub, Deadline deadline, const std::string& job_id) {
  grpc::ClientContext context;
  context.set_deadline(deadline);
  v1::ReleaseJobRequest request;
  request.set_job_id(job_id);
  v1::ReleaseJobResponse response;
  return stub.ReleaseJob(&context, request, &response);
}

/// What the controller made of the job, for the log.
std::string Described(const v1::JobPlan& plan, const HookJob& job) {
  const std::string launch = " hosts=" + std::to_string(job.hosts.size()) +
                             " predicted_iteration_s=" + std::to_string(plan.predicted().iteration_s()) +
                             " variables=" + std::to_string(plan.environment_size());
  if (!plan.has_strategy()) {
    std::string why;
    for (const std::string& line : plan.why()) {
      if (line.starts_with("not planned: ")) why = ": " + line.substr(13);
    }
    return "managed, not planned" + why + launch;
  }
  const std::string text = plan.strategy().text().empty() ? "dp=" + std::to_string(plan.strategy().dp()) : plan.strategy().text();
  if (job.strategy.empty()) return "planned: " + text + launch;
  if (plan.origin() == "given") return "managed with its own strategy: " + plan.strategy().text() + launch;
  return "planned without its own strategy, of which this controller knows nothing: " + text + launch;
}

}  // namespace

Result<std::string> SubmitJob(const HookConfig& config, const HookJob& job) {
  const Deadline deadline = DeadlineOf(config);
  WEFT_ASSIGN_OR_RETURN(const auto stub, Connect(config));
  const v1::JobSpec spec = SpecOf(config, job);
  v1::SubmitJobResponse response;
  grpc::Status status = Submit(*stub, deadline, spec, response);
  if (status.error_code() == grpc::ALREADY_EXISTS) {
    status = Release(*stub, deadline, job.id);
    if (status.ok()) status = Submit(*stub, deadline, spec, response);
  }
  if (!status.ok()) return Fail(ErrorOf(config, status));
  return Described(response.plan(), job);
}

Status ReleaseJob(const HookConfig& config, const std::string& job_id) {
  WEFT_ASSIGN_OR_RETURN(const auto stub, Connect(config));
  const grpc::Status status = Release(*stub, DeadlineOf(config), job_id);
  if (!status.ok()) return Fail(ErrorOf(config, status));
  return Ok();
}

}  // namespace weft::slurm
