#include "cli/controller_client.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <charconv>

#include "proto/controller.grpc.pb.h"

namespace weft::cli {
namespace {

constexpr int kMostBytes = 256 << 20;  // of one answer: all jobs or links of a large cluster are more than gRPC's 4 MiB

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // a proxy of the environment leads out of the cluster
  arguments.SetMaxReceiveMessageSize(kMostBytes);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

/// HOST:PORT, and nothing else that gRPC would try to resolve for seconds.
Status CheckAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = 0;
  const char* const end = address.data() + address.size();
  const bool split = colon != address.npos && colon > 0;
  const auto [read, error] = std::from_chars(split ? address.data() + colon + 1 : end, end, port);
  const bool lone_ipv6 = split && address.find(':') != colon && address[colon - 1] != ']';
  if (error == std::errc() && read == end && !lone_ipv6 && port > 0 && port <= 65535) return Ok();
  return Fail(Code::kInvalidArgument, fmt::format("--controller \"{}\": expected HOST:PORT", address));
}

}  // namespace

class ControllerClient::Impl {
 public:
  Impl(ControllerAddress address, const std::shared_ptr<grpc::ChannelCredentials>& credentials)
      : address_(std::move(address)),
        stub_(v1::ControllerService::NewStub(MakeChannel(address_.address, credentials))) {}

  template <typename Request, typename Response>
  Result<Response> Call(const char* name,
                        grpc::Status (v1::ControllerService::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                            Response*),
                        const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::milliseconds(static_cast<int64_t>(address_.timeout.count() * 1e3)));
    Response response;
    const grpc::Status status = (stub_.get()->*method)(&context, request, &response);
    if (status.ok()) return response;
    const auto code = status.error_code() == grpc::StatusCode::UNKNOWN ? Code::kInternal
                                                                       : static_cast<Code>(status.error_code());
    const bool unreachable = code == Code::kUnavailable || code == Code::kDeadlineExceeded;
    return Fail(code, fmt::format("{} at controller {}: {}", name, address_.address,
                                  unreachable ? "cannot be reached: " + rpc::ExplainNoConnection(address_.tls,
                                                                                                status.error_message())
                                              : status.error_message()));
  }

 private:
  ControllerAddress address_;
  std::unique_ptr<v1::ControllerService::Stub> stub_;
};

ControllerClient::ControllerClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ControllerClient::~ControllerClient() = default;

Result<std::unique_ptr<ControllerClient>> ControllerClient::Connect(const ControllerAddress& address) {
  WEFT_RETURN_IF_ERROR(CheckAddress(address.address));
  WEFT_ASSIGN_OR_RETURN(const auto credentials, rpc::MakeChannelCredentials(address.tls));
  return std::unique_ptr<ControllerClient>(new ControllerClient(std::make_unique<Impl>(address, credentials)));
}

using Stub = v1::ControllerService::Stub;

Result<v1::SubmitJobResponse> ControllerClient::SubmitJob(const v1::JobSpec& spec) {
  v1::SubmitJobRequest request;
  *request.mutable_spec() = spec;
  return impl_->Call("submit job", &Stub::SubmitJob, request);
}

Result<v1::PlanJobResponse> ControllerClient::PlanJob(const v1::JobSpec& spec) {
  v1::PlanJobRequest request;
  *request.mutable_spec() = spec;
  return impl_->Call("plan job", &Stub::PlanJob, request);
}

Result<v1::ReleaseJobResponse> ControllerClient::ReleaseJob(const std::string& job_id) {
  v1::ReleaseJobRequest request;
  request.set_job_id(job_id);
  return impl_->Call("release job", &Stub::ReleaseJob, request);
}

Result<v1::ReshardJobResponse> ControllerClient::ReshardJob(const v1::ReshardJobRequest& request) {
  return impl_->Call("reshard job", &Stub::ReshardJob, request);
}

Result<v1::ListJobsResponse> ControllerClient::ListJobs() {
  return impl_->Call("list jobs", &Stub::ListJobs, v1::ListJobsRequest());
}

Result<v1::ExplainJobResponse> ControllerClient::ExplainJob(const std::string& job_id) {
  v1::ExplainJobRequest request;
  request.set_job_id(job_id);
  return impl_->Call("explain job", &Stub::ExplainJob, request);
}

Result<v1::GetTopologyResponse> ControllerClient::GetTopology() {
  return impl_->Call("get topology", &Stub::GetTopology, v1::GetTopologyRequest());
}

Result<v1::ListDecisionsResponse> ControllerClient::ListDecisions() {
  return impl_->Call("list decisions", &Stub::ListDecisions, v1::ListDecisionsRequest());
}

Result<v1::SetModeResponse> ControllerClient::SetMode(v1::Mode mode) {
  v1::SetModeRequest request;
  request.set_mode(mode);
  return impl_->Call("set mode", &Stub::SetMode, request);
}

Result<v1::GetQosResponse> ControllerClient::GetQos() { return impl_->Call("get QoS", &Stub::GetQos, v1::GetQosRequest()); }

Result<v1::ChangeQosResponse> ControllerClient::ChangeQos(const v1::ChangeQosRequest& request) {
  return impl_->Call("change QoS", &Stub::ChangeQos, request);
}

}  // namespace weft::cli
