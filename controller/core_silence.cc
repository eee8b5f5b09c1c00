// What the core makes of paths that do not answer and of what the plugins' watchdogs find: lanes lose their weight by
// flow_table.h and flow_planner.h, links by bad_links.h; here it is put into words.
#include <fmt/format.h>

#include <algorithm>

#include "common/parse_units.h"
#include "controller/core.h"

namespace weft::controller {
namespace {

constexpr int kLinesAMinute = 6;          // about one job's troubles
constexpr double kMinute = 60;
constexpr double kProbedAgain = 10;       // seconds between two times that the flows over a link are probed for its sake
constexpr double kLossyShare = 0.25;      // of the line rate, that a lossy link is planned with
constexpr size_t kMostTroubled = 10'000;  // jobs

std::string WayOf(const SendFlow& flow, int32_t port) {
  const auto probed = flow.probed.find(port);
  if (probed == flow.probed.end() || probed->second.hops.empty()) return "a path not known";
  return fmt::format("{}", fmt::join(probed->second.hops, ","));
}

}  // namespace

/// A decision whose number a tenant's processes can drive up.
void Core::DecideTrouble(const std::string& kind, const std::string& job_id, const std::string& reason) {
  if (!trouble_.contains(job_id) && trouble_.size() >= kMostTroubled) trouble_.clear();
  TroubleLines& lines = trouble_[job_id];
  std::string left_out;
  if (now_s_ - lines.since_s >= kMinute) {
    if (lines.left_out > 0) left_out = fmt::format("; {} lines like this were left out", lines.left_out);
    lines = {.since_s = now_s_};
  }
  if (++lines.lines > kLinesAMinute) {
    ++lines.left_out;
    return;
  }
  Decide(kind, job_id, reason + left_out);
}

void Core::NameSilences() {
  struct Group {
    size_t lanes = 0, arriving = 0;
    double silent_s = 0;
    std::string flow;
  };
  std::map<std::pair<std::string, std::string>, Group> groups;  // by job and way
  for (const Silence& silence : table_.TakeSilences()) {
    const SendFlow* flow = table_.Find(silence.flow);
    if (flow == nullptr) continue;
    Group& group = groups[{flow->identity.job_id(), WayOf(*flow, silence.port)}];
    ++group.lanes;
    const auto lane = flow->lanes.find(silence.port);
    group.arriving += lane != flow->lanes.end() && lane->second.arrives();
    group.silent_s = std::max(group.silent_s, silence.silent_s);
    if (group.flow.empty()) {
      group.flow = fmt::format("flow {:x}, {} port {} to {}", flow->id, flow->identity.local_address(), silence.port,
                               flow->identity.peer_address());
    }
  }
  if (!groups.empty()) ++capacity_changes_;   // no plan in the making knows it
  for (const auto& [key, group] : groups) {
    const auto& [job_id, way] = key;
    DecideTrouble("silent", job_id,
                  fmt::format("{} ({}{}) over {}: sent again for {}, and nothing was acknowledged{}; other paths carry its bytes until it "
                              "answers", group.lanes == 1 ? "a lane" : fmt::format("{} lanes", group.lanes), group.flow,
                              group.lanes == 1 ? "" : " for one", way, FormatDuration(Seconds(group.silent_s)),
                              group.arriving < group.lanes ? "" : ", though what is sent arrives"));
    TouchPaths(fmt::format("job {} gets no answer over {}", job_id, way));
  }
}

void Core::NameBadLinks() {
  std::set<std::string> lives;
  for (const auto& [name, host] : hosts_) {
    if (host.connected) lives.insert(name);
  }
  const int64_t slot = LastSecond().last;
  std::vector<CapacityChange> changes;
  const auto take = [&](BadLinks& links, const std::map<LinkWitness, LinkEvidence>& evidence, Badness badness, double share, const char* what) {
    for (const BadLinks::Verdict& verdict : links.Take(evidence, Seconds(now_s_))) {
      const std::string why = verdict.bad ? fmt::format("{}: {} lanes over it, {} among them", what, verdict.evidence.lanes, verdict.evidence.text)
                                          : std::string("has given no more cause for complaint: as before");
      changes.push_back(monitor_.Hold(verdict.link, verdict.owner, badness, verdict.bad ? share : 1, why));
    }
  };
  take(silent_links_, SilentEvidence(table_, fabric_, lives, slot), Badness::kSilent, 0, "answers nobody");
  if (options_.monitor.lossy_links && slot != loss_slot_) {
    loss_slot_ = slot;
    take(lossy_links_, LossEvidence(table_, fabric_, monitor_, slot), Badness::kLossy, kLossyShare, "loses segments, and is not full");
  }
  std::set<LinkId> doubtful;
  for (const CapacityChange& change : changes) doubtful.insert(change.link);
  ProbeAgain(doubtful);
  TakeChanges(changes);
}

/// What one flow's probes have found out may be so for all that go the same way.
void Core::ProbeAgain(const std::set<LinkId>& links) {
  std::set<LinkId> due;
  for (const LinkId link : links) {
    const auto [last, added] = probed_again_s_.try_emplace(link, now_s_);
    if (!added && now_s_ - last->second < kProbedAgain) continue;
    last->second = now_s_;
    due.insert(link);
  }
  if (due.empty()) return;
  for (const auto& [host, flows] : table_.CrossedBy(due)) {
    PushProbeAgain push{.host = host, .again = {}};
    for (const uint64_t flow : flows) push.again.add_flows(flow);
    actions_.push_back(std::move(push));
  }
}

/// Only a sender's stall for want of acknowledgements says something of a path; the others name a rank.
void Core::NameStall(const std::string& host, const v1::Stall& stall) {
  const SendFlow* flow = table_.Find(stall.flow());
  const std::string& job_id = flow != nullptr ? flow->identity.job_id() : stall.job_id();
  if (jobs_.Find(job_id) == nullptr) return;
  if (stall.send() && (!stall.begins() || stall.cause() == "no acknowledgement")) {
    Touch(table_.Stall(host, stall.flow(), stall.begins(), stall.stalled_s(), now_s_), "a connection on host " + host + " stands still");
  }
  if (!stall.begins()) return;
  DecideTrouble("stall", job_id,
                fmt::format("rank {} on {} {} rank {}: the connection stands still for {:.0f} s: {}", stall.rank(), host,
                            stall.send() ? "sends to" : "receives from", stall.peer_rank(), stall.stalled_s(),
                            stall.cause().substr(0, 100)));
}

}  // namespace weft::controller
