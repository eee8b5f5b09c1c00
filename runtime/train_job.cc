#include "runtime/train_job.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "collectives/bootstrap.h"
#include "collectives/communicator.h"
#include "collectives/net_plugin.h"
#include "common/clock.h"
#include "formats/hf_config.h"
#include "planner/planner.h"
#include "runtime/bucket_exchange.h"
#include "runtime/priority.h"
#include "runtime/program_job.h"
#include "runtime/text_data.h"
#include "runtime/trainer.h"

namespace weft::runtime {
namespace {

/// The connections of this rank; empty for one rank, or with communication off. Members in the order in which they are
/// needed: the communicator goes first.
struct Connections {
  std::unique_ptr<collectives::NetPlugin> plugin;
  std::unique_ptr<collectives::Bootstrap> bootstrap;
  std::unique_ptr<collectives::Communicator> communicator;
};

/// Whether it is what a plan is compared with: one process, LibTorch's autograd.
bool IsPlain(const TrainOptions& options) {
  return options.double_precision || !options.capacity_of.empty() || options.replicas.count != 1;
}

Status CheckOptions(const TrainOptions& options) {
  const auto wrong = [](const std::string& message) { return Fail(Code::kInvalidArgument, message); };
  if (options.world < 1 || options.rank < 0 || options.rank >= options.world) {
    return wrong("rank " + std::to_string(options.rank) + " of world " + std::to_string(options.world) +
                 ": expected 0 <= rank < world");
  }
  if (options.global_batch < 1 || options.global_batch % options.world != 0) {
    return wrong("global batch " + std::to_string(options.global_batch) + " cannot be divided by world " +
                 std::to_string(options.world) + ": expected a multiple of it");
  }
  if (options.sequence < 1) return wrong("sequence " + std::to_string(options.sequence) + ": expected at least 1");
  if (!(options.rate.peak > 0)) return wrong("learning rate " + std::to_string(options.rate.peak) + ": expected more than 0");
  if (!(options.clip >= 0)) return wrong("clip " + std::to_string(options.clip) + ": expected at least 0");
  if (options.rate.warm_up < 0 || options.rate.decay < 0 || !(options.rate.least >= 0))
    return wrong("--warm-up, --decay and --least-lr: expected at least 0");
  if (options.replicas.count == 1 && options.replicas != ReplicaOptions())
    return wrong("--local-steps, --gossip or --gradient-wire without --replicas");
  if (options.replicas.count != 1 && options.world > 1) return wrong("--replicas on several ranks: expected one process");
  if (options.replicas.count != 1 && !options.capacity_of.empty())
    return wrong("--replicas with --capacity-of: expected one of them");
  if (IsPlain(options) && options.world > 1) return wrong("fp64, or --capacity-of, on several ranks needs a --plan");
  if (IsPlain(options) && (options.duration || options.min_steps != 1)) {
    return wrong("--type fp64, --capacity-of and --replicas without --plan train --steps, without --duration and "
                 "--min-steps");
  }
  const CheckpointOptions& checkpoint = options.checkpoint;
  if (!checkpoint.folder.empty() || !checkpoint.resume.empty() || !checkpoint.load.empty())
    return wrong("--checkpoint, --resume and --load need a --plan");
  if (options.computations) return wrong("--computations needs a --plan or a --strategy");
  if (options.threads < 1) return wrong("threads " + std::to_string(options.threads) + ": expected at least 1");
  if (options.bucket.count() < 4) return wrong("bucket of less than one float: expected at least 4B");
  if (!options.duration && options.steps < 1) return wrong("steps " + std::to_string(options.steps) + ": expected >= 1");
  if (options.min_steps < 1) return wrong("min steps " + std::to_string(options.min_steps) + ": expected >= 1");
  if (options.world > 1 && options.communication) {
    if (options.plugin.empty()) return wrong("world " + std::to_string(options.world) + " needs --plugin");
    if (options.rendezvous.empty()) return wrong("world " + std::to_string(options.world) + " needs --rendezvous");
  }
  return Ok();
}

/// Everything that must be the same on all ranks, as text that a person can compare.
std::string Fingerprint(const TrainOptions& options, const planner::ModelSpec& model, const TextData& text) {
  std::string print = model.name;
  const auto add = [&](const char* name, const std::string& value) { print += std::string(", ") + name + " " + value; };
  add("layers", std::to_string(model.layers));
  add("width", std::to_string(model.hidden));
  add("heads", std::to_string(model.heads));
  add("MLP width", std::to_string(model.ffn_hidden));
  add("positions", std::to_string(model.max_positions));
  add("sequence", std::to_string(options.sequence));
  add("global batch", std::to_string(options.global_batch));
  if (!options.duration) add("steps", std::to_string(options.steps));
  if (options.duration) add("duration", std::to_string(options.duration->count()) + " s");
  if (options.min_steps > 1) add("min steps", std::to_string(options.min_steps));
  add("learning rate", std::to_string(options.rate.peak));
  if (options.rate.warm_up > 0) add("warm-up", std::to_string(options.rate.warm_up));
  if (options.rate.decay > 0) add("decay", std::to_string(options.rate.decay) + " to " + std::to_string(options.rate.least));
  if (options.clip > 0) add("clip", std::to_string(options.clip));
  add("seed", std::to_string(options.seed));
  add("bucket", std::to_string(options.bucket.count()) + " B");
  add("text digest", std::to_string(text.Digest()));
  if (!options.collectives.empty()) add("collective table", options.collectives);
  return print;
}

/// Ranks that were started differently would wait for each other's messages forever, or learn nonsense.
Status CheckSameEverywhere(collectives::Bootstrap& bootstrap, const std::string& mine) {
  const std::vector<uint8_t> bytes(mine.begin(), mine.end());
  WEFT_ASSIGN_OR_RETURN(const auto all, bootstrap.AllGather(bytes));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    return Fail(Code::kInvalidArgument,
                "ranks were started differently: rank 0 with \"" + std::string(all[0].begin(), all[0].end()) + "\", rank " +
                    std::to_string(rank) + " with \"" + std::string(all[rank].begin(), all[rank].end()) + "\"");
  }
  return Ok();
}

Result<Connections> Connect(const TrainOptions& options, const std::string& fingerprint) {
  Connections connections;
  if (options.world == 1 || !options.communication) return connections;
  WEFT_ASSIGN_OR_RETURN(connections.plugin, collectives::NetPlugin::Load(options.plugin));
  WEFT_ASSIGN_OR_RETURN(connections.bootstrap, collectives::Bootstrap::Join({.rank = RankId(options.rank),
                                                                             .world = options.world,
                                                                             .address = options.rendezvous,
                                                                             .timeout = options.stall_timeout}));
  WEFT_RETURN_IF_ERROR(CheckSameEverywhere(*connections.bootstrap, fingerprint));
  WEFT_ASSIGN_OR_RETURN(
      connections.communicator,
      collectives::Communicator::Create(
          *connections.plugin, *connections.bootstrap,
          {.stall_timeout = options.stall_timeout, .idle_spin = Seconds(20e-6), .table = options.collectives}));
  // Connects the ring, or what the table has for so few bytes, before the clock of the first step runs.
  WEFT_RETURN_IF_ERROR(connections.communicator->Barrier());
  return connections;
}

/// The loop's parts and what one step does with them.
class Loop {
 public:
  Loop(const TrainOptions& options, int64_t sample_bytes, const TextData& text, Trainer& trainer, BucketExchange& exchange)
      : options_(options),
        sample_bytes_(sample_bytes),
        text_(text),
        trainer_(trainer),
        exchange_(exchange),
        start_(clock_.Now()) {}

