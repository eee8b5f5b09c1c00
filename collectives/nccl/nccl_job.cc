#include "collectives/nccl/nccl_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "collectives/bootstrap.h"
#include "collectives/nccl/nccl_data.h"
#include "collectives/nccl/nccl_report.h"
#include "common/clock.h"
#include "common/parse_units.h"

namespace weft::collectives {
namespace {

constexpr int kCopyToDevice = 1, kCopyToHost = 2;  // cudaMemcpyKind
constexpr unsigned kNonBlocking = 1;               // cudaStreamNonBlocking
constexpr int kMostWrong = 3;                      // elements that an error names

double Now() { return SystemClock().Now().count(); }

void SleepUntil(double time) {
  if (const double left = time - Now(); left > 0) std::this_thread::sleep_for(std::chrono::duration<double>(left));
}

/// A communicator of this rank, and its place in it.
struct Member {
  NcclComm comm = nullptr;
  CudaStream stream = nullptr;
  std::vector<int> ranks;
  int mine = 0;

  int size() const { return static_cast<int>(ranks.size()); }
};

/// Memory of one step.
struct Buffers {
  void* send = nullptr;
  void* receive = nullptr;
  uint64_t call = 0;  ///< number that the contents follow from; 0: not filled yet
};

class Job {
 public:
  Job(const NcclJobOptions& options, const NcclLibrary& nccl, Bootstrap& bootstrap)
      : options_(options), nccl_(nccl), bootstrap_(bootstrap), buffers_(options.steps.size()) {}

  ~Job() {
    for (auto& [group, member] : members_) {
      if (member.comm != nullptr) (failed_ ? nccl_.abort : nccl_.destroy)(member.comm);
      if (member.stream != nullptr) nccl_.cuda_stream_destroy(member.stream);
    }
    for (const Buffers& buffers : buffers_) {
      nccl_.cuda_free(buffers.send);
      nccl_.cuda_free(buffers.receive);
    }
  }

  Status Run() {
    const Status done = RunAll();
    failed_ = !done;
    return done;
  }

 private:
  Status RunAll() {
    WEFT_RETURN_IF_ERROR(ChooseDevice());
    WEFT_RETURN_IF_ERROR(OpenGroups());
    WEFT_RETURN_IF_ERROR(Allocate());
    Print(NcclJobLine(options_));
    const double start = Now();
    bool more = true;
    int64_t iteration = 0;
    for (; more; ++iteration) {
      NcclIteration done{.number = iteration, .apart = {}, .calls = {}};
      if (IsApart(iteration)) done.apart.emplace();
      const double began = Now();
      WEFT_RETURN_IF_ERROR(Iterate(began, done));
      WEFT_ASSIGN_OR_RETURN(more, GoesOn(iteration, start));
      done.end = Seconds(Now());
      done.time = done.end - Seconds(began);
      if (!done.apart) times_.push_back(done.time.count());
      Print(NcclIterationLine(done));
    }
    WEFT_RETURN_IF_ERROR(CheckAll());
    Print(NcclSummaryLine(options_, nccl_.Version(), iteration, times_, checked_));
    return Ok();
  }

  Status ChooseDevice() {
    int devices = 0;
    WEFT_RETURN_IF_ERROR(nccl_.CheckCuda(nccl_.cuda_device_count(&devices), "cudaGetDeviceCount"));
    if (devices < 1) return Fail(Code::kFailedPrecondition, "cudaGetDeviceCount: no device on this host");
    const int device = options_.device.value_or(options_.rank.value() % devices);
    if (device < 0 || device >= devices) {
      return Fail(Code::kInvalidArgument, fmt::format("--device {}: this host has {}", device, devices));
    }
    return nccl_.CheckCuda(nccl_.cuda_set_device(device), "cudaSetDevice");
  }

  /// The communicators that the steps use, each from an id of its own, in one order on all ranks.
  Status OpenGroups() {
    constexpr std::pair<NcclGroup, const char*> kGroups[] = {{NcclGroup::kWorld, "world"},
                                                             {NcclGroup::kTensor, "tp"},
                                                             {NcclGroup::kData, "dp"},
                                                             {NcclGroup::kPipeline, "pp"}};
    for (const auto& [group, name] : kGroups) {
      const bool used = std::any_of(options_.steps.begin(), options_.steps.end(), [&](const NcclStep& step) {
        return step.call != NcclCall::kCompute && step.group == group;
      });
      if (used) WEFT_RETURN_IF_ERROR(OpenGroup(group, name));
    }
    return Ok();
  }

