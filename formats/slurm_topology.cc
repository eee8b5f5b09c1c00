#include "formats/slurm_topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cctype>
#include <map>

#include "formats/one_line.h"

namespace weft::formats {
namespace {

constexpr size_t kMostHosts = 65'536;

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

bool IsNameCharacter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.'; }

tl::unexpected<Error> Bad(std::string_view list, std::string_view what) {
  return Fail(Code::kInvalidArgument, fmt::format("host list \"{}\": {}", OneLine(list, 80), what));
}

/// Appends prefix + number for every number of "1-3,07": zeros in front are kept.
Status AppendRange(std::string_view list, std::string_view prefix, std::string_view range, std::vector<std::string>* names) {
  const size_t dash = range.find('-');
  const std::string_view first = range.substr(0, dash);
  const std::string_view last = dash == std::string_view::npos ? first : range.substr(dash + 1);
  uint32_t from = 0, to = 0;
  for (const auto& [text, value] : {std::pair(first, &from), std::pair(last, &to)}) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
    if (text.empty() || error != std::errc() || end != text.data() + text.size() || text.size() > 9) {
      return Bad(list, fmt::format("\"{}\" is no number", OneLine(text, 20)));
    }
  }
  if (to < from) return Bad(list, fmt::format("range {}-{} runs backwards", from, to));
  if (to - from >= kMostHosts - std::min(kMostHosts, names->size())) return Bad(list, "more than 65,536 names");
  for (uint32_t n = from; n <= to; ++n) names->push_back(fmt::format("{}{:0{}}", prefix, n, first.size()));
  return Ok();
}

/// One item of a host list: a name, or a prefix with ranges in brackets at its end.
Status AppendItem(std::string_view list, std::string_view item, std::vector<std::string>* names) {
  const size_t bracket = item.find('[');
  const std::string_view prefix = item.substr(0, bracket);
  if (!std::ranges::all_of(prefix, IsNameCharacter)) return Bad(list, "a name with other characters than letters, digits, - _ .");
  if (bracket == std::string_view::npos) {
    if (item.empty()) return Bad(list, "an empty name");
    if (names->size() >= kMostHosts) return Bad(list, "more than 65,536 names");
    names->emplace_back(item);
    return Ok();
  }
  if (item.back() != ']') return Bad(list, "expected ']' at the end of a name with '['");
  std::string_view ranges = item.substr(bracket + 1, item.size() - bracket - 2);
  for (;;) {
    const size_t comma = ranges.find(',');
    WEFT_RETURN_IF_ERROR(AppendRange(list, prefix, ranges.substr(0, comma), names));
    if (comma == std::string_view::npos) return Ok();
    ranges.remove_prefix(comma + 1);
  }
}

class Reader {
 public:
  explicit Reader(std::string_view source) : source_(source) {}

  Status ReadText(std::string_view text) {
    std::string logical;
    int line = 0, begin = 1;
    while (!text.empty()) {
      const size_t end = text.find('\n');
      std::string_view physical = text.substr(0, end);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      ++line;
      if (logical.empty()) begin = line;
      physical = physical.substr(0, physical.find('#'));
      while (!physical.empty() && std::isspace(static_cast<unsigned char>(physical.back()))) physical.remove_suffix(1);
      const bool goes_on = !physical.empty() && physical.back() == '\\';
      if (goes_on) physical.remove_suffix(1);
      logical += physical;
      if (goes_on) continue;
      WEFT_RETURN_IF_ERROR(ReadLine(logical, begin));
      logical.clear();
    }
    WEFT_RETURN_IF_ERROR(ReadLine(logical, begin));
    return CheckTree();
  }

  std::vector<SlurmSwitch> Take() { return std::move(switches_); }

 private:
  tl::unexpected<Error> At(int line, const std::string& what) const {
    return Fail(Code::kInvalidArgument, fmt::format("{}: line {}: {}", source_, line, what));
  }

  Status ReadLine(std::string_view text, int line) {
    SlurmSwitch read{.line = line};
    bool sizes = false, empty = true;
    std::string kind;
    while (true) {
      while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
      if (text.empty()) break;
      const size_t end = static_cast<size_t>(
          std::ranges::find_if(text, [](unsigned char c) { return std::isspace(c) != 0; }) - text.begin());
      const std::string_view word = text.substr(0, end);
      text.remove_prefix(end);
      empty = false;
      const size_t equals = word.find('=');
      if (equals == std::string_view::npos) return At(line, fmt::format("\"{}\", expected key=value", OneLine(word, 60)));
      const std::string key = Lower(word.substr(0, equals));
      const std::string_view value = word.substr(equals + 1);
      sizes |= key == "blocksizes";
      WEFT_RETURN_IF_ERROR(ReadKey(key, value, &kind, &read));
    }
    if (empty || (sizes && kind.empty())) return Ok();
    if (read.name.empty()) return At(line, "neither SwitchName nor BlockName nor BlockSizes");
    if (read.nodes.empty() && read.switches.empty()) return At(line, fmt::format("{} has neither Nodes nor Switches", read.name));
    if (!by_name_.emplace(read.name, switches_.size()).second) return At(line, fmt::format("{} is there twice", read.name));
    switches_.push_back(std::move(read));
    return Ok();
  }

