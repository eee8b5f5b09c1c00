#include "cli/plan_trace.h"

#include <array>
#include <utility>
#include <vector>

#include "formats/trace_writer.h"


namespace weft::cli {
namespace {

using formats::TraceWriter;

constexpr size_t kCompute = 1, kMessages = 6;
struct Track {
  std::string_view name;
  Seconds planner::TimelineParts::* part;
};
// In the order in which a pass has them; a track's number is its place, from kCompute.
constexpr std::array kTracks = {Track{"compute", &planner::TimelineParts::compute}, Track{"tensor", &planner::TimelineParts::tensor},
                                Track{"context", &planner::TimelineParts::context}, Track{"expert", &planner::TimelineParts::expert},
                                Track{"data", &planner::TimelineParts::data}};

std::string_view PassName(planner::PassKind kind) {
  switch (kind) {
    case planner::PassKind::kForward: return "forward";
    case planner::PassKind::kData: return "backward";
    case planner::PassKind::kWeight: return "weight gradient";
  }
  return "";
}

void AddSlice(TraceWriter& writer, std::string_view name, std::string_view category, int64_t stage, size_t track, Seconds begin,
              Seconds length, int64_t micro_batch, int64_t chunk) {
  if (length.count() <= 0) return;
  writer.Add(fmt::format(R"({{"ph": "X", "name": "{}", "cat": "{}", "pid": {}, "tid": {}, "ts": {}, "dur": {}, )"
                         R"("args": {{"micro_batch": {}, "chunk": {}}}}})",
                         name, category, stage + 1, track, TraceWriter::Stamp(begin), TraceWriter::Stamp(length), micro_batch, chunk));
}

void AddPasses(TraceWriter& writer, const planner::IterationTimeline& timeline, std::vector<Seconds>& free) {
  for (const planner::TimelinePass& pass : timeline.passes) {
    Seconds& at = free[static_cast<size_t>(pass.stage)];
    const auto add = [&](std::string_view name, std::string_view category, size_t track, Seconds begin, Seconds length) {
      AddSlice(writer, name, category, pass.stage, track, begin, length, pass.pass.micro_batch, pass.pass.chunk);
    };
    if (pass.begin - at > Seconds(1e-9)) add("bubble", "bubble", kCompute, at, pass.begin - at);
    Seconds part = pass.begin;
    for (size_t track = 0; track < kTracks.size(); ++track) {
      const Seconds length = pass.parts.*kTracks[track].part;
      add(track == 0 ? PassName(pass.pass.kind) : kTracks[track].name, kTracks[track].name, kCompute + track, part, length);
      part += length;
    }
    at = pass.end;
  }
}

void AddTransfers(TraceWriter& writer, const planner::IterationTimeline& timeline, std::vector<Seconds>& free) {
  using Kind = planner::TransferDemand::Kind;
  for (const planner::TransferDemand& transfer : timeline.transfers) {
    const bool exchange = transfer.kind == Kind::kGradientExchange;
    const std::string_view name = exchange                               ? "gradients"
                                  : transfer.kind == Kind::kActivation ? "activations"
                                                                        : "activation gradients";
    AddSlice(writer, name, exchange ? "data" : "pipeline", transfer.from, exchange ? kCompute + kTracks.size() - 1 : kMessages,
             transfer.window.earliest_start, transfer.window.earliest_end - transfer.window.earliest_start, transfer.micro_batch,
             transfer.chunk);
    Seconds& at = free[static_cast<size_t>(transfer.from)];
    if (exchange) at = std::max(at, transfer.window.earliest_end);
  }
}

/// Bytes of one GPU of a stage from the start of each pass and from its end, as a counter.
Status AddMemory(TraceWriter& writer, const planner::IterationTimeline& timeline, const planner::OperationList& list) {
  std::vector<planner::MemoryOverTime> stages;
  const auto add = [&](int64_t stage, Seconds at, Bytes held) {
    writer.Add(fmt::format(R"({{"ph": "C", "name": "memory", "pid": {}, "tid": 0, "ts": {}, "args": {{"bytes": {}}}}})", stage + 1,
                           TraceWriter::Stamp(at), held.count()));
  };
  for (int64_t stage = 0; stage < list.stages; ++stage) {
    WEFT_ASSIGN_OR_RETURN(planner::MemoryOverTime memory, planner::MemoryOfStage(list, stage));
    add(stage, Seconds(0), memory.constant);
    stages.push_back(std::move(memory));
  }
  std::vector<size_t> next(stages.size(), 0);
  for (const planner::TimelinePass& pass : timeline.passes) {
    const auto stage = static_cast<size_t>(pass.stage);
    const planner::MemoryStep& step = stages[stage].passes[next[stage]++];  // both in the stage's order
    add(pass.stage, pass.begin, step.during);
    add(pass.stage, pass.end, step.after);
  }
  return Ok();
}

}  // namespace

Result<std::string> PlanTraceText(const planner::JobSpec& job, const planner::ClusterSpec& cluster, const planner::JobPlan& plan,
                                  std::optional<double> risk) {
  if (!plan.groups.empty()) {
    return Fail(Code::kInvalidArgument, "the plan has no one strategy that a timeline could be of: give --framework any, or a program");
  }
  WEFT_ASSIGN_OR_RETURN(const planner::CostModel model,
                        planner::CostModel::Make(planner::Resized(job, planner::GpuCount(plan.strategy), job.global_batch), cluster,
                                                 planner::Calibration(), {.framework = plan.framework, .risk = risk}));
  planner::CostModel::Scratch scratch;
  WEFT_ASSIGN_OR_RETURN(const planner::IterationTimeline timeline, model.Timeline(plan.strategy, scratch));
  TraceWriter writer;
  std::vector<Seconds> free(static_cast<size_t>(plan.strategy.pp), timeline.fill);
  for (int64_t stage = 0; stage < plan.strategy.pp; ++stage) {
    const auto process = static_cast<int>(stage + 1);
    writer.AddName("process_name", process, 0, fmt::format("stage {} of {}, {} equal GPUs", stage + 1, plan.strategy.pp,
                                                           planner::GpuCount(plan.strategy) / plan.strategy.pp));
    for (size_t track = 0; track < kTracks.size(); ++track) writer.AddName("thread_name", process, kCompute + track, kTracks[track].name);
    writer.AddName("thread_name", process, kMessages, "pipeline");
  }
  AddPasses(writer, timeline, free);
  AddTransfers(writer, timeline, free);
  WEFT_RETURN_IF_ERROR(AddMemory(writer, timeline, model.Lower(plan.strategy, scratch)));
  const Seconds busy = timeline.iteration - timeline.overhead;
  for (int64_t stage = 0; stage < plan.strategy.pp; ++stage) {
    const Seconds at = free[static_cast<size_t>(stage)], optimizer = timeline.optimizer[static_cast<size_t>(stage)];
    AddSlice(writer, "parameters", "data", stage, kCompute + kTracks.size() - 1, Seconds(0), timeline.fill, 0, 0);
    AddSlice(writer, "optimizer", "compute", stage, kCompute, at, optimizer, 0, 0);
    AddSlice(writer, "bubble", "bubble", stage, kCompute, at + optimizer, busy - at - optimizer, 0, 0);
    AddSlice(writer, "host", "host", stage, kCompute, busy, timeline.overhead, 0, 0);
  }
  return writer.Take();
}

}  // namespace weft::cli
