#include "testbed/fabric.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "common/log.h"
#include "testbed/bring_up.h"
#include "testbed/net_namespace.h"

namespace weft::testbed {
namespace {

/// Requires: the store's lock. A fabric is stale when its owner is gone, or when nobody owns it and nothing of it exists.
std::vector<std::string> CleanStaleLocked(const StateStore& store, std::span<const FabricState> states) {
  std::vector<std::string> removed;
  for (const FabricState& state : states) {
    if (state.owner) {
      if (IsAlive(*state.owner)) continue;
    } else {
      const auto plan = FabricPlan::Make(state.options, state.slot);
      if (!plan || NamespaceExists(plan->hosts.front().netns)) continue;
    }
    if (const Status down = TearDown(store, state); !down) {
      LogWarn("testbed", "stale fabric stays", {{"fabric", state.options.id}, {"error", down.error().message()}});
      continue;
    }
    removed.push_back(state.options.id);
  }
  return removed;
}

bool Contains(std::span<const FabricState> states, std::string_view id) {
  return std::any_of(states.begin(), states.end(), [&](const FabricState& state) { return state.options.id == id; });
}

/// "p<pid>", and "p<pid>n2" and so on for the further fabrics of one process.
std::string DefaultId(std::span<const FabricState> states) {
  std::string id = fmt::format("p{}", ::getpid());
  for (int n = 2; Contains(states, id); ++n) id = fmt::format("p{}n{}", ::getpid(), n);
  return id;
}

/// Cleans up, then reserves id and management subnet by writing the state file.
Result<std::pair<FabricPlan, FabricState>> Reserve(const StateStore& store, FabricOptions options) {
  WEFT_ASSIGN_OR_RETURN(const UniqueFd lock, store.Lock());
  WEFT_ASSIGN_OR_RETURN(const std::vector<FabricState> before, store.List());
  for (const std::string& id : CleanStaleLocked(store, before)) {
    LogInfo("testbed", "removed a fabric whose owner is gone", {{"fabric", id}});
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<FabricState> states, store.List());
  if (options.id.empty()) options.id = DefaultId(states);
  if (Contains(states, options.id)) {
    return Fail(Code::kAlreadyExists, fmt::format("fabric \"{}\" exists already; choose another id, or remove it with "
                                                  "\"weft-testbed down {}\"", options.id, options.id));
  }
  std::vector<int> taken;
  for (const FabricState& state : states) taken.push_back(state.slot);
  WEFT_ASSIGN_OR_RETURN(const int slot, PickSlot(taken));
  WEFT_ASSIGN_OR_RETURN(FabricPlan plan, FabricPlan::Make(options, slot));
  WEFT_ASSIGN_OR_RETURN(const Owner self, Self());
  FabricState state{.options = options, .slot = slot, .owner = self};
  WEFT_RETURN_IF_ERROR(store.Write(state));
  return std::pair(std::move(plan), std::move(state));
}

}  // namespace

Fabric::Fabric(FabricPlan plan, FabricState state)
    : state_(std::move(state)), made_by_(::getpid()), plan_(std::move(plan)), cable_states_(plan_.cables.size()) {}

Result<std::unique_ptr<Fabric>> Fabric::Create(const FabricOptions& options) {
  const StateStore store;
  FabricOptions checked = options;
  if (checked.id.empty()) checked.id = "default";
  if (auto plan = FabricPlan::Make(checked, kFirstSlot); !plan) return Fail(plan.error());  // before touching anything
  WEFT_ASSIGN_OR_RETURN(auto reserved, Reserve(store, options));
  std::unique_ptr<Fabric> fabric(new Fabric(std::move(reserved.first), std::move(reserved.second)));
  fabric->owned_ = true;
  WEFT_ASSIGN_OR_RETURN(fabric->reaper_, Reaper::Start(store, fabric->state_));
  if (Status up = BringUp(fabric->plan_); !up) {
    return Fail(up.error().WithContext(fmt::format("build fabric \"{}\"", fabric->id())));
  }
  return fabric;
}

Result<std::unique_ptr<Fabric>> Fabric::Adopt(std::string_view id) {
  WEFT_ASSIGN_OR_RETURN(FabricState state, StateStore().Read(id));
  WEFT_ASSIGN_OR_RETURN(FabricPlan plan, FabricPlan::Make(state.options, state.slot));
  return std::unique_ptr<Fabric>(new Fabric(std::move(plan), std::move(state)));
}

Status Fabric::Remove(std::string_view id) {
  const StateStore store;
  WEFT_RETURN_IF_ERROR(store.Read(id));  // a wrong id makes no folder
  WEFT_ASSIGN_OR_RETURN(const UniqueFd lock, store.Lock());
  WEFT_ASSIGN_OR_RETURN(const FabricState state, store.Read(id));
  return TearDown(store, state);
}

Result<std::vector<std::string>> Fabric::CleanStale() {
  const StateStore store;
  WEFT_ASSIGN_OR_RETURN(const UniqueFd lock, store.Lock());
  WEFT_ASSIGN_OR_RETURN(const std::vector<FabricState> states, store.List());
  return CleanStaleLocked(store, states);
}

Result<std::vector<FabricState>> Fabric::List() {
  std::vector<std::string> unreadable;
  auto states = StateStore().List(&unreadable);
  for (const std::string& message : unreadable) LogWarn("testbed", "skipped a state file", {{"error", message}});
  return states;
}

Fabric::~Fabric() {
  if (!owned_ || made_by_ != ::getpid()) return;
  readers_.clear();
  const StateStore store;
  const auto lock = store.Lock();
  if (!lock) {
    LogError("testbed", "fabric stays up", {{"fabric", id()}, {"error", lock.error().message()}});
    return;
  }
  // Somebody may have removed it meanwhile, and somebody else taken its id.
  const auto present = store.Read(id());
  if (!present || *present != state_) return;
  if (const Status down = TearDown(store, state_); !down) {
    LogError("testbed", "fabric not removed", {{"fabric", id()}, {"error", down.error().message()}});
  }
}

Status Fabric::LeaveUp() {
  const StateStore store;
  WEFT_ASSIGN_OR_RETURN(const UniqueFd lock, store.Lock());
  FabricState ownerless = state_;
  ownerless.owner.reset();
  WEFT_RETURN_IF_ERROR(store.Write(ownerless));
  state_ = ownerless;
  owned_ = false;
  reaper_.Dismiss();
  return Ok();
}

std::vector<FabricLink> Fabric::links() const {
  const std::lock_guard lock(mutex_);
  return plan_.links;
}

Result<std::string> Fabric::NamespaceOf(std::string_view node) const {
  for (const FabricHost& host : plan_.hosts) {
    if (host.name == node) return host.netns;
  }
  for (const auto* tier : {&plan_.leaves, &plan_.spines}) {
    for (const FabricSwitch& one : *tier) {
      if (one.name == node) return one.netns;
    }
  }
  return Fail(Code::kNotFound, fmt::format("fabric \"{}\" has no node \"{}\"; it has h1 to h{}, leaf1 to leaf{}, spine1 "
                                           "to spine{}", id(), node, plan_.hosts.size(), plan_.leaves.size(),
                                           plan_.spines.size()));
}

}  // namespace weft::testbed
