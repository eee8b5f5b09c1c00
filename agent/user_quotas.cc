#include "agent/user_quotas.h"

#include <fmt/format.h>

namespace weft::agent {

Status UserQuotas::TakeSegment(uint32_t uid, size_t bytes) {
  User& user = users_[uid];
  const size_t most = static_cast<size_t>(limits_.memory_mib) << 20;
  if (user.segments >= static_cast<size_t>(limits_.segments) || user.bytes > most || bytes > most - user.bytes) {
    const Error error(Code::kResourceExhausted,
                      fmt::format("uid {} has {} telemetry segments of {} bytes together and brings one of {} bytes, expected "
                                  "at most {} of {} bytes together (quotas: in agent.yaml)", uid, user.segments, user.bytes, bytes,
                                  limits_.segments, most));
    DropIfNothing(uid);
    return Fail(error);
  }
  ++user.segments;
  user.bytes += bytes;
  return Ok();
}

void UserQuotas::ReturnSegment(uint32_t uid, size_t bytes) {
  User& user = users_[uid];
  --user.segments;
  user.bytes -= bytes;
  DropIfNothing(uid);
}

FlowAnswer UserQuotas::TakeFlow(uint32_t uid, uint64_t flow) {
  const auto known = flows_.find(flow);
  if (known != flows_.end() && known->second.uid != uid) return FlowAnswer::kAnothersFlow;
  User& user = users_[uid];
  if (user.flows >= static_cast<size_t>(limits_.flows)) {
    DropIfNothing(uid);
    return FlowAnswer::kTooMany;
  }
  ++user.flows;
  flows_[flow].uid = uid;
  ++flows_[flow].open;
  return FlowAnswer::kTaken;
}

void UserQuotas::ReturnFlow(uint32_t uid, uint64_t flow) {
  --users_[uid].flows;
  const auto known = flows_.find(flow);
  if (--known->second.open == 0) flows_.erase(known);
  DropIfNothing(uid);
}

bool UserQuotas::TakeDestination(uint32_t uid, uint64_t flow, const std::string& place) {
  const auto known = probed_.find(flow);
  if (known != probed_.end() && known->second == place) return true;
  std::map<std::string, size_t>& places = users_[uid].places;
  // What is given back for it: the old place, if no other flow goes there.
  const size_t freed = known != probed_.end() && places[known->second] == 1 ? 1 : 0;
  if (!places.contains(place) && places.size() - freed >= static_cast<size_t>(limits_.destinations)) {
    DropIfNothing(uid);
    return false;
  }
  ++places[place];  // before the old one goes, so that the user does not
  if (known != probed_.end()) ReturnDestination(uid, flow);
  probed_[flow] = place;
  return true;
}

bool UserQuotas::ReturnDestination(uint32_t uid, uint64_t flow) {
  const auto known = probed_.find(flow);
  if (known == probed_.end()) return false;
  std::map<std::string, size_t>& places = users_[uid].places;
  const auto place = places.find(known->second);
  if (--place->second == 0) places.erase(place);
  probed_.erase(known);
  DropIfNothing(uid);
  return true;
}

void UserQuotas::DropIfNothing(uint32_t uid) {
  const auto it = users_.find(uid);
  if (it == users_.end()) return;
  const User& user = it->second;
  if (user.segments == 0 && user.flows == 0 && user.places.empty()) users_.erase(it);
}

}  // namespace weft::agent