  Status OpenGroup(NcclGroup group, const char* name) {
    const int rank = options_.rank.value();
    Member member;
    size_t index = 0;
    const auto groups = RanksOfGroups(group, options_.world, options_.tensor, options_.pipeline);
    for (size_t i = 0; i < groups.size(); ++i) {
      const auto found = std::find(groups[i].begin(), groups[i].end(), rank);
      if (found == groups[i].end()) continue;
      member.ranks = groups[i];
      member.mine = static_cast<int>(found - groups[i].begin());
      index = i;
    }
    const auto traffic_class = options_.traffic_classes.find(group);
    NcclCommOptions made{.name = fmt::format("{}{}", name, index), .traffic_class = {}};
    if (traffic_class != options_.traffic_classes.end()) made.traffic_class = traffic_class->second;
    WEFT_ASSIGN_OR_RETURN(member.comm, OpenCommunicator(nccl_, bootstrap_, member.ranks, made));
    WEFT_RETURN_IF_ERROR(nccl_.CheckCuda(nccl_.cuda_stream_create(&member.stream, kNonBlocking), "cudaStreamCreate"));
    members_[group] = std::move(member);
    return Ok();
  }

  Status Allocate() {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (options_.steps[i].call == NcclCall::kCompute) continue;
      const size_t bytes = Elements(options_.steps[i]) * SizeOf(options_.type);
      WEFT_RETURN_IF_ERROR(nccl_.CheckCuda(nccl_.cuda_malloc(&buffers_[i].send, bytes), "cudaMalloc"));
      WEFT_RETURN_IF_ERROR(nccl_.CheckCuda(nccl_.cuda_malloc(&buffers_[i].receive, bytes), "cudaMalloc"));
    }
    return Ok();
  }

  /// Of the larger buffer: a multiple of the group's size where it is cut between ranks, at least one each.
  size_t Elements(const NcclStep& step) const {
    const bool cut = step.call == NcclCall::kAllGather || step.call == NcclCall::kReduceScatter || step.call == NcclCall::kAllToAll;
    const size_t parts = cut ? static_cast<size_t>(members_.at(step.group).size()) : 1;
    const size_t elements = static_cast<size_t>(step.bytes.count()) / SizeOf(options_.type);
    return std::max(elements / parts, size_t{1}) * parts;
  }

  /// By the number alone, so that all ranks do the same. The first is left out: it opens connections.
  bool IsApart(int64_t iteration) const {
    return options_.apart_every > 0 && iteration > 0 && iteration % options_.apart_every == options_.apart_every - 1;
  }

  /// All steps in order. Checking what the last iteration got and filling anew hide in the first pause for computation. In an
  /// iteration apart all ranks wait for each other after each pause.
  Status Iterate(double began, NcclIteration& iteration) {
    NcclApartCompute* const apart = iteration.apart ? &*iteration.apart : nullptr;
    WEFT_RETURN_IF_ERROR(CheckAll());
    for (size_t i = 0; i < buffers_.size(); ++i) WEFT_RETURN_IF_ERROR(Fill(options_.steps[i], buffers_[i]));
    double pause_from = began, computed = 0;
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const NcclStep& step = options_.steps[i];
      if (step.call != NcclCall::kCompute) {
        if (apart != nullptr) apart->ready.emplace_back(computed);
        WEFT_RETURN_IF_ERROR(step.timed ? Time(step, buffers_[i], iteration) : Begin(step, buffers_[i]));
        continue;
      }
      if (i > 0) {
        WEFT_RETURN_IF_ERROR(Wait());
        pause_from = std::max(pause_from, Now());
      }
      SleepUntil(pause_from + step.compute.count());
      computed += Now() - pause_from;
      if (apart != nullptr) {
        WEFT_ASSIGN_OR_RETURN(const auto slowest, bootstrap_.Largest(std::span(&computed, 1)));
        computed = slowest.front();
        apart->compute = Seconds(computed);
      }
      pause_from = Now();
    }
    return Wait();
  }

  /// What was begun before is waited for first, so that its time counts for nothing else.
  Status Time(const NcclStep& step, const Buffers& buffers, NcclIteration& iteration) {
    WEFT_RETURN_IF_ERROR(Wait());
    const double began = Now();
    for (int64_t call = 0; call < step.calls; ++call) WEFT_RETURN_IF_ERROR(Begin(step, buffers));
    WEFT_RETURN_IF_ERROR(Wait());
    iteration.calls.push_back((Now() - began) / static_cast<double>(step.calls));
    return Ok();
  }

