#include "collectives/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/connections.h"
#include "collectives/program.h"
#include "collectives/schedule_runner.h"
#include "collectives/table_choice.h"
#include "planner/collectives/algorithm.h"

namespace weft::collectives {
namespace {

using planner::BufferKind;
using planner::Schedule;

constexpr size_t kMaxPrograms = 128;
// How long a rank that sees a broken connection listens for which rank it was that died.
constexpr Seconds kCulpritWait{0.5};

/// FNV-1a over everything that an execution depends on.
class Digest {
 public:
  void Add(int64_t value) { hash_ = (hash_ ^ static_cast<uint64_t>(value)) * 0x100000001b3u; }
  void Add(planner::ChunkRef chunk) { Add(int64_t{chunk.chunk} * 4 + static_cast<int64_t>(chunk.buffer)); }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

uint64_t DigestOf(const Schedule& schedule) {
  Digest digest;
  digest.Add(static_cast<int64_t>(schedule.collective));
  digest.Add(schedule.chunk_count);
  digest.Add(schedule.scratch_chunks);
  for (const auto& steps : schedule.ranks) {
    digest.Add(static_cast<int64_t>(steps.size()));
    for (const planner::Step& step : steps) {
      digest.Add(static_cast<int64_t>(step.kind));
      digest.Add(step.peer.value());
      digest.Add(step.source);
      digest.Add(step.destination);
      digest.Add(static_cast<int64_t>(step.needs.size()));
      for (const StepId need : step.needs) digest.Add(need.value());
    }
  }
  return digest.value();
}

/// Page-aligned memory that is kept and grows.
class Arena {
 public:
  ~Arena() { std::free(data_); }
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t bytes() const { return bytes_; }
  bool Fits(size_t bytes) const { return bytes <= bytes_; }
  Status Grow(size_t bytes) {
    constexpr size_t kPage = 4096;
    const size_t rounded = (bytes + kPage - 1) / kPage * kPage;
    void* fresh = std::aligned_alloc(kPage, rounded);
    if (fresh == nullptr) {
      return Fail(Code::kResourceExhausted, fmt::format("no memory for {} bytes of scratch", bytes));
    }
    std::free(std::exchange(data_, fresh));
    bytes_ = rounded;
    return Ok();
  }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

bool Overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const auto* x = static_cast<const std::byte*>(a);
  const auto* y = static_cast<const std::byte*>(b);
  return x < y + b_bytes && y < x + a_bytes;
}

}  // namespace

class Communicator::Impl {
 public:
  Impl(NetPlugin& plugin, Bootstrap& bootstrap, const CommunicatorOptions& options, const TableChoice& choice)
      : plugin_(plugin), bootstrap_(bootstrap), options_(options), choice_(choice),
        connections_(plugin, bootstrap, options.device) {}

  RankId rank() const { return bootstrap_.rank(); }
  int world() const { return bootstrap_.world(); }
  int64_t bytes_sent() const { return bytes_sent_; }
  /// Not on the stack: its memory stays registered.
  std::span<float> barrier_token() { return {&barrier_token_, 1}; }

  Status Run(const Schedule& schedule, uint64_t digest, DataType type, int64_t count, const void* input, void* output,
             ReduceOperation operation);
  Status ConnectAll();
  Status Connect(std::vector<RankPair> pairs);
  Status RunChosen(planner::Collective collective, std::span<float> data, RankId root);
  void Forget(const void* data, size_t bytes) { connections_.Forget(data, bytes); }

 private:
  struct ProgramKey {
    uint64_t digest;
    int64_t count;
    bool in_place;
    friend auto operator<=>(const ProgramKey&, const ProgramKey&) = default;
  };
  struct Known {
    Schedule schedule;
    uint64_t digest;
  };

  Result<const Program*> Compiled(const Schedule& schedule, const ProgramKey& key);
  Result<RunBuffers> Bind(const Program& program, bool in_place, size_t element, const void* input, void* output);
  Status Execute(const Program& program, DataType type, ReduceOperation operation, const RunBuffers& buffers);
  Status Fall(const Error& error);
  Status Reserve(Arena* arena, size_t bytes);

