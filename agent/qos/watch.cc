#include "agent/qos/watch.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <utility>

#include "agent/qos/driver_counters.h"
#include "common/clock.h"
#include "common/log.h"

namespace weft::agent {
namespace {

constexpr size_t kMostPorts = 64, kMostCommands = 8;
constexpr Seconds kKeepInterval{30};  // between two times that settings which are to stay are set again

const char* Scheduling(uint8_t algorithm) {
  switch (algorithm) {
    case IEEE_8021QAZ_TSA_STRICT: return "strict";
    case IEEE_8021QAZ_TSA_CB_SHAPER: return "cb-shaper";
    case IEEE_8021QAZ_TSA_ETS: return "ets";
    default: return "vendor";
  }
}

void PutDcb(const DcbState& dcb, v1::QosPort* out) {
  out->set_dcb(true);
  out->set_trust(dcb.TrustsDscp() ? "dscp" : "pcp");
  for (const DcbApp& app : dcb.apps) {
    if (app.selector == IEEE_8021QAZ_APP_SEL_DSCP) (*out->mutable_dscp_priority())[app.protocol] = app.priority;
  }
  for (int i = 0; i < kPriorities; ++i) {
    if (dcb.pfc && dcb.pfc->pfc_en >> i & 1) out->add_pfc(i);
    if (dcb.ets) {
      out->add_priority_class(dcb.ets->prio_tc[i]);
      out->add_share(dcb.ets->tc_tx_bw[i]);
      out->add_scheduling(Scheduling(dcb.ets->tc_tsa[i]));
    }
    if (dcb.buffers) {
      out->add_priority_buffer(dcb.buffers->prio2buffer[i]);
      out->add_buffer_bytes(dcb.buffers->buffer_size[i]);
    }
  }
}

v1::QosPort ToProto(const PortSettings& port) {
  v1::QosPort out;
  out.set_interface(port.interface);
  out.set_mtu(port.mtu);
  if (port.dcb) PutDcb(*port.dcb, &out);
  else if (!port.dcb_unreadable.empty()) out.add_unreadable(port.dcb_unreadable);
  for (const RdmaPort& rdma : port.rdma) {
    out.set_rdma_device(rdma.device);
    out.set_rdma_port(rdma.port);
    if (rdma.roce_tos) out.set_roce_tos(*rdma.roce_tos);
    else out.add_unreadable("roce-tos: " + rdma.roce_tos_unreadable);
    if (rdma.forced_class) out.set_forced_class(*rdma.forced_class);
    for (const std::string& gid : rdma.gids) out.add_gids(gid);
    out.mutable_counters()->insert(rdma.counters.begin(), rdma.counters.end());
  }
  out.mutable_counters()->insert(port.counters.begin(), port.counters.end());
  out.mutable_sent()->insert(port.sent.begin(), port.sent.end());
  return out;
}

QosWriters WritersTo(const QosRoots& roots, std::optional<DcbSocket>* dcb) {
  return {.dcb = [dcb](const std::string& interface, const DcbChange& change) -> Status {
            if (!*dcb) return Fail(Code::kFailedPrecondition, "no rtnetlink socket");
            return (*dcb)->Write(interface, change);
          },
          .roce_tos = [roots](const PortChange::Number& n) { return SetRoceTos(roots, n.device, n.port, n.value); },
          .forced_class = [roots](const PortChange::Number& n) { return SetForcedClass(roots, n.device, n.port, n.value); }};
}

/// What a report says, but for what counts on.
std::string WithoutCounters(v1::QosReport report) {
  for (v1::QosPort& port : *report.mutable_ports()) port.clear_counters(), port.clear_sent();
  for (v1::QosDrift& drift : *report.mutable_drifts()) {
    if (drift.setting() == "packets" || drift.setting() == "counters") drift.clear_is();
  }
  std::string text;
  google::protobuf::io::StringOutputStream stream(&text);
  google::protobuf::io::CodedOutputStream out(&stream);
  out.SetSerializationDeterministic(true);  // else two equal maps differ
  report.SerializeToCodedStream(&out);
  out.Trim();
  return text;
}

std::string LineOf(const v1::QosDrift& drift) {
  return fmt::format("{}: {}: {} -> {}", drift.interface(), drift.setting(), drift.is(), drift.expected());
}

}  // namespace

std::unique_ptr<QosWatch> QosWatch::Start(QosWatchOptions options, Handlers handlers) {
  return std::unique_ptr<QosWatch>(new QosWatch(std::move(options), std::move(handlers)));
}

QosWatch::QosWatch(QosWatchOptions options, Handlers handlers)
    : options_(std::move(options)), handlers_(std::move(handlers)),
        mender_(options_.record_path, WritersTo(options_.roots, &dcb_)) {
  if (Result<DcbSocket> socket = DcbSocket::Open()) dcb_ = std::move(*socket);
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

QosWatch::~QosWatch() = default;

Status QosWatch::Declare(v1::QosDeclaration declared) {
  WEFT_RETURN_IF_ERROR(CheckDeclaration(declared));
  const std::lock_guard lock(mutex_);
  declared_ = std::move(declared);
  wake_ = true;
  changed_.notify_all();
  return Ok();
}

void QosWatch::Command(const v1::QosCommand& command) {
  const std::lock_guard lock(mutex_);
  if (command.id() <= newest_command_ || commands_.size() >= kMostCommands) return;
  newest_command_ = command.id();
  commands_.push_back(command);
  wake_ = true;
  changed_.notify_all();
}

void QosWatch::SetInterfaces(std::vector<InterfaceInfo> interfaces) {
  const std::lock_guard lock(mutex_);
  interfaces_ = std::move(interfaces);
}

void QosWatch::ReportAgain() {
  const std::lock_guard lock(mutex_);
  again_ = wake_ = true;
  newest_command_ = 0;  // another controller counts for itself
  changed_.notify_all();
}

void QosWatch::Run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    changed_.wait_for(lock, stop, options_.interval, [&] { return wake_; });
    const bool asked = std::exchange(wake_, false);  // also where nothing is declared: or it would not wait again, and keep the lock
    if (stop.stop_requested() || !declared_) continue;
    if (std::exchange(again_, false)) told_.clear();
    const v1::QosDeclaration declared = *declared_;
    const std::vector<InterfaceInfo> interfaces = interfaces_;
    const std::vector<v1::QosCommand> commands = std::exchange(commands_, {});
    lock.unlock();
    for (const v1::QosCommand& command : commands) CarryOut(command, declared, ReadPorts(interfaces));
    if (!asked) SamplePackets(stop);
    Look(declared, interfaces);
    lock.lock();
  }
}

