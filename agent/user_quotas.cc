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

bool UserQuotas::TakeFlow(uint32_t uid) {
  User& user = users_[uid];
  if (user.flows >= static_cast<size_t>(limits_.flows)) {
    DropIfNothing(uid);
    return false;
  }
  ++user.flows;
  return true;
}

void UserQuotas::ReturnFlow(uint32_t uid) {
  --users_[uid].flows;
  DropIfNothing(uid);
}

DestinationAnswer UserQuotas::TakeDestination(uint32_t uid, uint64_t flow, const std::string& place) {
  const auto known = probed_.find(flow);
  if (known != probed_.end() && known->second.uid != uid) return DestinationAnswer::kAnothersFlow;
  if (known != probed_.end() && known->second.place == place) return DestinationAnswer::kTaken;
  std::map<std::string, size_t>& places = users_[uid].places;
  // What is given back for it: the old place, if no other flow goes there.
  const size_t freed = known != probed_.end() && places[known->second.place] == 1 ? 1 : 0;
  if (!places.contains(place) && places.size() - freed >= static_cast<size_t>(limits_.destinations)) {
    DropIfNothing(uid);
    return DestinationAnswer::kTooMany;
  }
  ++places[place];  // before the old one goes, so that the user does not
  if (known != probed_.end()) ReturnDestination(uid, flow);
  probed_[flow] = {uid, place};
  return DestinationAnswer::kTaken;
}

bool UserQuotas::ReturnDestination(uint32_t uid, uint64_t flow) {
  const auto known = probed_.find(flow);
  if (known == probed_.end() || known->second.uid != uid) return false;
  std::map<std::string, size_t>& places = users_[uid].places;
  const auto place = places.find(known->second.place);
  if (--place->second == 0) places.erase(place);
  probed_.erase(known);
  DropIfNothing(uid);
  return true;
}

bool UserQuotas::IsProbedFor(uint32_t uid, uint64_t flow) const {
  const auto known = probed_.find(flow);
  return known != probed_.end() && known->second.uid == uid;
}

void UserQuotas::DropIfNothing(uint32_t uid) {
  const auto it = users_.find(uid);
  if (it == users_.end()) return;
  const User& user = it->second;
  if (user.segments == 0 && user.flows == 0 && user.places.empty()) users_.erase(it);
}

}  // namespace weft::agent
