#include <fmt/ranges.h>

#include <algorithm>

#include "agent/config.h"
#include "agent/qos/mender.h"
#include "collectives/bootstrap_wire.h"
#include "collectives/replay.h"
#include "collectives/table_choice.h"
#include "common/parse_units.h"
#include "controller/config.h"
#include "formats/train_plan.h"
#include "netplugin/abi/collective_table.h"
#include "runtime/reshard/word.h"
#include "tests/fuzz/samples.h"
#include "tests/fuzz/target.h"

namespace weft::fuzz {
namespace {

std::string OfAgentFile(const std::string& text) {
  agent::AgentConfig config;
  const Status status = agent::LoadConfigText(text, "fuzz", &config);
  return status ? "" : status.error().message();
}

/// As the plugin reads it in the process of a job: what is taken comes back as it was written.
std::string OfPluginTable(const std::string& text) {
  abi::CollectiveTable table, again;
  size_t at = 0;
  if (const char* wrong = abi::ParseCollectiveTable(text.data(), text.size(), &table, &at)) {
    Require(table.count == 0 && at <= text.size(), "a refused table that is not empty, or a place beyond its text");
    return wrong;
  }
  Require(table.count <= abi::kMaxCollectiveEntries, "a table with more entries than it has room for");
  std::string printed(abi::kMaxCollectiveText + 1, '?');
  printed.resize(abi::PrintCollectiveTable(table, printed.data(), printed.size()));
  Require(table.count == 0 || !printed.empty(), "a table that cannot be printed");
  Require(abi::ParseCollectiveTable(printed.data(), printed.size(), &again, &at) == nullptr, "a printed table that is refused");
  Require(std::equal(table.entries, table.entries + table.count, again.entries, again.entries + again.count), "a printed table with other entries");
  return "";
}

std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == '\n') {
      words.emplace_back();
    } else {
      words.back().push_back(c);
    }
  }
  return words;
}

template <typename Parse>
Target Plain(std::string name, std::vector<std::string> corpus, Parse parse) {
  return {std::move(name), std::move(corpus), [parse](const std::string& text) { return Said(parse(text)); }};
}

std::string QosRecord() {
  agent::DcbState dcb;
  dcb.apps = {{1, 5, 0x8906}};
  dcb.trust = {5, 255};
  return agent::RecordText({{"eth0", {dcb, {{"rxe0", 1, 7}}, {{"rxe0", 1, 9}}}}});
}

std::string TrainText() {
  const auto words = formats::TrainArguments(SmallJob(), {.dp = 2}, {}).value();
  return fmt::format("{}", fmt::join(words, "\n"));
}

constexpr const char* kTable = "1;16x2:allreduce:0-65535:tree:ll:0;#00000000000000ff:alltoall:1-:hierarchical.8:-:64;*:broadcast:0-:ring:-:0";

}  // namespace

std::vector<Target> SettingTargets() {
  return {
      {"agent-file", {OfTree("deploy/systemd/agent.yaml")}, OfAgentFile},
      Plain("controller-file", {OfTree("controller/controller.example.yaml"), OfTree("deploy/systemd/controller.yaml")},
            [](const std::string& text) { return controller::ParseConfig(text, "fuzz"); }),
      Plain("qos-record", {QosRecord()}, agent::ParseRecord),
      {"plugin-table", {kTable}, OfPluginTable},
      Plain("table", {kTable}, [](const std::string& text) { return collectives::TableChoice::Parse(text, 4); }),
      Plain("burst", {"40ms:1MiB:60ms", "0s:4B"}, [](const std::string& text) { return collectives::ParseReplayBurst(text, Seconds(0.1)); }),
      Plain("address", {"10.0.0.1:29500", "[::1]:29500", "node-1:1"}, collectives::wire::ParseAddress),
      Plain("endpoint", {"10.0.0.1:7070", "[::1]:0"}, controller::ParseEndpoint),
      Plain("bytes", {"25MiB", "1.5GB", "0B"}, [](const std::string& text) { return ParseBytes(text); }),
      Plain("rate", {"100Gbit/s", "12.5GB/s"}, [](const std::string& text) { return ParseRate(text); }),
      Plain("duration", {"250ms", "1h", "3us"}, [](const std::string& text) { return ParseDuration(text); }),
      Plain("train-words", {TrainText()},
            [](const std::string& text) { return formats::ParseTrainArguments(Words(text)); }),
      Plain("strategy", {"dp=2,tp=2,pp=2,schedule=1f1b,zero_stage=1"},
            [](const std::string& text) { return formats::ParseStrategyText(text); }),
      Plain("operators", {"e+2:s:k+1:4r1:4k4/3:r:r+h4"}, [](const std::string& text) { return formats::ParseOperatorsText(text); }),
      Plain("meeting", {runtime::MeetingText(12, {3, "--strategy dp=2"}), runtime::MeetingText(1, {})}, runtime::ParseMeetingText),
  };
}

}  // namespace weft::fuzz