void QosWatch::SamplePackets(const std::stop_token& stop) {
  Result<SentDscpSampler> sampler = SentDscpSampler::Open();
  if (!sampler) {
    sampler_problem_ = "packets: " + sampler.error().message();
    return;
  }
  sampler_problem_.clear();
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, stop, options_.sampled, [] { return false; });
  }
  sampler->Read(handlers_.ports(), &sent_);
}

std::vector<PortSettings> QosWatch::ReadPorts(const std::vector<InterfaceInfo>& interfaces) {
  const std::vector<RdmaPort> rdma = ReadRdmaPorts(options_.roots);
  std::vector<PortSettings> ports;
  for (const InterfaceInfo& interface : interfaces) {
    if (ports.size() == kMostPorts) break;
    PortSettings& port = ports.emplace_back();
    port.interface = interface.name;
    port.addresses = interface.addresses;
    port.mtu = interface.mtu;
    if (dcb_) {
      Result<DcbState> dcb = dcb_->Read(interface.name);
      if (dcb) port.dcb = std::move(*dcb);
      else if (dcb.error().code() != Code::kUnimplemented) port.dcb_unreadable = "dcb: " + dcb.error().message();
    }
    std::ranges::copy_if(rdma, std::back_inserter(port.rdma), [&](const RdmaPort& r) { return r.interface == interface.name; });
    port.counters = ReadDriverCounters(interface.name);
    if (port.dcb && port.dcb->pfc) {
      for (int p = 0; p < kPriorities; ++p) {
        port.counters[fmt::format("pfc_requests_prio{}", p)] = static_cast<int64_t>(port.dcb->pfc->requests[p]);
        port.counters[fmt::format("pfc_indications_prio{}", p)] = static_cast<int64_t>(port.dcb->pfc->indications[p]);
      }
    }
    if (const auto sent = sent_.find(interface.name); sent != sent_.end()) port.sent = sent->second;
  }
  return ports;
}

/// Packets lost in a lossless priority, and pauses of one that is not, since the watch began.
void QosWatch::NoteCounters(const v1::QosDeclaration& declared, const std::vector<PortSettings>& ports) {
  std::set<int> lossless, queued;
  for (const v1::QosClass& entry : declared.classes()) {
    if (entry.priority() >= 0) queued.insert(entry.priority());
    if (entry.lossless()) lossless.insert(entry.priority());
  }
  if (queued.empty()) return;
  for (const PortSettings& port : ports) {
    const bool first = !counters_.contains(port.interface);
    auto& known = counters_[port.interface];
    for (const auto& [name, value] : port.counters) {
      const int64_t grown = first ? 0 : value - std::exchange(known[name], value);
      if (first) known[name] = value;
      const int priority = PriorityOf(name);
      if (grown <= 0 || priority < 0) continue;
      const bool lost = name.find("discard") != std::string::npos && lossless.contains(priority);
      const bool paused = (name.find("pause") != std::string::npos || name.starts_with("pfc_")) && !lossless.contains(priority);
      if (lost || paused) lost_[port.interface][name] += grown;
    }
  }
}