  struct Outcome {
    StepFacts facts;
    bool last = false;
  };

  Result<Outcome> Step(int64_t step) {
    const int64_t share = options_.global_batch / options_.world;
    const Seconds begin = clock_.Now();
    const std::vector<uint8_t> samples = text_.Samples({.seed = options_.seed,
                                                        .step = step,
                                                        .first = options_.rank * share,
                                                        .count = share,
                                                        .sequence = sample_bytes_});
    exchange_.Begin();
    WEFT_ASSIGN_OR_RETURN(const double loss, trainer_.Forward(samples));
    const Seconds forward = clock_.Now() - begin;
    exchange_.SetContribution(static_cast<float>(loss), options_.rank == 0 && TimeIsUp(step));
    WEFT_RETURN_IF_ERROR(trainer_.Backward());
    const Seconds wait = clock_.Now();
    std::vector<Seconds> ready;
    for (const Seconds time : exchange_.ready()) ready.push_back(time - begin);
    WEFT_ASSIGN_OR_RETURN(const StepAgreement agreed, exchange_.Wait());
    const Seconds gathered = clock_.Now();
    WEFT_RETURN_IF_ERROR(trainer_.Update(LearningRateAt(options_.rate, step)));
    const Seconds end = clock_.Now();
    // Without an exchange each rank is alone with its own clock.
    const bool stop = options_.communication ? agreed.stop : TimeIsUp(step);
    return Outcome{.facts = {.step = step,
                             .loss = agreed.loss,
                             .iteration = end - begin,
                             .forward = forward,
                             .backward = wait - begin - forward,
                             .update = end - gathered,
                             .compute = end - begin - (gathered - wait),
                             .exposed = gathered - wait,
                             .time = end,
                             .ready = std::move(ready)},
                   .last = options_.duration ? stop : step + 1 >= options_.steps};
  }