  Status Fill(const NcclStep& step, Buffers& buffers) {
    if (step.call == NcclCall::kCompute || (buffers.call != 0 && !options_.check)) return Ok();
    buffers.call = ++filled_;
    const Member& member = members_.at(step.group);
    const size_t elements = Elements(step);
    const auto mine = FillWith(options_.type, elements, [&](size_t i) {
      return Contribution(options_.op, member.ranks[static_cast<size_t>(member.mine)], i, buffers.call);
    });
    return nccl_.CheckCuda(nccl_.cuda_memcpy(buffers.send, mine.data(), mine.size(), kCopyToDevice), "cudaMemcpy");
  }

  /// What this rank must have received. Empty: it receives nothing.
  std::vector<uint8_t> Expected(const NcclStep& step, uint64_t call) const {
    const Member& member = members_.at(step.group);
    const size_t ranks = member.ranks.size(), all = Elements(step), share = all / ranks;
    const auto mine = static_cast<size_t>(member.mine);
    const auto of = [&](size_t peer, size_t position) {
      return static_cast<double>(Contribution(options_.op, member.ranks[peer], position, call));
    };
    const auto reduced = [&](size_t position) {
      std::vector<int> values;
      for (const int rank : member.ranks) values.push_back(Contribution(options_.op, rank, position, call));
      return Reduced(options_.op, options_.type, values);
    };
    const NcclType type = options_.type;
    switch (step.call) {
      case NcclCall::kAllReduce: return FillWith(type, all, reduced);
      case NcclCall::kReduce: return mine == 0 ? FillWith(type, all, reduced) : std::vector<uint8_t>();
      case NcclCall::kBroadcast: return FillWith(type, all, [&](size_t i) { return of(0, i); });
      case NcclCall::kReduceScatter: return FillWith(type, share, [&](size_t i) { return reduced(mine * share + i); });
      case NcclCall::kAllGather: return FillWith(type, all, [&](size_t i) { return of(i / share, i % share); }, share);
      case NcclCall::kAllToAll: return FillWith(type, all, [&](size_t i) { return of(i / share, mine * share + i % share); }, share);
      case NcclCall::kNextStage:
        return mine == 0 ? std::vector<uint8_t>() : FillWith(type, all, [&](size_t i) { return of(mine - 1, i); });
      case NcclCall::kCompute: break;
    }
    return {};
  }

