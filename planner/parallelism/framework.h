// What Weft knows of the programs that run a plan: one description per program and release. Search, memory, time,
// legality and the emitted files read the same one, so that what is emitted is what was priced.
//
//   const Framework framework = FindFramework("megatron").value();
//   if (const auto reason = WhyCannotRun(framework, {job, cluster, strategy})) ...
//
// The facts of one program, with their sources, lie in frameworks/PROGRAM.cc. Releases are pinned by tag; a name without a
// release means the newest one here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/units.h"
#include "planner/fabric/cluster_spec.h"
#include "planner/parallelism/software_stack.h"
#include "planner/parallelism/strategy.h"
#include "planner/workload/job_spec.h"

namespace weft::planner::inline parallelism {

/// An entry of the list of descriptions. Values beyond the named ones are stacks of published measurements, which are for
/// pricing only.
enum class Framework : uint8_t {
  kAny,              ///< the whole space, whatever runs it; priced as Megatron-LM
  kMegatron,
  kTorchtitan,
  kDeepspeed,        ///< a Hugging Face model under deepspeed.initialize or the Trainer
  kWeftTrain,
  kMegatronBridge,
  kAccelerate,       ///< a Hugging Face model under Accelerate with FSDP2
  kMegatron015,
  kTorchtitan020,
  kDeepspeed018,
  kMegatronBridge04,
  kAccelerate110,
  kWeftTrainDdp,     ///< weft-train without a plan: plain data parallelism, as other scripts are planned too
  kPublished,        ///< the first stack for pricing only
};

/// What a rule is asked about.
struct FrameworkQuestion {
  const JobSpec& job;
  const ClusterSpec& cluster;
  const Strategy& strategy;
};

/// The order in which a search decides, so that it asks a rule once and not again below.
enum class SearchStage : uint8_t {
  kJob,        ///< model and precision
  kDegrees,    ///< and modes, micro-batch, sequence parallelism
  kSchedule,   ///< and chunks, rank order
  kRecompute,
  kExchange,   ///< ZeRO, shard groups, exchange, sharding per operator; such a rule knows degrees, not micro-batch, schedule or
               ///< recomputation
};

/// A combination that a program refuses, or that means something else there than here.
struct FrameworkRule {
  std::string_view name;                                ///< "expert-order"
  bool (*broken)(const FrameworkQuestion& question);    ///< cheap: asked for every strategy of a search
  std::string (*words)(const FrameworkQuestion& question);  ///< "etp=3, expected 1 or tp=8"
  std::string_view source;                              ///< file and release
  SearchStage decided = SearchStage::kDegrees;                ///< the last decision that it asks about
};

/// A variable that the program or its libraries want in the environment of every rank.
struct EnvironmentSetting {
  std::string_view name, value;
  bool (*needed)(const FrameworkQuestion& question);
  std::string_view why;
  std::string_view source;
};

/// How a program recomputes some of a stage's layers in full.
enum class PartialRecompute : uint8_t {
  kNone,       ///< all of them or none
  kAnyNumber,  ///< any number of each stage
  kPerChunk,   ///< a number of each chunk: vpp divides it
  kEveryNth,   ///< every n-th of the layers of a chunk
};

struct FrameworkDescription {
  std::string_view name;            ///< of --framework: "megatron", "megatron-0.15"
  std::string_view program;         ///< "Megatron-LM"
  std::string_view release;         ///< a tag of the program's repository; empty for pricing only
  std::string_view stack;           ///< FindSoftwareStack: how it is priced
  PartialRecompute partial = PartialRecompute::kAnyNumber;
  double bucket_parameters = 40e6;  ///< of one gradient bucket, where the strategy does not say
  double bucket_per_replica = 0;    ///< at least so many parameters for each replica
  std::span<const Bytes> buckets = {};  ///< from which its launch is told the bucket, ascending; none: its own is taken
  bool leaves_idle = false;         ///< fewer ranks than the job has GPUs may work
  bool changes_training = false;    ///< it can exchange so that what is trained changes: ChangesTraining()
  std::span<const FrameworkRule> rules = {};
  std::span<const FrameworkRule> release_rules = {};  ///< of this release alone
  std::span<const EnvironmentSetting> environment = {};