  NetPlugin& plugin_;
  Bootstrap& bootstrap_;
  const CommunicatorOptions options_;
  const TableChoice choice_;
  Arena scratch_;
  Arena staging_;
  Connections connections_;  // after the arenas: closed before they go
  std::map<ProgramKey, Program> programs_;
  std::map<std::tuple<planner::AlgorithmSpec, planner::Collective, RankId>, Known> schedules_;
  std::optional<Error> failed_;
  int64_t bytes_sent_ = 0;
  std::chrono::nanoseconds usual_wait_{0};
  float barrier_token_ = 0;
};

Result<const Program*> Communicator::Impl::Compiled(const Schedule& schedule, const ProgramKey& key) {
  if (const auto known = programs_.find(key); known != programs_.end()) return &known->second;
  WEFT_RETURN_IF_ERROR(planner::ValidateSchedule(schedule));
  if (schedule.rank_count() != world()) {
    return Fail(Code::kInvalidArgument, fmt::format("schedule {} for {} ranks on a communicator of {}",
                                                    schedule.algorithm, schedule.rank_count(), world()));
  }
  const int64_t slice = options_.slice.count() / static_cast<int64_t>(ElementBytes(DataType::kFloat32));
  WEFT_ASSIGN_OR_RETURN(Program program, CompileProgram(schedule, {.rank = rank(), .count = key.count,
                                                                   .slice_elements = slice, .in_place = key.in_place}));
  if (programs_.size() >= kMaxPrograms) programs_.clear();
  return &programs_.emplace(key, std::move(program)).first->second;
}

Status Communicator::Impl::Reserve(Arena* arena, size_t bytes) {
  if (arena->Fits(bytes)) return Ok();
  if (arena->data() != nullptr) connections_.Forget(arena->data(), arena->bytes());
  return arena->Grow(bytes);
}

Result<RunBuffers> Communicator::Impl::Bind(const Program& program, bool in_place, size_t element, const void* input,
                                            void* output) {
  const size_t input_bytes = static_cast<size_t>(program.input_elements) * element;
  const size_t output_bytes = static_cast<size_t>(program.output_elements) * element;
  const size_t scratch_bytes = static_cast<size_t>(program.scratch_elements) * element;
  WEFT_RETURN_IF_ERROR(Reserve(&scratch_, scratch_bytes));
  // The run reads its input only: the one pointer type of RunBuffers costs it the const.
  auto* source = static_cast<std::byte*>(const_cast<void*>(input));
  const bool shared = input != nullptr && Overlap(input, input_bytes, output, output_bytes);
  if (shared && (!in_place || program.stage_input)) {
    WEFT_RETURN_IF_ERROR(Reserve(&staging_, input_bytes));
    std::memcpy(staging_.data(), input, input_bytes);
    source = staging_.data();
  }
  RunBuffers buffers;
  buffers.base = {source, static_cast<std::byte*>(output), scratch_.data()};
  // Scratch is registered whole, so that runs of different sizes share one registration.
  buffers.bytes = {source == staging_.data() ? staging_.bytes() : input_bytes, output_bytes, scratch_.bytes()};
  return buffers;
}

/// The communicator is over: tells the others, and finds out whether another rank was the cause.
Status Communicator::Impl::Fall(const Error& error) {
  failed_ = error;
  if (error.code() == Code::kUnavailable) {
    const Status culprit = bootstrap_.CheckPeers(kCulpritWait);
    if (!culprit && culprit.error().message() != error.message()) {
      failed_ = Error(culprit.error().code(), fmt::format("{} ({})", culprit.error().message(), error.message()));
    }
  }
  connections_.CloseAll();
  bootstrap_.ReportFailure(error);
  return Fail(*failed_);
}

Status Communicator::Impl::ConnectAll() {
  if (failed_) return Fail(*failed_);
  std::vector<RankPair> pairs;
  for (int32_t from = 0; from < world(); ++from) {
    for (int32_t to = 0; to < world(); ++to) {
      if (from != to) pairs.push_back({from, to});
    }
  }
  return Connect(std::move(pairs));
}

Status Communicator::Impl::Connect(std::vector<RankPair> pairs) {
  if (failed_) return Fail(*failed_);
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  if (auto status = connections_.Open(pairs, options_.stall_timeout); !status) return Fall(status.error());
  return Ok();
}

Status Communicator::Impl::Execute(const Program& program, DataType type, ReduceOperation operation, const RunBuffers& buffers) {
  if (auto status = connections_.Open(program.pairs, options_.stall_timeout); !status) return Fall(status.error());
  ScheduleRunner runner(program, buffers, plugin_, connections_,
                        {.rank = rank().value(),
                         .type = type,
                         .operation = operation,
                         .stall_timeout = options_.stall_timeout,
                         .idle_spin = options_.idle_spin,
                         .usual_wait = &usual_wait_,
                         .check_peers = [this] { return bootstrap_.CheckPeers(Seconds(0)); }});
  const Status status = runner.Run();
  bytes_sent_ += runner.bytes_sent();
  return status ? Ok() : Fall(status.error());
}

Status Communicator::Impl::Run(const Schedule& schedule, uint64_t digest, DataType type, int64_t count,
                               const void* input, void* output, ReduceOperation operation) {
  if (failed_) return Fail(*failed_);
  const bool sums =
      schedule.collective == planner::Collective::kAllReduce || schedule.collective == planner::Collective::kReduceScatter;
  if (sums && type == DataType::kByte) return Fail(Code::kInvalidArgument, "bytes are not summed, expected numbers");
  const bool in_place = input == output && count > 0;
  WEFT_ASSIGN_OR_RETURN(const Program* program, Compiled(schedule, {digest, count, in_place}));
  if ((program->reads_input && input == nullptr) || (program->writes_output && output == nullptr)) {
    return Fail(Code::kInvalidArgument, fmt::format("{} of {} elements: rank {} has no {}",
                                                    planner::CollectiveName(schedule.collective), count, rank().value(),
                                                    input == nullptr ? "input" : "output"));
  }
  WEFT_ASSIGN_OR_RETURN(const RunBuffers buffers, Bind(*program, in_place, ElementBytes(type), input, output));
  auto status = Execute(*program, type, operation, buffers);
  if (!status) {
    failed_ = status.error().WithContext(planner::CollectiveName(schedule.collective));
    return Fail(*failed_);
  }
  return Ok();
}

Status Communicator::Impl::RunChosen(planner::Collective collective, std::span<float> data, RankId root) {
  const Bytes bytes(static_cast<int64_t>(data.size_bytes()));
  const planner::AlgorithmSpec spec = root == RankId(0) ? choice_.For(collective, bytes) : planner::AlgorithmSpec{};
  auto known = schedules_.find({spec, collective, root});
  if (known == schedules_.end()) {
    WEFT_ASSIGN_OR_RETURN(Schedule schedule, planner::MakeSchedule(spec, collective, world(), root));
    const uint64_t digest = DigestOf(schedule);
    known = schedules_.emplace(std::tuple{spec, collective, root}, Known{std::move(schedule), digest}).first;
  }
  return Run(known->second.schedule, known->second.digest, DataType::kFloat32, static_cast<int64_t>(data.size()),
             data.data(), data.data(), ReduceOperation::kSum);
}

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Communicator::~Communicator() = default;

Result<std::unique_ptr<Communicator>> Communicator::Create(NetPlugin& plugin, Bootstrap& bootstrap,
                                                           const CommunicatorOptions& options) {
  const int devices = static_cast<int>(plugin.devices().size());
  if (options.device < 0 || options.device >= devices) {
    return Fail(Code::kInvalidArgument, fmt::format("device {} of net plugin \"{}\": expected one below {}",
                                                    options.device, plugin.name(), devices));
  }
  if (options.slice < Bytes(4) || options.stall_timeout <= Seconds(0)) {
    return Fail(Code::kInvalidArgument,
                fmt::format("slice of {} bytes, timeout of {:g} s: expected at least 4 bytes, a positive time",
                            options.slice.count(), options.stall_timeout.count()));
  }
  WEFT_ASSIGN_OR_RETURN(const TableChoice choice, TableChoice::Parse(options.table, bootstrap.world()));
  return std::unique_ptr<Communicator>(new Communicator(std::make_unique<Impl>(plugin, bootstrap, options, choice)));
}

RankId Communicator::rank() const { return impl_->rank(); }
int Communicator::world() const { return impl_->world(); }
Bytes Communicator::bytes_sent() const { return Bytes(impl_->bytes_sent()); }

Status Communicator::Run(const planner::Schedule& schedule, DataType type, int64_t count, const void* input,
                         void* output, ReduceOperation operation) {
  return impl_->Run(schedule, DigestOf(schedule), type, count, input, output, operation);
}

Status Communicator::ConnectAll() { return impl_->ConnectAll(); }

Status Communicator::Connect(std::span<const std::pair<int32_t, int32_t>> pairs) {
  std::vector<RankPair> list;
  for (const auto& [from, to] : pairs) list.push_back({from, to});
  return impl_->Connect(std::move(list));
}

Status Communicator::AllReduce(std::span<float> data) {
  return impl_->RunChosen(planner::Collective::kAllReduce, data, RankId(0));
}

Status Communicator::Broadcast(std::span<float> data, RankId root) {
  return impl_->RunChosen(planner::Collective::kBroadcast, data, root);
}

void Communicator::Forget(const void* data, Bytes bytes) {
  impl_->Forget(data, static_cast<size_t>(bytes.count()));
}

Status Communicator::Barrier() { return AllReduce(impl_->barrier_token()); }

}  // namespace weft::collectives
