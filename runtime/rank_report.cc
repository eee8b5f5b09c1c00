#include "runtime/rank_report.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <array>
#include <cstring>

#include "formats/trace_writer.h"

namespace weft::runtime {
namespace {

Seconds ProcessorTime() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  return Seconds(seconds(usage.ru_utime) + seconds(usage.ru_stime));
}

using Numbers = std::array<double, 7>;

Numbers Pack(const RankMeasured& m) {
  return {m.iteration.count(), m.parts.compute.count(), m.parts.exposed.count(), m.parts.bubble.count(),
          static_cast<double>(m.peak.count()), m.busy, m.overruns};
}

RankMeasured Unpack(const Numbers& n) {
  return {.iteration = Seconds(n[0]),
          .parts = {.compute = Seconds(n[1]), .exposed = Seconds(n[2]), .bubble = Seconds(n[3])},
          .peak = Bytes(static_cast<int64_t>(n[4])),
          .busy = n[5],
          .overruns = n[6]};
}

/// Everybody's `values`, each of so many T or of any number.
template <typename T>
Result<std::vector<std::vector<T>>> Gather(const std::vector<T>& mine, collectives::Bootstrap* bootstrap) {
  if (bootstrap == nullptr) return std::vector<std::vector<T>>{mine};
  WEFT_ASSIGN_OR_RETURN(const auto blobs,
                        bootstrap->AllGather({reinterpret_cast<const uint8_t*>(mine.data()), mine.size() * sizeof(T)}));
  std::vector<std::vector<T>> all;
  for (const std::vector<uint8_t>& blob : blobs) {
    std::vector<T>& values = all.emplace_back(blob.size() / sizeof(T));
    std::memcpy(values.data(), blob.data(), values.size() * sizeof(T));
  }
  return all;
}

/// The tracks of one rank.
class RankTracks {
 public:
  RankTracks(const planner::StepProgram& program, size_t rank, formats::TraceWriter* writer)
      : program_(program),
        list_(program.classes[static_cast<size_t>(program.ranks[rank].rank_class)]),
        rank_(rank),
        writer_(*writer) {}

  void Add(int process, std::string_view which, const std::vector<planner::InstructionSpan>& spans) {
    writer_.AddName("process_name", process, 0, fmt::format("rank {}, {}", rank_, which));
    writer_.AddName("thread_name", process, 0, "compute");
    for (size_t c = 0; c < program_.communicators.size(); ++c) {
      if (planner::PlaceIn(program_.communicators[c], static_cast<int32_t>(rank_)).index < 0) continue;
      writer_.AddName("thread_name", process, c + 1, planner::CommunicatorKindName(program_.communicators[c].kind));
    }
    for (size_t k = 0; k < list_.instructions.size() && k < spans.size(); ++k) {
      if (spans[k].end <= spans[k].begin) continue;
      const planner::Instruction& i = list_.instructions[k];
      const size_t track = planner::Communicates(i.action) ? static_cast<size_t>(i.communicator) + 1 : 0;
      const std::string name = planner::OfPart(i.action)
                                   ? fmt::format("{} {}", planner::ActionName(i.action), planner::PartName(i.part))
                                   : std::string(planner::ActionName(i.action));
      writer_.Add(fmt::format(R"({{"ph": "X", "name": "{}", "pid": {}, "tid": {}, "ts": {}, "dur": {}, )"
                              R"("args": {{"instruction": {}, "layer": {}, "micro_batch": {}}}}})",
                              name, process, track, formats::TraceWriter::Stamp(spans[k].begin),
                              formats::TraceWriter::Stamp(spans[k].end - spans[k].begin), k, i.layer, i.micro_batch));
    }
  }

 private:
  const planner::StepProgram& program_;
  const planner::RankClass& list_;
  const size_t rank_;
  formats::TraceWriter& writer_;
};

}  // namespace

void StepSums::Begin() { processor_before_ = ProcessorTime(); }

void StepSums::Add(Seconds iteration, const StepRecord& record) {
  if (++steps_ == kWarmUpSteps + 1) {  // those before do not count any more
    const Seconds before = processor_before_;
    *this = StepSums();
    steps_ = kWarmUpSteps + 1;
    processor_before_ = before;
  }
  sum_.iteration += iteration;
  sum_.parts.compute += record.parts.compute;
  sum_.parts.exposed += record.parts.exposed;
  sum_.parts.bubble += record.parts.bubble;
  time_ += iteration;
  processor_ += ProcessorTime() - processor_before_;
  stretched_ += record.stretched;
  overruns_ += record.overruns;
}

RankMeasured StepSums::Means(Bytes peak) const {
  RankMeasured mean = sum_;
  const double share = 1 / static_cast<double>(steps_ > kWarmUpSteps ? steps_ - kWarmUpSteps : std::max<size_t>(steps_, 1));
  for (Seconds* of : {&mean.iteration, &mean.parts.compute, &mean.parts.exposed, &mean.parts.bubble}) *of = *of * share;
  mean.peak = peak;
  mean.busy = time_ > Seconds(0) ? processor_ / time_ : 0;
  mean.overruns = stretched_ > 0 ? static_cast<double>(overruns_) / static_cast<double>(stretched_) : 0;
  return mean;
}

Result<std::vector<RankMeasured>> GatherMeasured(const RankMeasured& mine, collectives::Bootstrap* bootstrap) {
  const Numbers numbers = Pack(mine);
  WEFT_ASSIGN_OR_RETURN(const auto all, Gather(std::vector<double>(numbers.begin(), numbers.end()), bootstrap));
  std::vector<RankMeasured> ranks;
  for (const std::vector<double>& values : all) {
    Numbers theirs{};
    if (values.size() != theirs.size()) {
      return Fail(Code::kInvalidArgument, fmt::format("rank {} measured {} numbers, expected {}", ranks.size(), values.size(), theirs.size()));
    }
    std::copy(values.begin(), values.end(), theirs.begin());
    ranks.push_back(Unpack(theirs));
  }
  return ranks;
}

Result<std::vector<std::vector<Seconds>>> GatherComputations(const std::vector<Seconds>& mine, collectives::Bootstrap* bootstrap) {
  return Gather(mine, bootstrap);
}

Result<std::vector<std::vector<planner::InstructionSpan>>> GatherSpans(const std::vector<planner::InstructionSpan>& mine,
                                                                    collectives::Bootstrap* bootstrap) {
  return Gather(mine, bootstrap);
}

std::string ProgramTraceText(const planner::StepProgram& program, const std::vector<std::vector<planner::InstructionSpan>>& measured,
                             const std::optional<planner::ProgramTimeline>& planned) {
  formats::TraceWriter writer;
  for (size_t rank = 0; rank < measured.size() && rank < program.ranks.size(); ++rank) {
    RankTracks tracks(program, rank, &writer);
    const int process = 2 * static_cast<int>(rank) + 1;
    tracks.Add(process, "measured", measured[rank]);
    if (planned) tracks.Add(process + 1, "planned", planned->ranks[rank].instructions);
  }
  return writer.Take();
}

}  // namespace weft::runtime