v1::QosReport QosWatch::MakeReport(const v1::QosDeclaration& declared, const std::vector<PortSettings>& ports) {
  v1::QosReport report;
  for (const PortSettings& port : ports) {
    v1::QosPort* out = report.add_ports();
    *out = ToProto(port);
    if (!sampler_problem_.empty()) out->add_unreadable(sampler_problem_);
    for (v1::QosDrift& drift : FindDrifts(declared, port)) *report.add_drifts() = std::move(drift);
    for (const auto& [name, count] : lost_[port.interface]) {
      v1::QosDrift* drift = report.add_drifts();
      drift->set_interface(port.interface);
      drift->set_setting("counters");
      drift->set_is(fmt::format("{} grew by {}", name, count));
      drift->set_expected(name.find("discard") != std::string::npos
                          ? "nothing lost in a lossless priority" : "no pauses of a priority that is not lossless");
    }
  }
  for (v1::QosRewrite& rewrite : handlers_.rewrites()) *report.add_rewrites() = std::move(rewrite);
  if (answer_.id() != 0) *report.mutable_answer() = answer_;
  report.set_may_apply(options_.may_apply);
  report.set_kept(mender_.has_record());
  return report;
}

void QosWatch::Look(const v1::QosDeclaration& declared, const std::vector<InterfaceInfo>& interfaces) {
  const Seconds now = SystemClock().Now();
  std::vector<PortSettings> ports = ReadPorts(interfaces);
  KeepUp(declared, ports, now);
  NoteCounters(declared, ports);
  v1::QosReport report = MakeReport(declared, ports);
  std::string said = WithoutCounters(report);
  if (said == told_ && now < told_at_ + options_.resend) return;
  if (said != told_) {
    for (const v1::QosDrift& drift : report.drifts()) {
      LogWarn("agent", "QoS setting is not as declared",
              {{"interface", drift.interface()}, {"setting", drift.setting()}, {"is", drift.is()},
                                                          {"expected", drift.expected()}});
    }
  }
  told_ = std::move(said);
  told_at_ = now;
  handlers_.report(std::move(report));
}

/// Once applied, settings are set again when something else has changed them: a driver that was loaded anew, a person.
void QosWatch::KeepUp(const v1::QosDeclaration& declared, const std::vector<PortSettings>& ports, Seconds now) {
  if (!options_.may_apply || !mender_.has_record() || now < kept_at_ + kKeepInterval) return;
  for (const PortSettings& port : ports) {
    const PortChange change = MendingChange(declared, port);
    if (change.empty()) continue;
    kept_at_ = now;
    const Status status = mender_.Apply(port, change);
    LogWarn("agent", status ? "QoS settings that had changed are set again" : "QoS settings that had changed can't be set again",
            {{"interface", port.interface}, {"error", status ? "" : status.error().message()}});
  }
}

void QosWatch::ApplyAll(const v1::QosDeclaration& declared, const std::vector<PortSettings>& ports) {
  for (const PortSettings& port : ports) {
    const std::vector<v1::QosDrift> drifts = FindDrifts(declared, port);
    const Status status = mender_.Apply(port, MendingChange(declared, port));
    if (!status) {
      answer_.set_error(fmt::format("{}{}{}: {}", answer_.error(), answer_.error().empty() ? "" : "; ", port.interface,
                                    status.error().message()));
      continue;
    }
    for (const v1::QosDrift& drift : drifts) {
      if (drift.mendable()) answer_.add_done(LineOf(drift));
    }
  }
}

void QosWatch::CarryOut(const v1::QosCommand& command, const v1::QosDeclaration& declared, const std::vector<PortSettings>& ports) {
  answer_.Clear();
  answer_.set_id(command.id());
  told_.clear();
  const bool sets = command.action() == v1::QOS_ACTION_APPLY || command.action() == v1::QOS_ACTION_REVERT;
  if (sets && !options_.may_apply) {
    answer_.set_error("this host's agent may not set anything: expected qos: apply in its configuration");
  } else if (command.action() == v1::QOS_ACTION_APPLY) {
    ApplyAll(declared, ports);
  } else if (command.action() == v1::QOS_ACTION_REVERT) {
    std::vector<std::string> done;
    for (const PortSettings& port : ports) {
      if (const Status status =
          mender_.Revert(port, &done); !status) answer_.set_error(port.interface + ": " + status.error().message());
    }
    for (std::string& line : done) answer_.add_done(std::move(line));
  } else if (command.action() == v1::QOS_ACTION_DRY_RUN) {
    for (const PortSettings& port : ports) {
      for (const v1::QosDrift& drift : FindDrifts(declared, port)) {
        if (drift.mendable()) answer_.add_done(LineOf(drift));
      }
    }
    if (!mender_.problem().empty()) answer_.set_error(mender_.problem());
  } else {
    answer_.set_error("a command that this agent does not know");
  }
  LogInfo("agent", "QoS command", {{"action", v1::QosAction_Name(command.action())}, {"lines", answer_.done_size()},
                                   {"error", answer_.error()}});
}

}  // namespace weft::agent
