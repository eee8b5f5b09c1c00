#include "proto/operation_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace weft::proto {
namespace {

// The messages' enumerations are the planner's, each word one further: 0 is "unspecified".
template <typename Message, typename Word>
Message ToWord(Word word) {
  return static_cast<Message>(static_cast<int>(word) + 1);
}
static_assert(v1::PIPELINE_SCHEDULE_ZB_V == static_cast<int>(planner::ScheduleKind::kZbV) + 1);
static_assert(v1::OPERATION_KIND_SEND_RECEIVE == static_cast<int>(planner::OperationKind::kSendReceive) + 1);
static_assert(v1::OPERATION_PASS_ONCE == static_cast<int>(planner::OperationPass::kOnce) + 1);
static_assert(v1::COMMUNICATOR_KIND_WORLD == static_cast<int>(planner::CommunicatorKind::kWorld) + 1);
static_assert(v1::HOLDING_PART_CONTEXT == static_cast<int>(planner::HoldingPart::kContext) + 1);
static_assert(v1::HOLDING_SPAN_BACKWARD == static_cast<int>(planner::HoldingSpan::kBackward) + 1);
static_assert(v1::HOLDING_CHUNKS_LAST == static_cast<int>(planner::HoldingChunks::kLast) + 1);

v1::Operation ToProto(const planner::Operation& o) {
  v1::Operation message;
  message.set_what(std::string(o.what));
  message.set_kind(ToWord<v1::OperationKind>(o.kind));
  message.set_pass(ToWord<v1::OperationPass>(o.pass));
  message.set_calls(o.calls);
  message.set_total_s(o.seconds);
  message.set_exposed_s(o.exposed);
  message.set_total_flops(o.flops);
  if (o.kind == planner::OperationKind::kCompute) return message;
  message.set_communicator(ToWord<v1::CommunicatorKind>(o.communicator));
  message.set_group_ranks(o.group.size);
  message.set_group_stride(o.group.stride);
  message.set_call_bytes(o.bytes);
  message.set_algorithm(std::string(o.algorithm));
  message.set_hides_behind(std::string(o.hides_behind));
  return message;
}

v1::Holding ToProto(const planner::Holding& piece) {
  v1::Holding message;
  message.set_what(std::string(piece.what));
  message.set_part(ToWord<v1::HoldingPart>(piece.part));
  message.set_span(ToWord<v1::HoldingSpan>(piece.span));
  message.set_chunks(ToWord<v1::HoldingChunks>(piece.chunks));
  message.set_held_bytes(piece.bytes.count());
  return message;
}

/// Reads one message; stops at the first fault.
class Reader {
 public:
  Result<planner::OperationList> Read(const v1::OperationList& message) {
    planner::OperationList list;
    if (message.version() != planner::OperationList::kVersion) {
      Refuse("version", message.version(), fmt::format("{}", planner::OperationList::kVersion));
    }
    Word("schedule", message.schedule(), v1::PipelineSchedule_MAX, list.schedule);
    Count("stages", message.stages(), kMostListStages, list.stages);
    Count("chunks", message.chunks(), kMostListStages, list.chunks);
    Count("micro_batches", message.micro_batches(), kMostListCount, list.micro_batches);
    Count("ranks_per_stage", message.ranks_per_stage(), kMostListCount, list.ranks_per_stage);
    if (message.classes_size() > list.stages) {
      Refuse("classes", fmt::format("{} of them", message.classes_size()), "at most one for each stage");
    }
    if (status_) ReadClasses(message, list);
    if (!status_) return Fail(status_.error());
    list.texts = std::make_shared<const std::set<std::string, std::less<>>>(std::move(texts_));
    return list;
  }

 private:
  void ReadClasses(const v1::OperationList& message, planner::OperationList& list) {
    std::vector<bool> known(static_cast<size_t>(list.stages), false);
    for (int i = 0; i < message.classes_size() && status_; ++i) {
      place_ = fmt::format("classes[{}].", i);
      list.classes.push_back(ReadClass(message.classes(i), known));
    }
    place_.clear();
    const auto missing = std::find(known.begin(), known.end(), false);
    if (missing == known.end()) return;
    Refuse("classes", fmt::format("none has stage {}", missing - known.begin()), "each stage in one of them");
  }

  planner::StageOperations ReadClass(const v1::StageOperations& message, std::vector<bool>& known) {
    planner::StageOperations equal;
    ReadStages(message, known, equal.stages);
    AtMost("operations", message.operations_size(), kMostListOperations);
    AtMost("memory", message.memory_size(), kMostListHoldings);
    const std::string place = place_;
    for (int i = 0; i < message.operations_size() && status_; ++i) {
      place_ = fmt::format("{}operations[{}].", place, i);
      equal.operations.push_back(ReadOperation(message.operations(i)));
    }
    for (int i = 0; i < message.memory_size() && status_; ++i) {
      place_ = fmt::format("{}memory[{}].", place, i);
      equal.memory.push_back(ReadHolding(message.memory(i)));
    }
    place_ = place;
    Amount("fragmentation", message.fragmentation(), equal.fragmentation);
    return equal;
  }