 private:
  /// Whether `step` may be the last.
  bool TimeIsUp(int64_t step) const {
    return options_.duration && step + 1 >= options_.min_steps && clock_.Now() - start_ >= *options_.duration;
  }

  const TrainOptions& options_;
  const int64_t sample_bytes_;
  const TextData& text_;
  Trainer& trainer_;
  BucketExchange& exchange_;
  SystemClock clock_;
  Seconds start_;
};

Status RunSteps(Loop& loop, Report& report) {
  for (int64_t step = 0;; ++step) {
    auto outcome = loop.Step(step);
    if (!outcome) return Fail(outcome.error().WithContext("step " + std::to_string(step)));
    WEFT_RETURN_IF_ERROR(report.Step(outcome->facts));
    if (outcome->last) return Ok();
  }
}

JobFacts FactsOf(const TrainOptions& options, const ScaledModel& scaled, const Trainer& trainer, const TextData& text) {
  const auto& elements = trainer.gradient_elements();
  const int64_t parameters = std::accumulate(elements.begin(), elements.end(), int64_t{0});
  return {.model = scaled.model.name,
          .scaling = scaled.changes,
          .parameters = parameters,
          .gradient_bytes = Bytes(parameters * static_cast<int64_t>(sizeof(float))),
          .ranks = options.world,
          .global_batch = options.global_batch,
          .sequence = options.sequence,
          .text = Bytes(static_cast<int64_t>(text.bytes().size())),
          .communication = options.communication,
          .plugin = "",
          .collectives = ""};
}

Status TrainConnected(const TrainOptions& options, int64_t sample_bytes, JobFacts facts, const TextData& text, Trainer& trainer,
                      std::span<float> memory, const Connections& connections) {
  collectives::Communicator* communicator = connections.communicator.get();
  BucketExchange::Reduce reduce;
  if (communicator != nullptr) {
    reduce = [communicator](std::span<float> bucket) { return communicator->AllReduce(bucket); };
  }
  BucketExchange exchange(trainer.gradient_elements(), options.bucket, options.world, memory, std::move(reduce));
  std::vector<std::span<float>> gradients;
  for (size_t i = 0; i < trainer.gradient_elements().size(); ++i) gradients.push_back(exchange.gradient(i));
  trainer.BindGradients(gradients, [&exchange](size_t gradient) { exchange.GradientReady(gradient); });

  for (const Bucket& bucket : exchange.buckets()) {
    facts.bucket_bytes.emplace_back(bucket.elements * static_cast<int64_t>(sizeof(float)));
  }
  if (communicator != nullptr) facts.collectives = options.collectives;
  if (connections.plugin) {
    facts.plugin = connections.plugin->name() + " (net v" + std::to_string(connections.plugin->version()) + ")";
  }
  Report report(std::move(facts), options.output, options.rank == 0 ? stdout : nullptr);
  WEFT_RETURN_IF_ERROR(report.Start());
  YieldToCommunication();
  Loop loop(options, sample_bytes, text, trainer, exchange);
  WEFT_RETURN_IF_ERROR(RunSteps(loop, report));
  return report.Finish(communicator != nullptr ? communicator->bytes_sent() : Bytes(0));
}

}  // namespace

