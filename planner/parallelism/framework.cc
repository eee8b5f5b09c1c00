#include "planner/parallelism/framework.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace weft::planner::inline parallelism {
namespace {

std::vector<FrameworkDescription> MakeFrameworks() {
  using namespace frameworks;
  const FrameworkDescription megatron{.name = "megatron", .program = "Megatron-LM", .release = "core_v0.19.0",
                                      .stack = "megatron-core", .partial = PartialRecompute::kPerChunk,
                                      .bucket_parameters = 40e6, .bucket_per_replica = 1e6, .rules = MegatronRules(),
                                      .environment = MegatronEnvironment()};
  const FrameworkDescription torchtitan{.name = "torchtitan", .program = "torchtitan", .release = "v0.2.2",
                                        .stack = "torchtitan", .partial = PartialRecompute::kEveryNth,
                                        .bucket_parameters = 25e6, .rules = TorchtitanRules(),
                                        .release_rules = TorchtitanNewerRules(), .environment = TorchEnvironment()};
  const FrameworkDescription deepspeed{.name = "deepspeed", .program = "DeepSpeed", .release = "v0.19.5",
                                       .stack = "deepspeed", .partial = PartialRecompute::kNone,
                                       .bucket_parameters = 50e6, .rules = DeepspeedRules(),
                                       .release_rules = DeepspeedNewerRules()};
  const FrameworkDescription accelerate{.name = "accelerate", .program = "Accelerate", .release = "v1.14.0",
                                        .stack = "accelerate", .partial = PartialRecompute::kNone,
                                        .bucket_parameters = 25e6, .rules = AccelerateRules(),
                                        .environment = TorchEnvironment()};
  const auto with = [](FrameworkDescription d, std::string_view name, std::string_view release,
                       std::span<const FrameworkRule> rules) {
    d.name = name;
    d.release = release;
    d.release_rules = rules;
    return d;
  };
  FrameworkDescription bridge = with(megatron, "megatron-bridge", "v0.6.0", {});
  bridge.program = "Megatron-Bridge";  // bf16_mixed: gradients in fp32, as Megatron-LM's own
  const FrameworkDescription older_bridge = with(bridge, "megatron-bridge-0.4", "v0.4.2", {});
  std::vector<FrameworkDescription> all = {
      {.name = "any", .program = "any program", .release = "", .stack = "megatron-core", .bucket_per_replica = 1e6},
      megatron,
      torchtitan,
      deepspeed,
      {.name = "weft-train", .program = "weft-train", .release = "0.1", .stack = "weft-train",
       .bucket_parameters = 1 << 18, .buckets = WeftTrainBuckets(), .changes_training = true, .rules = ProgramRules(),
       .release_rules = WeftTrainRules()},
      bridge,
      accelerate,
      with(megatron, "megatron-0.15", "core_v0.15.3", MegatronOlderRules()),
      with(torchtitan, "torchtitan-0.2.0", "v0.2.0", TorchtitanOlderRules()),
      with(deepspeed, "deepspeed-0.18", "v0.18.9", DeepspeedOlderRules()),
      older_bridge,
      with(accelerate, "accelerate-1.10", "v1.10.1", {}),
      {.name = "weft-train-ddp", .program = "weft-train without a plan", .release = "0.1", .stack = "weft-train",
       .partial = PartialRecompute::kNone, .bucket_parameters = 1 << 18, .buckets = WeftTrainBuckets(), .leaves_idle = true,
       .rules = DataParallelRules()},
  };
  // A stack under its own name: to price published runs of it, with every strategy.
  for (const SoftwareStack& stack : AllSoftwareStacks()) {
    const bool fsdp = stack.state == StateScheme::kFp32Master || stack.state == StateScheme::kPure16;
    const bool taken = std::any_of(all.begin(), all.end(), [&](const auto& d) { return d.name == stack.name; });
    if (!taken) {
      all.push_back({.name = stack.name, .program = stack.name, .release = "", .stack = stack.name,
                     .bucket_parameters = fsdp ? 25e6 : 40e6, .bucket_per_replica = fsdp ? 0 : 1e6});
    }
  }
  return all;
}

/// No described program's file says these; weft-train is told them by its program.
constexpr FrameworkRule kTrainingChanges = {
    "training-changes", [](const FrameworkQuestion& q) { return ChangesTraining(q.strategy); },
    [](const FrameworkQuestion& q) {
      return fmt::format("gradient_wire={} local_steps={} data_sync={}, expected whole, 1 and not gossip",
                         GradientWireName(q.strategy.gradient_wire), q.strategy.local_steps, DataSyncName(q.strategy.data_sync));
    },
    "none of the described programs' options", SearchStage::kExchange};

bool KeepsTraining(const FrameworkDescription& d) { return d.runs() && !d.changes_training; }

const std::vector<FrameworkDescription>& Made() {
  static const auto* const kAll = new std::vector<FrameworkDescription>(MakeFrameworks());
  return *kAll;
}

}  // namespace

std::span<const FrameworkDescription> AllFrameworks() { return Made(); }

const FrameworkDescription& Describe(Framework framework) { return AllFrameworks()[static_cast<size_t>(framework)]; }

