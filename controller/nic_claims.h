// What the users of a host say that they have sent, held against what its NICs have sent.
//
// A telemetry segment is its process's own: it may claim any number of bytes. What all users of a host claim together can't be more than
// what its NICs sent, so that two windows in a row in which it is by a quarter (and a megabyte) tell of somebody who lies. That is who
// claims more than all of it by himself; where nobody does, all who claim a tenth and more. They are doubted for a minute, and as long as
// it goes on: their bytes count for them alone, not in what others' lanes are judged by (link_monitor.h), nor as load on links.
//
// Limits: hosts with RDMA devices, whose bytes interface counters may not have, are not checked; nor flows from addresses that are not
// the host's own. Who claims less than what his neighbours leave of the NICs' bytes is not found.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "controller/flow_table.h"

namespace weft::controller {

class NicClaims {
 public:
  static constexpr double kWindow = 2;      ///< seconds
  static constexpr double kDoubted = 60;    ///< seconds after the newest bad window
  static constexpr size_t kMostOwners = 64; ///< of a host; more are not looked at

  /// A user whose standing has changed.
  struct Verdict {
    Owner owner = kNoOwner;
    bool doubted = false;
    double claimed = 0, sent = 0;           ///< bytes of the window; of one who is believed again 0
  };

  /// Bytes since the last call: of the host's NICs, and by owner what his flows say. Requires: times that do not go back.
  /// Complexity: O(owners of the host).
  std::vector<Verdict> Take(const std::string& host, double now_s, double nic_bytes, const std::map<Owner, double>& claimed);
  bool Doubts(const std::string& host, Owner owner) const;
  /// The host is gone: who is doubted there is no more.
  void Forget(const std::string& host) { hosts_.erase(host); }

 private:
  struct Standing {
    double claimed = 0;       // in the window under way
    int bad = 0;              // windows in a row
    double until_s = -1;      // doubted; -1: not
  };
  struct Host {
    double begin_s = -1, sent = 0;
    std::map<Owner, Standing> owners;
  };

  static void Judge(Host& host, double now_s, std::vector<Verdict>& verdicts);

  std::map<std::string, Host> hosts_;
};

}  // namespace weft::controller
