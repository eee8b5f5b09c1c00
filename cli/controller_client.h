// The command line's side of the controller's API: one blocking call per method, each with a deadline, each error a
// line that names the address.
#pragma once

#include <memory>
#include <string>

#include "common/result.h"
#include "common/units.h"
#include "proto/controller.pb.h"
#include "proto/credentials.h"

namespace weft::cli {

/// Where the controller is and how to talk to it.
struct ControllerAddress {
  std::string address = "127.0.0.1:7070";
  rpc::TlsFiles tls;
  Seconds timeout{3};
};

/// Blocking calls. Errors: the controller's own code and text; kUnavailable when it cannot be reached within the timeout.
class ControllerClient {
 public:
  /// Calls nobody yet. Errors: kInvalidArgument for an address that is not HOST:PORT; as rpc::MakeChannelCredentials.
  [[nodiscard]] static Result<std::unique_ptr<ControllerClient>> Connect(const ControllerAddress& address);
  ~ControllerClient();

  [[nodiscard]] Result<v1::SubmitJobResponse> SubmitJob(const v1::JobSpec& spec);
  [[nodiscard]] Result<v1::PlanJobResponse> PlanJob(const v1::JobSpec& spec);
  /// Ends a job; one that the controller does not know is no error.
  [[nodiscard]] Result<v1::ReleaseJobResponse> ReleaseJob(const std::string& job_id);
  [[nodiscard]] Result<v1::ReshardJobResponse> ReshardJob(const v1::ReshardJobRequest& request);
  [[nodiscard]] Result<v1::ListJobsResponse> ListJobs();
  [[nodiscard]] Result<v1::ExplainJobResponse> ExplainJob(const std::string& job_id);
  [[nodiscard]] Result<v1::GetTopologyResponse> GetTopology();
  [[nodiscard]] Result<v1::ListDecisionsResponse> ListDecisions();
  [[nodiscard]] Result<v1::SetModeResponse> SetMode(v1::Mode mode);
  [[nodiscard]] Result<v1::GetQosResponse> GetQos();
  [[nodiscard]] Result<v1::ChangeQosResponse> ChangeQos(const v1::ChangeQosRequest& request);

 private:
  class Impl;
  explicit ControllerClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::cli
