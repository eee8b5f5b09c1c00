#include "formats/msccl_xml.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <sstream>

#include "planner/collectives/algorithm.h"
#include "planner/collectives/testing/interpreter.h"

namespace weft::formats {
namespace {

using planner::Collective;
using planner::testing::Content;
using ::testing::HasSubstr;

/// The value of an attribute of one line, "" if it is not there.
std::string Attribute(const std::string& line, const std::string& name) {
  const std::string key = std::string(" ").append(name).append("=\"");
  const size_t at = line.find(key);
  if (at == std::string::npos) return "";
  return line.substr(at + key.size(), line.find('"', at + key.size()) - at - key.size());
}
int Number(const std::string& line, const std::string& name) { return std::stoi(Attribute(line, name)); }

std::string Cell(const std::string& buffer, int32_t chunk) { return fmt::format("{}{}", buffer, chunk); }

/// What MSCCL's kernels do: every thread block runs its steps in order, waits for the step it depends on, and meets its peer
/// in first-in-first-out connections.
class Kernel {
 public:
  Kernel(const std::string& xml, const planner::Schedule& schedule) {
    std::istringstream lines(xml);
    for (std::string line; std::getline(lines, line);) {
      if (line.find("<gpu ") != std::string::npos) gpus_.emplace_back();
      if (line.find("<tb ") != std::string::npos) gpus_.back().blocks.push_back({Number(line, "send"), Number(line, "recv")});
      if (line.find("<step ") != std::string::npos) gpus_.back().blocks.back().steps.push_back(line);
    }
    for (size_t g = 0; g < gpus_.size(); ++g) {
      for (int32_t c = 0; c < schedule.input_chunks(); ++c) {
        gpus_[g].memory[Cell("i", c)] = Content{{{static_cast<int32_t>(g), c}, 1}};
      }
    }
  }

  /// Steps that never ran.
  size_t Run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t g = 0; g < gpus_.size(); ++g) {
        for (Block& block : gpus_[g].blocks) {
          while (block.next < block.steps.size() && TryStep(static_cast<int>(g), block)) progress = true;
        }
      }
    }
    size_t left = 0;
    for (const Gpu& gpu : gpus_) {
      for (const Block& block : gpu.blocks) left += block.steps.size() - block.next;
    }
    return left;
  }

  Content Output(int32_t rank, int32_t chunk) { return gpus_[static_cast<size_t>(rank)].memory[Cell("o", chunk)]; }

 private:
  struct Block {
    int send, receive;
    std::vector<std::string> steps = {};
    size_t next = 0;
  };
  struct Gpu {
    std::vector<Block> blocks;
    std::map<std::string, Content> memory;
  };

  bool TryStep(int rank, Block& block) {
    Gpu& gpu = gpus_[static_cast<size_t>(rank)];
    const std::string& line = block.steps[block.next];
    EXPECT_EQ(Number(line, "s"), static_cast<int>(block.next));
    if (const int depends = Number(line, "depid"); depends >= 0) {
      const Block& other = gpu.blocks.at(static_cast<size_t>(depends));
      const auto step = static_cast<size_t>(Number(line, "deps"));
      EXPECT_EQ(Number(other.steps.at(step), "hasdep"), 1);
      if (other.next <= step) return false;
    }
    const std::string type = Attribute(line, "type");
    const std::string from = Attribute(line, "srcbuf") + Attribute(line, "srcoff");
    const std::string to = Attribute(line, "dstbuf") + Attribute(line, "dstoff");
    if (type == "s") wires_[{rank, block.send}].push_back(gpu.memory[from]);
    if (type == "cpy") gpu.memory[to] = gpu.memory[from];
    if (type == "r") {
      auto& wire = wires_[{block.receive, rank}];
      if (wire.empty()) return false;
      gpu.memory[to] = wire.front();
      wire.pop_front();
    }
    if (type == "re") {
      for (const auto& [origin, count] : gpu.memory[from]) gpu.memory[to][origin] += count;
    }
    ++block.next;
    return true;
  }

  std::vector<Gpu> gpus_;
  std::map<std::pair<int, int>, std::deque<Content>> wires_;
};

TEST(MscclXml, EveryAlgorithmGivesItsResultWhenItsXmlIsInterpreted) {
  for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                                      Collective::kAllToAll, Collective::kBroadcast}) {
    for (const planner::Algorithm algorithm : planner::AlgorithmsFor(collective)) {
      for (const int32_t ranks : {2, 5, 8}) {
        const auto schedule = planner::MakeSchedule({algorithm}, collective, ranks);
        ASSERT_TRUE(schedule) << schedule.error().message();
        const auto xml = MscclXml(*schedule);
        ASSERT_TRUE(xml) << xml.error().message();
        Kernel kernel(*xml, *schedule);
        ASSERT_EQ(kernel.Run(), 0u) << schedule->algorithm;
        const planner::testing::Interpreter expected(*schedule, 0);
        for (int32_t r = 0; r < ranks; ++r) {
          for (int32_t c = 0; c < schedule->output_chunks(); ++c) {
            EXPECT_EQ(kernel.Output(r, c), expected.Expected(r, c, 0)) << schedule->algorithm << " rank " << r;
          }
        }
      }
    }
  }
}

TEST(MscclXml, TheHeadSaysWhatMscclMustKnow) {
  const auto schedule = planner::MakeSchedule({planner::Algorithm::kForest, 2}, Collective::kAllReduce, 4);
  ASSERT_TRUE(schedule);
  const auto xml = MscclXml(*schedule, {.protocol = "LL128", .least = Bytes(1024), .most = Bytes(4096)});
  ASSERT_TRUE(xml);
  EXPECT_THAT(*xml, HasSubstr("<algo name=\"weft-forest\""));
  EXPECT_THAT(*xml, HasSubstr("ngpus=\"4\" proto=\"LL128\" coll=\"allreduce\""));
  EXPECT_THAT(*xml, HasSubstr("minBytes=\"1024\" maxBytes=\"4096\""));
}

TEST(MscclXml, RefusesWhatMscclCannotRun) {
  const auto ring = planner::MakeSchedule({planner::Algorithm::kRing}, Collective::kAllReduce, 4);
  const auto protocol = MscclXml(*ring, {.protocol = "Fast"});
  ASSERT_FALSE(protocol);
  EXPECT_THAT(protocol.error().message(), HasSubstr("protocol \"Fast\""));
  const auto direct = planner::MakeSchedule({planner::Algorithm::kDirect}, Collective::kAllToAll, 80);
  const auto wide = MscclXml(*direct);
  ASSERT_FALSE(wide);
  EXPECT_EQ(wide.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(wide.error().message(), HasSubstr("159 peers and directions"));
  EXPECT_FALSE(MscclXml(planner::Schedule{}));
}

}  // namespace
}  // namespace weft::formats