  Status ReadKey(const std::string& key, std::string_view value, std::string* kind, SlurmSwitch* read) const {
    if (key == "switchname" || key == "blockname") {
      if (!kind->empty()) return At(read->line, "two names in one line");
      if (value.empty() || value.size() > 255 || !std::ranges::all_of(value, IsNameCharacter)) {
        return At(read->line, fmt::format("name \"{}\", expected letters, digits, - _ .", OneLine(value, 60)));
      }
      *kind = key;
      read->name = value;
      return Ok();
    }
    if (key == "nodes" || key == "switches") {
      Result<std::vector<std::string>> names = ExpandHostList(value);
      if (!names) return At(read->line, names.error().message());
      (key == "nodes" ? read->nodes : read->switches) = std::move(*names);
      return Ok();
    }
    if (key == "linkspeed" || key == "blocksizes") return Ok();
    return At(read->line, fmt::format("unknown key \"{}\", expected SwitchName, Nodes, Switches, LinkSpeed, BlockName or "
                                      "BlockSizes", OneLine(key, 40)));
  }

  /// Every switch and node hangs below at most one switch, and nothing below itself.
  Status CheckTree() const {
    std::map<std::string_view, const SlurmSwitch*> switch_above, node_above;
    for (const SlurmSwitch& above : switches_) {
      for (const std::string& below : above.switches) {
        if (!by_name_.contains(below)) return At(above.line, fmt::format("switch {} is not defined", OneLine(below, 60)));
        if (!switch_above.emplace(below, &above).second) return At(above.line, fmt::format("switch {} is below two others", below));
      }
      for (const std::string& node : above.nodes) {
        if (!node_above.emplace(node, &above).second) return At(above.line, fmt::format("node {} is on two switches", OneLine(node, 60)));
        if (by_name_.contains(node)) return At(above.line, fmt::format("{} is a node and a switch", OneLine(node, 60)));
      }
    }
    for (const SlurmSwitch& start : switches_) {
      const SlurmSwitch* at = &start;
      for (size_t steps = 0; at != nullptr; ++steps) {
        if (steps > switches_.size()) return At(start.line, fmt::format("switch {} is below itself", start.name));
        const auto above = switch_above.find(at->name);
        at = above == switch_above.end() ? nullptr : above->second;
      }
    }
    return Ok();
  }

  std::string_view source_;
  std::vector<SlurmSwitch> switches_;
  std::map<std::string, size_t> by_name_;
};

}  // namespace

Result<std::vector<std::string>> ExpandHostList(std::string_view list) {
  std::vector<std::string> names;
  size_t begin = 0, depth = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] == '[' && ++depth > 1) return Bad(list, "'[' within '['");
    if (i < list.size() && list[i] == ']' && depth-- == 0) return Bad(list, "']' without '['");
    if (i < list.size() && (list[i] != ',' || depth > 0)) continue;
    WEFT_RETURN_IF_ERROR(AppendItem(list, list.substr(begin, i - begin), &names));
    begin = i + 1;
  }
  return names;
}

Result<std::vector<SlurmSwitch>> ParseSlurmTopology(std::string_view text, std::string_view source) {
  Reader reader(source);
  WEFT_RETURN_IF_ERROR(reader.ReadText(text));
  return reader.Take();
}

planner::Topology SlurmTopologyGraph(const std::vector<SlurmSwitch>& switches, BitsPerSecond rate) {
  planner::Topology topology;
  for (const SlurmSwitch& one : switches) topology.AddNode(one.name, planner::NodeKind::kSwitch);
  for (const SlurmSwitch& above : switches) {
    const planner::Topology& names = topology;
    const NodeId top = *names.FindNode(above.name);
    for (const std::string& below : above.switches) topology.AddCable(*names.FindNode(below), top, rate);
    for (const std::string& node : above.nodes) topology.AddCable(topology.AddNode(node, planner::NodeKind::kHost), top, rate);
  }
  return topology;
}

}  // namespace weft::formats
