// Which links do not carry what is put on them: of those between switches, the ones
//   silent  that are crossed by lanes which go unanswered (flow_table.h), and by none that is answered or whose bytes arrive all the same:
//           acknowledgements go a way of their own;
//   lossy   that are crossed by lanes which send a hundredth of their segments again, by none that sends as much and does not, and
//           that are not full: a full link drops what does not fit.
// Each owner's lanes speak against a link for his own flows (link_monitor.h); anybody's speak for it. A bad link is planned with
// next to nothing, or with a quarter, until nothing bad was seen of it for `again_after`, twice as long each time up to 16: a port
// that flaps is left alone for longer and longer.
//
// What is kept: a link and owner from whose lanes nothing has spoken against it for an hour are forgotten, as the back-off would begin
// anew. Of one link at most kMostOwners owners are known: one more takes the place of him whose word is oldest among those for
// whom it is good again, and without such is not heard, since what two of so many say counts for all (link_monitor.h).
//
// Nobody tests a silent link: bytes on a lane of TCP that goes unanswered are not sent again elsewhere, so a test would be paid for
// by a job. What shows that it is back are the lanes themselves, which go on sending again, and new jobs.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "controller/fabric_view.h"
#include "controller/flow_table.h"
#include "controller/link_monitor.h"

namespace weft::controller {

/// A link, and whose lanes speak of it.
using LinkWitness = std::pair<LinkId, Owner>;

/// What speaks against a link.
struct LinkEvidence {
  size_t lanes = 0;
  std::string text;         ///< one of them, in words
};

/// `lives` names hosts whose agents speak: of the others the host may be what is silent. `slot`: the newest that was measured whole.
/// Complexity: linear in lanes times links of their paths, if any lane is silent.
std::map<LinkWitness, LinkEvidence> SilentEvidence(const FlowTable& table, const FabricView& fabric, const std::set<std::string>& lives,
                                              int64_t slot);
/// Over the two seconds up to `slot`. Complexity: linear in lanes times links of their paths.
std::map<LinkWitness, LinkEvidence> LossEvidence(const FlowTable& table, const FabricView& fabric, const LinkMonitor& monitor, int64_t slot);

class BadLinks {
 public:
  static constexpr size_t kMostOwners = LinkMonitor::kMostOwners;  ///< that are known of the same link

  struct Verdict {
    LinkId link;
    Owner owner = kNoOwner;
    bool bad = false;       ///< false: it counts as good again
    LinkEvidence evidence;
  };

  explicit BadLinks(Seconds again_after) : again_after_(again_after) {}

  /// What has changed with this evidence. Complexity: linear in links and owners that are known, and in kMostOwners for each new one.
  std::vector<Verdict> Take(const std::map<LinkWitness, LinkEvidence>& evidence, Seconds now);
  /// How many pairs of link and owner are known.
  size_t known() const { return links_.size(); }

 private:
  struct State {
    bool bad = false;
    double seen_s = -1e300; ///< when something last spoke against it
    int times = 0;          ///< that it was found bad, one after the other
  };

  /// Whether the link can have one more owner; somebody's place may be made free for him.
  bool MakeRoom(LinkId link);

  Seconds again_after_;
  std::map<LinkWitness, State> links_;
};

}  // namespace weft::controller
