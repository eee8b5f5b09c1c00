#include "controller/events.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

namespace weft::controller {
namespace {

void Append(const google::protobuf::MessageLite& message, std::string& out) {
  google::protobuf::io::StringOutputStream stream(&out);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);  // else the order of map entries depends on their addresses
  coded.WriteVarint64(message.ByteSizeLong());
  message.SerializeToCodedStream(&coded);
}

struct Writer {
  std::string& out;
  void operator()(const PushPolicy& action) const {
    out += "policy " + action.host + "\n";
    Append(action.policy, out);
  }
  void operator()(const PushLaunch& action) const {
    out += "launch " + action.host + "\n";
    Append(action.launch, out);
  }
  void operator()(const PushEnded& action) const {
    out += "ended " + action.host + "\n";
    Append(action.ended, out);
  }
  void operator()(const PushProbeAgain& action) const {
    out += "probe again " + action.host + "\n";
    Append(action.again, out);
  }
  void operator()(const Record& action) const {
    out += "record\n";
    Append(action.decision, out);
  }
  void operator()(const KeepEpoch& action) const {
    out += "epoch " + action.job_id + " " + std::to_string(action.epoch) + "\n";
  }
  void operator()(const ForgetEpoch& action) const { out += "forget " + action.job_id + "\n"; }
  void operator()(const KeepStarted& action) const { out += "started " + action.job_id + "\n"; }
  void operator()(const PlanJobs& action) const { out += "plan jobs " + std::to_string(action.digest) + "\n"; }
  void operator()(const PlanPaths& action) const {
    out += "plan paths " + std::to_string(action.number) + " of " + std::to_string(action.problem->flows.size()) + " flows\n";
  }
  void operator()(const AdviseRestart& action) const { out += "advise " + action.spec.job_id() + " after " + action.looked_at + "\n"; }
  void operator()(const KeepPlan& action) const {
    out += "keep plan " + action.job_id + "\n";
    Append(action.plan, out);
  }
  void operator()(const KeepReleased& action) const { out += "released " + action.job_id + "\n"; }
};

}  // namespace

std::string SerializeActions(const std::vector<Action>& actions) {
  std::string out;
  for (const Action& action : actions) std::visit(Writer{out}, action);
  return out;
}

}  // namespace weft::controller