  Status CheckAll() {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (!options_.check || buffers_[i].call == 0) continue;
      const auto expected = Expected(options_.steps[i], buffers_[i].call);
      std::vector<uint8_t> got(expected.size());
      WEFT_RETURN_IF_ERROR(
          nccl_.CheckCuda(nccl_.cuda_memcpy(got.data(), buffers_[i].receive, got.size(), kCopyToHost), "cudaMemcpy"));
      checked_ += static_cast<int64_t>(got.size() / SizeOf(options_.type));
      if (got != expected) return Differs(i, got, expected);
    }
    return Ok();
  }

  Status Differs(size_t step, const std::vector<uint8_t>& got, const std::vector<uint8_t>& expected) const {
    const size_t size = SizeOf(options_.type);
    size_t wrong = 0;
    std::string named;
    for (size_t i = 0; i < got.size(); i += size) {
      if (std::equal(got.begin() + static_cast<ptrdiff_t>(i), got.begin() + static_cast<ptrdiff_t>(i + size),
                     expected.begin() + static_cast<ptrdiff_t>(i))) {
        continue;
      }
      if (++wrong > kMostWrong) continue;
      uint64_t has = 0, wants = 0;
      std::memcpy(&has, &got[i], size);
      std::memcpy(&wants, &expected[i], size);
      named += fmt::format(", element {} is {:#x}, expected {:#x}", i / size, has, wants);
    }
    return Fail(Code::kDataLoss, fmt::format("rank {}: --step number {}: {} of {} elements wrong{}", options_.rank.value(),
                                             step + 1, wrong, got.size() / size, named));
  }

  Status Begin(const NcclStep& step, const Buffers& buffers) {
    if (options_.delay && options_.delay->rank == options_.rank.value() && ++begun_ == options_.delay->call) {
      std::this_thread::sleep_for(std::chrono::duration<double>(options_.delay->time.count()));
    }
    const Member& member = members_.at(step.group);
    const NcclType type = options_.type;
    const size_t all = Elements(step), share = all / member.ranks.size();
    NcclComm comm = member.comm;
    CudaStream stream = member.stream;
    switch (step.call) {
      case NcclCall::kAllReduce:
        return nccl_.Check(nccl_.all_reduce(buffers.send, buffers.receive, all, type, options_.op, comm, stream), "ncclAllReduce", comm);
      case NcclCall::kReduce:
        return nccl_.Check(nccl_.reduce(buffers.send, buffers.receive, all, type, options_.op, 0, comm, stream), "ncclReduce", comm);
      case NcclCall::kBroadcast:
        return nccl_.Check(nccl_.broadcast(buffers.send, buffers.receive, all, type, 0, comm, stream), "ncclBroadcast", comm);
      case NcclCall::kReduceScatter:
        return nccl_.Check(nccl_.reduce_scatter(buffers.send, buffers.receive, share, type, options_.op, comm, stream),
                           "ncclReduceScatter", comm);
      case NcclCall::kAllGather:
        return nccl_.Check(nccl_.all_gather(buffers.send, buffers.receive, share, type, comm, stream), "ncclAllGather", comm);
      case NcclCall::kAllToAll: return Exchange(buffers, member, share);
      case NcclCall::kNextStage: return PassOn(buffers, member, all);
      case NcclCall::kCompute: break;
    }
    return Ok();
  }

  Status Exchange(const Buffers& buffers, const Member& member, size_t share) {
    const size_t bytes = share * SizeOf(options_.type);
    WEFT_RETURN_IF_ERROR(nccl_.Check(nccl_.group_start(), "ncclGroupStart"));
    for (int peer = 0; peer < member.size(); ++peer) {
      const size_t at = static_cast<size_t>(peer) * bytes;
      WEFT_RETURN_IF_ERROR(nccl_.Check(nccl_.send(static_cast<char*>(buffers.send) + at, share, options_.type, peer, member.comm,
                                                  member.stream), "ncclSend", member.comm));
      WEFT_RETURN_IF_ERROR(nccl_.Check(nccl_.recv(static_cast<char*>(buffers.receive) + at, share, options_.type, peer,
                                                  member.comm, member.stream), "ncclRecv", member.comm));
    }
    return nccl_.Check(nccl_.group_end(), "ncclGroupEnd", member.comm);
  }

  Status PassOn(const Buffers& buffers, const Member& member, size_t all) {
    WEFT_RETURN_IF_ERROR(nccl_.Check(nccl_.group_start(), "ncclGroupStart"));
    if (member.mine + 1 < member.size()) {
      WEFT_RETURN_IF_ERROR(nccl_.Check(nccl_.send(buffers.send, all, options_.type, member.mine + 1, member.comm, member.stream),
                                       "ncclSend", member.comm));
    }
    if (member.mine > 0) {
      WEFT_RETURN_IF_ERROR(nccl_.Check(nccl_.recv(buffers.receive, all, options_.type, member.mine - 1, member.comm, member.stream),
                                       "ncclRecv", member.comm));
    }
    return nccl_.Check(nccl_.group_end(), "ncclGroupEnd", member.comm);
  }

  /// Until all that was begun is done. A communicator's error ends it, and so does standing still for the timeout.
  Status Wait() {
    const double until = Now() + options_.timeout.count();
    for (const auto& [group, member] : members_) {
      WEFT_RETURN_IF_ERROR(WaitForStream(nccl_, member.comm, member.stream, Seconds(until - Now()),
                                         fmt::format("rank {}: a collective of {} ranks", options_.rank.value(), member.size())));
    }
    return Ok();
  }

  /// With a duration rank 0 decides, and all ranks take its word.
  Result<bool> GoesOn(int64_t iteration, double start) {
    if (options_.iterations) return iteration + 1 < *options_.iterations;
    const bool up = iteration + 1 >= options_.min_iterations && Now() - start >= options_.duration->count();
    const uint8_t word = up ? 0 : 1;
    WEFT_ASSIGN_OR_RETURN(const auto all, bootstrap_.AllGather(std::span(&word, 1)));
    return !all.front().empty() && all.front().front() != 0;
  }

  void Print(const std::string& line) const {
    if (options_.rank.value() != 0) return;
    fmt::print("{}\n", line);
    std::fflush(stdout);
  }

  const NcclJobOptions& options_;
  const NcclLibrary& nccl_;
  Bootstrap& bootstrap_;
  std::map<NcclGroup, Member> members_;
  std::vector<Buffers> buffers_;
  std::vector<double> times_;  // without those whose collectives were apart
  uint64_t filled_ = 0;
  int64_t begun_ = 0, checked_ = 0;
  bool failed_ = false;
};

}  // namespace

Status RunNcclJob(const NcclJobOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckNcclJobOptions(options));
  WEFT_ASSIGN_OR_RETURN(const auto nccl, NcclLibrary::Open(options.nccl, options.cuda));
  WEFT_ASSIGN_OR_RETURN(const auto bootstrap,
                        Bootstrap::Join({.rank = options.rank, .world = options.world, .address = options.rendezvous,
                                         .timeout = options.timeout, .listener = -1}));
  const Status done = Job(options, *nccl, *bootstrap).Run();
  if (!done) bootstrap->ReportFailure(done.error());  // so that the others say why it ended
  return done;
}

}  // namespace weft::collectives