Status CheckTrained(const planner::ModelSpec& model) {
  // Of one process and as many tokens as experts, so that what is refused is the model's.
  const auto why = planner::WhyNoProgram({.name = "",
                                          .model = model,
                                          .global_batch = 1,
                                          .sequence = std::max<int64_t>(1, model.experts),
                                          .precision = planner::Precision::kFp32,
                                          .gpus = 1},
                                         {});
  return why ? Status(Fail(Code::kInvalidArgument, *why)) : Ok();
}

Status RunTraining(const TrainOptions& options) {
  if (!options.plan.empty() || !options.plans.empty() || !options.strategy.strategy.empty()) return RunProgram(options);
  if (options.reshard) {
    return Fail(Code::kInvalidArgument, "--reshard on without a program: expected --strategy or --plan, which say what may be changed");
  }
  WEFT_RETURN_IF_ERROR(CheckOptions(options));
  if (IsPlain(options)) return RunPlain(options);
  WEFT_ASSIGN_OR_RETURN(const planner::ModelSpec published, formats::ReadHfConfig(options.config));
  WEFT_ASSIGN_OR_RETURN(const ScaledModel scaled, ScaleModel(published, options.scaling));
  WEFT_RETURN_IF_ERROR(CheckTrained(scaled.model));
  WEFT_ASSIGN_OR_RETURN(const TextData text, TextData::Load(options.data));
  const int64_t sample_bytes = SampleBytes(scaled.model, options.sequence);
  if (static_cast<int64_t>(text.bytes().size()) <= sample_bytes) {
    return Fail(Code::kInvalidArgument, "text \"" + options.data + "\" has " + std::to_string(text.bytes().size()) +
                                            " bytes, expected more than the " + std::to_string(sample_bytes) +
                                            (scaled.model.IsCnn() ? " of a volume" : " of a sequence"));
  }
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer,
                        Trainer::Create({.model = scaled.model,
                                         .batch = options.global_batch / options.world,
                                         .sequence = options.sequence,
                                         .learning_rate = options.rate.peak,
                                         .clip = options.clip,
                                         .seed = options.seed,
                                         .threads = options.threads}));
  // Lent to the exchange, and registered with the plugin: freed after both.
  std::vector<float> memory(BucketExchange::MemoryElements(trainer->gradient_elements()));
  WEFT_ASSIGN_OR_RETURN(const Connections connections, Connect(options, Fingerprint(options, scaled.model, text)));
  const Status trained = TrainConnected(options, sample_bytes, FactsOf(options, scaled, *trainer, text), text, *trainer, memory,
                                        connections);
  // The exchange is gone, and its thread with it: the other ranks may be told why nothing more will come.
  if (!trained && connections.bootstrap) connections.bootstrap->ReportFailure(trained.error());
  return trained;
}

}  // namespace weft::runtime
