// The thread that looks after this host's QoS settings: reads what every data interface has, compares it with what the site
// declares,
// tells the controller, and carries out its commands. Reads every 2 s once there is a declaration; sets only where the
// configuration says `qos: apply`.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "agent/interfaces.h"
#include "agent/qos/mender.h"
#include "agent/qos/sent_dscp.h"
#include "common/units.h"
#include "proto/qos.pb.h"

namespace weft::agent {

struct QosWatchOptions {
  QosRoots roots;
  std::string record_path;               ///< of what was there before the first change
  bool may_apply = false;
  Seconds interval{2};                   ///< between two looks
  Seconds sampled{0.1};                  ///< part of it in which packets are sampled
  Seconds resend{10};                    ///< a report that says nothing new but counters is sent so often
};

class QosWatch {
 public:
  struct Handlers {
    std::function<void(v1::QosReport)> report;                   ///< on the watch's thread, with no lock held
    std::function<std::vector<v1::QosRewrite>()> rewrites;       ///< that probes have found
    std::function<std::set<uint16_t>()> ports;                   ///< source ports of flows over TCP
  };

  static std::unique_ptr<QosWatch> Start(QosWatchOptions options, Handlers handlers);
  ~QosWatch();

  // Threads: any.
  /// What the site declares; a report follows. Errors: as CheckDeclaration, and what was declared before then stands.
  [[nodiscard]] Status Declare(v1::QosDeclaration declared);
  /// Carried out on the watch's thread; the answer comes with the next report. One that was carried out already is ignored.
  void Command(const v1::QosCommand& command);
  void SetInterfaces(std::vector<InterfaceInfo> interfaces);
  /// A new session: what was reported is to be reported again.
  void ReportAgain();

 private:
  QosWatch(QosWatchOptions options, Handlers handlers);
  void Run(const std::stop_token& stop);
  void Look(const v1::QosDeclaration& declared, const std::vector<InterfaceInfo>& interfaces);
  std::vector<PortSettings> ReadPorts(const std::vector<InterfaceInfo>& interfaces);
  v1::QosReport MakeReport(const v1::QosDeclaration& declared, const std::vector<PortSettings>& ports);
  void NoteCounters(const v1::QosDeclaration& declared, const std::vector<PortSettings>& ports);
  void CarryOut(const v1::QosCommand& command, const v1::QosDeclaration& declared, const std::vector<PortSettings>& ports);
  void ApplyAll(const v1::QosDeclaration& declared, const std::vector<PortSettings>& ports);
  void KeepUp(const v1::QosDeclaration& declared, const std::vector<PortSettings>& ports, Seconds now);
  void SamplePackets(const std::stop_token& stop);

  const QosWatchOptions options_;
  const Handlers handlers_;
  std::optional<DcbSocket> dcb_;                       // the thread's alone, with what follows
  QosMender mender_;
  v1::QosAnswer answer_;
  SentDscp sent_;
  std::string sampler_problem_;
  std::map<std::string, std::map<std::string, int64_t>> counters_;  // by interface, as last read
  std::map<std::string, std::map<std::string, int64_t>> lost_;      // drops and pauses since the watch began that should not be
  std::string told_;                                   // the last report, without counters
  Seconds told_at_{-1e9}, kept_at_{-1e9};

  std::mutex mutex_;                                   // guards what follows
  std::condition_variable_any changed_;
  std::optional<v1::QosDeclaration> declared_;
  std::vector<InterfaceInfo> interfaces_;
  std::vector<v1::QosCommand> commands_;
  int64_t newest_command_ = 0;
  bool wake_ = false, again_ = false;

  std::jthread thread_;                                // last: uses all of the above
};

}  // namespace weft::agent
