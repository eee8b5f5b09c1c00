#include "runtime/profile/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

namespace weft::runtime {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

/// Where a parameter lies: h.0.attn.weight is "attn.weight" of layer 0 of "h.".
struct Place {
  std::string stack, rest;
  int64_t index = -1;
};

/// A number in `name`: [begin, end).
struct Run {
  size_t begin = 0, end = 0;
};

std::vector<Run> Runs(std::string_view name, bool whole_parts) {
  std::vector<Run> runs;
  for (size_t i = 0; i < name.size();) {
    if (!IsDigit(name[i])) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < name.size() && IsDigit(name[end])) ++end;
    const bool whole = (i == 0 || name[i - 1] == '.') && (end == name.size() || name[end] == '.');
    if ((whole || !whole_parts) && end - i < 10) runs.push_back({i, end});
    i = end;
  }
  return runs;
}

class Naming {
 public:
  explicit Naming(const std::vector<TracedParameter>& parameters) {
    for (const TracedParameter& p : parameters) whole_parts_ = whole_parts_ || !Runs(p.name, true).empty();
    for (const TracedParameter& p : parameters) {
      for (const Run& run : Runs(p.name, whole_parts_))
        numbers_[p.name.substr(0, run.begin)].insert(p.name.substr(run.begin, run.end - run.begin));
    }
  }

  Place At(const std::string& name) const {
    for (const Run& run : Runs(name, whole_parts_)) {
      const std::string stack = name.substr(0, run.begin);
      if (!whole_parts_ && numbers_.at(stack).size() < 2) continue;
      const size_t rest = std::min(name.size(), name.find_first_not_of("._", run.end));
      return {stack, name.substr(rest), std::stoll(name.substr(run.begin, run.end - run.begin))};
    }
    return {.stack = "", .rest = name};
  }

 private:
  bool whole_parts_ = false;
  std::map<std::string, std::set<std::string>> numbers_;
};

/// Without what only says which of an operator's parameters it is, and with # for numbers: "experts.3.w1" as "experts.#.w1".
std::string OperatorName(std::string name) {
  for (const std::string_view last : {".weight", ".bias"}) {
    if (name.ends_with(last)) name.resize(name.size() - last.size());
  }
  std::string out;
  size_t from = 0;
  for (const Run& run : Runs(name, true)) {
    out += name.substr(from, run.begin - from) + "#";
    from = run.end;
  }
  return out + name.substr(from);
}

/// A segment's operators, each name once.
class Group {
 public:
  void Add(const std::string& name, const std::string& type, int64_t parameters, double flops, int64_t output) {
    const auto same = std::find_if(operators.begin(), operators.end(),
                                   [&](const planner::ModelOperator& o) { return o.name == name && o.type == type; });
    planner::ModelOperator& o = same != operators.end() ? *same : operators.emplace_back();
    o.name = name;
    o.type = type;
    o.parameters += parameters;
    o.flops += Flops(flops);
    o.output += Bytes(output);
  }

  std::vector<planner::ModelOperator> operators;
};

struct LayerGroup {
  std::string stack;
  int64_t index = -1;
  Group group;
};

/// Parameters that no operator read, into the group of their layer, or the last one.
void AddUnread(const TracedModel& traced, const Naming& naming, const std::set<size_t>& read, std::vector<LayerGroup>* groups) {
  for (size_t i = 0; i < traced.parameters.size(); ++i) {
    if (read.contains(i)) continue;
    const Place place = naming.At(traced.parameters[i].name);
    auto home = std::find_if(groups->begin(), groups->end(),
                             [&](const LayerGroup& g) { return g.stack == place.stack && g.index == place.index; });
    if (home == groups->end()) home = std::prev(groups->end());
    const std::string name = OperatorName(place.rest);
    std::string type = "not reached";
    for (const planner::ModelOperator& o : home->group.operators) {
      if (o.name == name) type = o.type;  // an expert that no token of this input chose
    }
    home->group.Add(name, type, traced.parameters[i].Count(), 0, 0);
  }
}

}  // namespace

std::vector<Segment> SegmentsOf(const TracedModel& traced) {
  const Naming naming(traced.parameters);
  std::vector<Segment> segments;
  for (const TracedOperator& o : traced.operators) {
    if (!o.parameters.empty() || segments.empty()) {
      const Place place = o.parameters.empty() ? Place{} : naming.At(traced.parameters[o.parameters.front()].name);
      if (segments.empty() || segments.back().stack != place.stack || segments.back().index != place.index) {
        segments.push_back({place.stack, place.index, {}});
      }
    }
    segments.back().operators.push_back(&o);
  }
  return segments;
}

planner::OperatorProfile ProfileOf(const TracedModel& traced) {
  const Naming naming(traced.parameters);
  std::vector<LayerGroup> layers;
  std::set<size_t> read;
  for (const Segment& segment : SegmentsOf(traced)) {
    LayerGroup layer{.stack = segment.stack, .index = segment.index, .group = {}};
    for (const TracedOperator* o : segment.operators) {
      int64_t parameters = 0;
      for (const size_t p : o->parameters) parameters += read.insert(p).second ? traced.parameters[p].Count() : 0;
      const std::string name =
          o->parameters.empty() ? o->kind : OperatorName(naming.At(traced.parameters[o->parameters.front()].name).rest);
      layer.group.Add(name, o->kind, parameters, o->flops, o->output_bytes);
    }
    layers.push_back(std::move(layer));
  }
  if (!layers.empty()) AddUnread(traced, naming, read, &layers);
  planner::OperatorProfile profile{.source = traced.name, .input = traced.input, .groups = {}, .assumptions = {}};
  profile.element_bytes = traced.parameters.front().element_bytes;
  for (LayerGroup& layer : layers) {
    planner::OperatorGroup next{.name = layer.stack.empty() ? "outside of layers" : layer.stack + "#", .count = 1,
                                .operators = std::move(layer.group.operators), .activations = {}};
    for (const planner::ModelOperator& o : next.operators) next.activations += o.output;
    planner::OperatorGroup* last = profile.groups.empty() ? nullptr : &profile.groups.back();
    if (last != nullptr && last->name == next.name && last->operators == next.operators) ++last->count;
    else profile.groups.push_back(std::move(next));
  }
  return profile;
}

}  // namespace weft::runtime