  bool runs() const { return !rules.empty(); }
};

/// Ascending by Framework.
std::span<const FrameworkDescription> AllFrameworks();
const FrameworkDescription& Describe(Framework framework);
/// nullopt for a name that no description has.
std::optional<Framework> FindFramework(std::string_view name);
/// The same, for programs (and "any") only: what a person may ask for.
std::optional<Framework> ParseFramework(std::string_view text);
std::string_view FrameworkName(Framework framework);
/// "any, megatron, ...": the programs, for messages.
std::string FrameworkNames();
/// "Megatron-LM core_v0.19.0".
std::string FrameworkTitle(Framework framework);
SoftwareStack StackOf(Framework framework);

/// The programs that `weft plan` chooses from when none is named: the newest release of each that people run.
std::span<const Framework> KnownFrameworks();

/// Whether the program can run a legal strategy. Complexity: no allocation.
bool Runs(Framework framework, const FrameworkQuestion& question);
/// The same by the rules of one decision alone.
bool RunsPart(Framework framework, const FrameworkQuestion& question, SearchStage decided);
/// The first rule that the strategy breaks, in words that name the value and what was expected; nullopt if it runs.
std::optional<std::string> WhyCannotRun(Framework framework, const FrameworkQuestion& question);
/// Why no strategy of the job runs, whatever it is: the model or the precision; nullopt if some may.
std::optional<std::string> WhyNeverRuns(Framework framework, const JobSpec& job, const ClusterSpec& cluster);
/// The rule itself; nullptr if it runs.
const FrameworkRule* BrokenRule(Framework framework, const FrameworkQuestion& question);

/// The gradient bucket that the program uses if nobody says otherwise.
Bytes DefaultBucket(Framework framework, const Strategy& strategy, double gradient_bytes);
/// Whether `layers` of each stage can be recomputed in full. Requires: 0 < layers < layers of the largest stage.
bool RecomputesSome(Framework framework, int64_t model_layers, const Strategy& strategy, int64_t layers);
/// The settings that the strategy needs.
std::vector<EnvironmentSetting> EnvironmentOf(Framework framework, const FrameworkQuestion& question);

/// Whether a device is of Blackwell's generation or later.
bool IsBlackwell(const DeviceSpec& device);

/// What Megatron-LM's options cannot say of a model; nullptr if they can say all of it.
const char* MegatronLacks(const ModelSpec& model);
/// torchtitan's family with the model's layers: "llama3", "qwen3", "deepseek_v3"; empty if none has them.
std::string_view TorchtitanFamily(const ModelSpec& model);
/// Why a model built from its config.json and trained by Hugging Face's own code is not described; nullptr if it is.
const char* HuggingFaceLacks(const ModelSpec& model);

namespace frameworks {  // lists of the files of frameworks/

std::span<const FrameworkRule> MegatronRules();
std::span<const FrameworkRule> MegatronOlderRules();
std::span<const EnvironmentSetting> MegatronEnvironment();
std::span<const FrameworkRule> TorchtitanRules();
std::span<const FrameworkRule> TorchtitanNewerRules();
std::span<const FrameworkRule> TorchtitanOlderRules();
std::span<const FrameworkRule> DeepspeedRules();
std::span<const FrameworkRule> DeepspeedNewerRules();
std::span<const FrameworkRule> DeepspeedOlderRules();
std::span<const FrameworkRule> AccelerateRules();
std::span<const EnvironmentSetting> TorchEnvironment();
/// What is a program (program/expand.h): none of these rules looks at the cluster.
std::span<const FrameworkRule> ProgramRules();
/// Of what weft-train runs besides.
std::span<const FrameworkRule> WeftTrainRules();
std::span<const FrameworkRule> DataParallelRules();
std::span<const Bytes> WeftTrainBuckets();

}  // namespace frameworks
}  // namespace weft::planner::parallelism