std::optional<Framework> FindFramework(std::string_view name) {
  const std::span<const FrameworkDescription> all = AllFrameworks();
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& d) { return d.name == name; });
  if (found == all.end()) return std::nullopt;
  return static_cast<Framework>(found - all.begin());
}

std::optional<Framework> ParseFramework(std::string_view text) {
  const auto found = FindFramework(text);
  if (found && *found < Framework::kPublished) return found;
  return std::nullopt;
}

std::string_view FrameworkName(Framework framework) { return Describe(framework).name; }

std::string FrameworkNames() {
  std::string names;
  for (size_t i = 0; i < static_cast<size_t>(Framework::kPublished); ++i) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", AllFrameworks()[i].name);
  }
  return names;
}

std::string FrameworkTitle(Framework framework) {
  const FrameworkDescription& d = Describe(framework);
  return d.runs() ? fmt::format("{} {}", d.program, d.release) : std::string(d.program);
}

SoftwareStack StackOf(Framework framework) { return FindSoftwareStack(Describe(framework).stack).value(); }

std::span<const Framework> KnownFrameworks() {
  static constexpr Framework kKnown[] = {Framework::kMegatron, Framework::kTorchtitan, Framework::kDeepspeed};
  return kKnown;
}

const FrameworkRule* BrokenRule(Framework framework, const FrameworkQuestion& question) {
  const FrameworkDescription& d = Describe(framework);
  if (KeepsTraining(d) && kTrainingChanges.broken(question)) return &kTrainingChanges;
  for (const std::span<const FrameworkRule> rules : {d.rules, d.release_rules}) {
    for (const FrameworkRule& rule : rules) {
      if (rule.broken(question)) return &rule;
    }
  }
  return nullptr;
}

bool Runs(Framework framework, const FrameworkQuestion& question) {
  return BrokenRule(framework, question) == nullptr;
}

bool RunsPart(Framework framework, const FrameworkQuestion& question, SearchStage decided) {
  const FrameworkDescription& d = Describe(framework);
  if (KeepsTraining(d) && kTrainingChanges.decided == decided && kTrainingChanges.broken(question)) return false;
  for (const std::span<const FrameworkRule> rules : {d.rules, d.release_rules}) {
    for (const FrameworkRule& rule : rules) {
      if (rule.decided == decided && rule.broken(question)) return false;
    }
  }
  return true;
}

std::optional<std::string> WhyCannotRun(Framework framework, const FrameworkQuestion& question) {
  const FrameworkRule* rule = BrokenRule(framework, question);
  if (rule != nullptr) return rule->words(question);
  const Strategy& s = question.strategy;
  if (s.recompute == Recompute::kFull && s.recompute_layers > 0 &&
      !RecomputesSome(framework, question.job.model.layers, s, s.recompute_layers)) {
    return fmt::format("recompute of {} layers of each stage with vpp={}, expected a number that the program can say: {}",
                       s.recompute_layers, s.vpp,
                       Describe(framework).partial == PartialRecompute::kPerChunk ? "a multiple of vpp"
                       : Describe(framework).partial == PartialRecompute::kNone   ? "all"
                                                                                  : "every n-th layer of a chunk");
  }
  return std::nullopt;
}

std::optional<std::string> WhyNeverRuns(Framework framework, const JobSpec& job, const ClusterSpec& cluster) {
  const Strategy plain;
  const FrameworkQuestion question{job, cluster, plain};
  const FrameworkDescription& d = Describe(framework);
  for (const std::span<const FrameworkRule> rules : {d.rules, d.release_rules}) {
    for (const FrameworkRule& rule : rules) {
      if (rule.decided == SearchStage::kJob && rule.broken(question)) return rule.words(question);
    }
  }
  return std::nullopt;
}

Bytes DefaultBucket(Framework framework, const Strategy& s, double gradient_bytes) {
  const FrameworkDescription& d = Describe(framework);
  const double parameters = std::max(d.bucket_parameters, d.bucket_per_replica * static_cast<double>(s.dp * s.cp));
  return Bytes(static_cast<int64_t>(std::llround(parameters * gradient_bytes)));
}

bool RecomputesSome(Framework framework, int64_t model_layers, const Strategy& s, int64_t layers) {
  switch (Describe(framework).partial) {
    case PartialRecompute::kNone: return false;
    case PartialRecompute::kAnyNumber: return true;
    case PartialRecompute::kPerChunk: return layers % s.vpp == 0;
    case PartialRecompute::kEveryNth: {
      // One counter runs through all layers of a process: exact where every stage has as many.
      if (model_layers % s.pp != 0) return false;
      const int64_t held = model_layers / s.pp, every = held / layers;
      return every >= 1 && held / every == layers;
    }
  }
  return false;
}

std::vector<EnvironmentSetting> EnvironmentOf(Framework framework, const FrameworkQuestion& question) {
  std::vector<EnvironmentSetting> settings;
  for (const EnvironmentSetting& setting : Describe(framework).environment) {
    if (setting.needed(question)) settings.push_back(setting);
  }
  return settings;
}

bool IsBlackwell(const DeviceSpec& device) {
  for (const std::string_view prefix : {"b200", "gb200", "b300", "gb300"}) {
    if (device.name.starts_with(prefix)) return true;
  }
  return false;
}

}  // namespace weft::planner::parallelism