  /// `known`: of all stages, those that a class has.
  void ReadStages(const v1::StageOperations& message, std::vector<bool>& known, std::vector<int64_t>& stages) {
    const auto count = static_cast<int64_t>(known.size());
    if (message.stages_size() == 0) return Refuse("stages", "none", "at least one");
    for (const int64_t stage : message.stages()) {
      if (stage < 0 || stage >= count) return Refuse("stages", stage, fmt::format("0 to {}", count - 1));
      if (known[static_cast<size_t>(stage)]) return Refuse("stages", stage, "each stage once");
      if (!stages.empty() && stage < stages.back()) return Refuse("stages", stage, "ascending numbers");
      known[static_cast<size_t>(stage)] = true;
      stages.push_back(stage);
    }
  }

  planner::Operation ReadOperation(const v1::Operation& message) {
    planner::Operation o;
    Text("what", message.what(), o.what);
    Word("kind", message.kind(), v1::OperationKind_MAX, o.kind);
    Word("pass", message.pass(), v1::OperationPass_MAX, o.pass);
    Amount("calls", message.calls(), o.calls);
    Amount("total_s", message.total_s(), o.seconds);
    Amount("exposed_s", message.exposed_s(), o.exposed);
    Amount("total_flops", message.total_flops(), o.flops);
    if (o.kind == planner::OperationKind::kCompute) return o;
    Word("communicator", message.communicator(), v1::CommunicatorKind_MAX, o.communicator);
    Count("group_ranks", message.group_ranks(), kMostListCount, o.group.size);
    Count("group_stride", message.group_stride(), kMostListCount, o.group.stride);
    Amount("call_bytes", message.call_bytes(), o.bytes);
    Text("algorithm", message.algorithm(), o.algorithm);
    Text("hides_behind", message.hides_behind(), o.hides_behind);
    return o;
  }

  planner::Holding ReadHolding(const v1::Holding& message) {
    planner::Holding piece;
    Text("what", message.what(), piece.what);
    Word("part", message.part(), v1::HoldingPart_MAX, piece.part);
    Word("span", message.span(), v1::HoldingSpan_MAX, piece.span);
    Word("chunks", message.chunks(), v1::HoldingChunks_MAX, piece.chunks);
    if (message.held_bytes() < 0 || message.held_bytes() > kMostHeldBytes) {
      Refuse("held_bytes", message.held_bytes(), fmt::format("0 to {}", kMostHeldBytes));
    }
    piece.bytes = Bytes(message.held_bytes());
    return piece;
  }

  template <typename T>
  void Refuse(const char* field, const T& value, const std::string& expected) {
    if (!status_) return;
    status_ = Fail(Code::kInvalidArgument, fmt::format("operations: {}{}: {}, expected {}", place_, field, value, expected));
  }

  void AtMost(const char* field, int size, int most) {
    if (size > most) Refuse(field, fmt::format("{} of them", size), fmt::format("at most {}", most));
  }

  template <typename Enum>
  void Word(const char* field, int value, int most, Enum& word) {
    if (value < 1 || value > most) return Refuse(field, value, fmt::format("a known word, 1 to {}", most));
    word = static_cast<Enum>(value - 1);
  }

  void Count(const char* field, int64_t value, int64_t most, int64_t& count) {
    if (value < 1 || value > most) return Refuse(field, value, fmt::format("1 to {}", most));
    count = value;
  }

  void Amount(const char* field, double value, double& amount) {
    if (!std::isfinite(value) || value < 0) return Refuse(field, value, "a finite number of at least 0");
    amount = value;
  }

  void Text(const char* field, const std::string& text, std::string_view& view) {
    const bool line = std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= 0x20 && c < 0x7f; });
    if (text.size() > kLongestListText || !line) {
      return Refuse(field, fmt::format("{} characters", text.size()), fmt::format("a line of at most {} of ASCII", kLongestListText));
    }
    view = *texts_.insert(text).first;  // a set's members stay where they are
  }

  Status status_ = Ok();
  std::string place_;
  std::set<std::string, std::less<>> texts_;
};

}  // namespace

v1::OperationList ToProto(const planner::OperationList& list) {
  v1::OperationList message;
  message.set_version(planner::OperationList::kVersion);
  message.set_schedule(ToWord<v1::PipelineSchedule>(list.schedule));
  message.set_stages(list.stages);
  message.set_chunks(list.chunks);
  message.set_micro_batches(list.micro_batches);
  message.set_ranks_per_stage(list.ranks_per_stage);
  for (const planner::StageOperations& equal : list.classes) {
    v1::StageOperations& out = *message.add_classes();
    for (const int64_t stage : equal.stages) out.add_stages(stage);
    for (const planner::Operation& o : equal.operations) *out.add_operations() = ToProto(o);
    for (const planner::Holding& piece : equal.memory) *out.add_memory() = ToProto(piece);
    out.set_fragmentation(equal.fragmentation);
  }
  return message;
}

Result<planner::OperationList> OperationListFromProto(const v1::OperationList& message) { return Reader().Read(message); }

}  // namespace weft::proto
