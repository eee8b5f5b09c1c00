// Whether links honour traffic classes: a lane of a raised class that waited for a full link at the same time as lanes of later classes
// must have got more of it than a link that treats all alike gives.
//
//   got       what its class and earlier ones carried of what all carried while it waited
//   alike     lanes of its class and earlier ones, of all lanes with bytes: what a link that knows no classes gives them
//   declared  the share that the site declares for these classes, of all classes that were there; 75 % where it declares none
//
// A link whose last kLooks looks of a job gave less than half way from `alike` to `declared` in the mean does not honour its class.
// What lanes of later classes carried, not their backlog, is compared, and where there are several owners only that of hosts whose NICs
// count all that is sent, which bear it out (nic_claims.h); the backlog is the job's own word. So nobody can take a class from somebody
// else by what he says, and beside flows of others that no NIC counts nothing is found.
//
// The job's class is then withdrawn: its packets go in the default class for kHold, twice as long after each time, up to kLongestHold.
//
// Limits. Bursts shorter than a slot (0.2 s) show nothing; nor do many raised lanes beside few others, of which a link that
// treats all alike takes no less. Of RDMA flows it is known a message later.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "controller/link_monitor.h"

namespace weft::controller {

/// A link that does not honour the class of a job.
struct Inversion {
  std::string job;
  LinkId link;
  int32_t traffic_class = 0;
  double got = 0, declared = 0;   ///< shares of what the link carried
};

class ClassWatch {
 public:
  static constexpr size_t kLooks = 10;
  static constexpr double kLookLife = 25;     ///< seconds
  static constexpr double kSettle = 2;        ///< seconds from another class to when all packets carry it
  static constexpr double kHold = 60, kLongestHold = 3600;

  /// `shares`: of a full port, of each class, the one that is served first first; empty: not declared.
  ClassWatch(std::vector<int32_t> shares, double slot_s) : shares_(std::move(shares)), slot_s_(slot_s) {}

  /// Takes the slot that `monitor` has judged last. `class_of`: of a flow's packets, ascending from 0; nullopt: they do not count. `last` is
  /// the default class. Complexity: linear in lanes and links on their ways.
  void See(const LinkMonitor& monitor, const std::function<std::optional<int32_t>(const SendFlow&)>& class_of, int32_t last, double now_s);
  /// What has been found since the last call; each job once. What was seen of it is used up.
  std::vector<Inversion> Take();
  /// Some job's packets are marked otherwise from now on: what was seen before says nothing.
  void Changed(double now_s);

  /// The job's class is not to be used from now on. Returns for how long, in seconds.
  double Withdraw(const std::string& job, double now_s);
  bool IsWithdrawn(const std::string& job) const;
  /// Jobs whose class may be used again.
  std::vector<std::string> EndHolds(double now_s);
  void Forget(const std::string& job);

 private:
  struct ClassLoad {
    double carried = 0;          ///< bits per second
    double waiting = 0;          ///< likewise, of lanes that waited while they did
    int lanes = 0;
    double backlog = 0;          ///< share of the slot, of the lane that waited longest
  };
  using Loads = std::map<int32_t, ClassLoad>;   ///< by class, of lanes with bytes
  struct Seen {
    double time_s = 0;
    double got = 0, wanted = 0, declared = 0;
  };
  struct Hold {
    double until_s = 0;          ///< 0: over
    int times = 0;
  };
  /// What of the link the lane's class and earlier ones got while it waited; `time_s` below 0: the slot does not say.
  Seen Look(const LinkMonitor::LaneUse& use, int32_t own, const Loads& loads, double available, double now_s) const;
  double Declared(int32_t own, const Loads& loads) const;

  std::vector<int32_t> shares_;
  double slot_s_;
  double changed_s_ = -1e300;
  std::map<std::pair<LinkId, std::string>, std::deque<Seen>> looks_;   ///< by link and job; kLooks of each
  std::vector<Inversion> found_;
  std::map<std::string, Hold> holds_;
};

}  // namespace weft::controller
