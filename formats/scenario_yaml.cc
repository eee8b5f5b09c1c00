#include "formats/scenario_yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "common/parse_units.h"
#include "formats/one_line.h"
#include "formats/read_file.h"
#include "formats/scenario_cluster.h"
#include "formats/scenario_jobs.h"
#include "formats/yaml_fields.h"

namespace weft::formats {
namespace {

using planner::Topology;

constexpr double kMostProfileError = 0.9;
constexpr size_t kMostScenarioFaults = 100'000;  // links, over all faults

void ReadPolicies(YamlFields& fields, ScenarioFile* file) {
  for (const std::string& name : fields.TextList("policies")) {
    const auto policy = planner::ParsePolicy(name);
    if (!policy) {
      return fields.Reject("policies",
                           fmt::format("value \"{}\", expected some of {}", OneLine(name, 40), planner::PolicyNames()));
    }
    if (std::ranges::find(file->policies, *policy) != file->policies.end()) {
      return fields.Reject("policies", fmt::format("\"{}\" stands twice", name));
    }
    file->policies.push_back(*policy);
  }
  if (file->policies.empty()) file->policies = {planner::SimulationPolicy::kWeft};
}

void ReadWindows(YamlFields& fields, planner::Scenario* scenario) {
  if (fields.Value("windows") == nullptr) return;
  const std::string name = fields.Text("windows");
  if (name == "free") scenario->windows = planner::ScenarioWindows::kFree;
  else if (name == "senders") scenario->windows = planner::ScenarioWindows::kSenders;
  else if (name == "none") scenario->windows = planner::ScenarioWindows::kNone;
  else fields.Reject("windows", fmt::format("\"{}\", expected free, senders or none", name));
}

void ReadScalars(YamlFields& fields, ScenarioFile* file) {
  planner::Scenario& scenario = file->scenario;
  scenario.name = fields.Text("name");
  for (const char c : scenario.name) {
    if (c < ' ' || c >= 0x7f) return fields.Reject("name", "expected printable characters");
  }
  if (fields.Value("duration") == nullptr) fields.Reject("duration", "missing, expected a duration such as 60s");
  scenario.duration = fields.Duration("duration", Seconds(1));
  if (!(scenario.duration.count() > 0 && scenario.duration <= std::chrono::hours(24 * 366))) {
    fields.Reject("duration", fmt::format("{} s, expected more than 0 and at most a year", scenario.duration.count()));
  }
  scenario.seed = static_cast<uint64_t>(fields.Integer("seed", 0, INT64_MAX, 1));
  scenario.draws = static_cast<int32_t>(fields.Integer("draws", 1, 1000, 1));
  scenario.classes = static_cast<int32_t>(fields.Integer("classes", 1, 64, 8));
  scenario.restart = fields.Duration("restart", scenario.restart);
  ReadWindows(fields, &scenario);
  file->profile_error = fields.Number("profile_error", 0, kMostProfileError, 0);
  ReadPolicies(fields, file);
}

/// "a->b" by its ends.
std::optional<LinkId> FindNamedLink(const Topology& topology, std::string_view name) {
  const size_t arrow = name.find("->");
  if (arrow == name.npos) return std::nullopt;
  const auto from = topology.FindNode(name.substr(0, arrow)), to = topology.FindNode(name.substr(arrow + 2));
  return from && to ? topology.FindLink(*from, *to) : std::nullopt;
}

/// The links of the cable "a-b", both directions where both exist. Names may hold dashes: of all ways to read it those
/// that name two nodes with a link count. Empty for none or for several.
std::vector<LinkId> FindCable(const Topology& topology, std::string_view name) {
  std::vector<LinkId> links;
  for (size_t dash = name.find('-'); dash != name.npos; dash = name.find('-', dash + 1)) {
    const auto a = topology.FindNode(name.substr(0, dash)), b = topology.FindNode(name.substr(dash + 1));
    if (!a || !b) continue;
    const auto there = topology.FindLink(*a, *b), back = topology.FindLink(*b, *a);
    if (!there && !back) continue;
    if (!links.empty()) return {};
    if (there) links.push_back(*there);
    if (back) links.push_back(*back);
  }
  return links;
}

class FaultReader {
 public:
  FaultReader(std::string_view source, planner::Scenario* scenario) : source_(source), scenario_(scenario) {}

  Status Read(const YamlValue& item, size_t index) {
    YamlFields fields(item, source_, fmt::format("faults[{}].", index));
    if (fields.Value("at") == nullptr) fields.Reject("at", "missing, expected a time such as 10s");
    const Seconds at = fields.Duration("at", Seconds(0));
    if (at >= scenario_->duration) {
      fields.Reject(
          "at", fmt::format("{} s, expected less than the duration, {} s", at.count(), scenario_->duration.count()));
    }
    const std::vector<LinkId> links = Links(fields);
    if (scenario_->faults.size() + links.size() > kMostScenarioFaults) {
      fields.Reject("at", fmt::format("more than {} links fail in all faults together", kMostScenarioFaults));
      return fields.Finish();
    }
    const std::string state = fields.Text("rate");
    for (const LinkId link : links) {
      scenario_->faults.push_back(
          {.at = at, .link = link, .capacity = Capacity(fields, state, scenario_->topology.link(link))});
    }
    return fields.Finish();
  }

 private:
  std::vector<LinkId> Links(YamlFields& fields) const {
    const char* key = nullptr;
    int keys = 0;
    for (const char* one : {"link", "cable", "switch"}) {
      if (fields.Value(one) == nullptr) continue;
      key = one;
      ++keys;
    }
    if (keys != 1) {
      fields.Reject("link", "expected one of a link such as leaf1->spine1, a cable such as leaf1-spine1 and a switch such as spine1");
      return {};
    }
    const std::string name = fields.Text(key);
    if (key == std::string_view("switch")) return LinksOfSwitch(fields, name);
    const bool cable = key == std::string_view("cable");
    std::vector<LinkId> links;
    if (cable) links = FindCable(scenario_->topology, name);
    else if (const auto link = FindNamedLink(scenario_->topology, name)) links = {*link};
    if (links.empty()) {
      fields.Reject(key, fmt::format("unknown {} \"{}\", expected two nodes with a link, as in {}", key,
                                     OneLine(name, 80), Example(cable)));
    }
    return links;
  }

  /// All links to and from it.
  std::vector<LinkId> LinksOfSwitch(YamlFields& fields, const std::string& name) const {
    const Topology& topology = scenario_->topology;
    const auto found = topology.FindNode(name);
    if (!found || topology.node(*found).kind != planner::NodeKind::kSwitch) {
      fields.Reject("switch", fmt::format("\"{}\", expected the name of a switch, as in {}", OneLine(name, 80), ExampleSwitch()));
      return {};
    }
    std::vector<LinkId> links;
    for (size_t l = 0; l < topology.links().size(); ++l) {
      if (topology.links()[l].from == *found || topology.links()[l].to == *found) links.push_back(LinkId(static_cast<int32_t>(l)));
    }
    return links;
  }

  std::string ExampleSwitch() const {
    for (const planner::Node& node : scenario_->topology.nodes()) {
      if (node.kind == planner::NodeKind::kSwitch) return node.name;
    }
    return "none: the cluster has no switch";
  }

  std::string Example(bool cable) const {
    const planner::Link& link = scenario_->topology.links().front();
    return scenario_->topology.node(link.from).name + (cable ? "-" : "->") + scenario_->topology.node(link.to).name;
  }

  static BitsPerSecond Capacity(YamlFields& fields, const std::string& state, const planner::Link& link) {
    if (state == "down") return BitsPerSecond(0);
    if (state == "up") return link.line_rate;
    const Result<BitsPerSecond> rate = ParseRate(state);
    if (!rate) {
      fields.Reject("rate", rate.error().message() + ", or down, or up");
    } else if (*rate > link.line_rate) {
      fields.Reject("rate",
                    fmt::format("{}, expected at most the link's {}", FormatRate(*rate), FormatRate(link.line_rate)));
    }
    return rate.value_or(link.line_rate);
  }

  std::string source_;
  planner::Scenario* scenario_;
};

/// Which nodes can be reached from `from`; nothing passes through a host or a GPU.
std::vector<bool> Reached(const Topology& topology, const std::vector<std::vector<NodeId>>& next, NodeId from) {
  std::vector<bool> reached(topology.nodes().size());
  std::vector<NodeId> frontier = {from};
  reached[from.index()] = true;
  while (!frontier.empty()) {
    const NodeId at = frontier.back();
    frontier.pop_back();
    const planner::NodeKind kind = topology.node(at).kind;
    if (at != from && (kind == planner::NodeKind::kHost || kind == planner::NodeKind::kGpu)) continue;
    for (const NodeId to : next[at.index()]) {
      if (reached[to.index()]) continue;
      reached[to.index()] = true;
      frontier.push_back(to);
    }
  }
  return reached;
}

/// Errors: kInvalidArgument for two hosts of a job without a path, as only a list of links or a file can leave them.
Status CheckConnected(const planner::Scenario& scenario, std::string_view source, int line) {
  const Topology& topology = scenario.topology;
  std::vector<std::vector<NodeId>> next(topology.nodes().size());
  for (const planner::Link& link : topology.links()) next[link.from.index()].push_back(link.to);
  std::map<NodeId, std::vector<bool>> reached;
  // A job that can get any places needs a path between all of them.
  planner::ScenarioJob any{.name = "", .flows = {}};
  for (size_t p = 1; p < scenario.places.size(); ++p) {
    const NodeId first = scenario.places[0].senders.front(), other = scenario.places[p].senders.front();
    any.flows.insert(any.flows.end(), {{first, other, Bytes(1)}, {other, first, Bytes(1)}});
  }
  for (const planner::ScenarioJob& job : scenario.jobs) {
    if (!job.sizes.empty()) any.name = job.name;
  }
  std::vector<const planner::ScenarioJob*> jobs = {&any};
  for (const planner::ScenarioJob& job : scenario.jobs) jobs.push_back(&job);
  for (const planner::ScenarioJob* const one : jobs) {
    const planner::ScenarioJob& job = *one;
    for (const planner::ScenarioFlow& flow : job.flows) {
      auto found = reached.find(flow.from);
      if (found == reached.end()) {
        if (reached.size() >= 1024) reached.clear();  // bounds memory; most jobs come back to few hosts
        found = reached.emplace(flow.from, Reached(topology, next, flow.from)).first;
      }
      if (found->second[flow.to.index()]) continue;
      return Fail(Code::kInvalidArgument,
                  fmt::format("{}:{}: key \"cluster\": no path from {} to {}, expected one as job \"{}\" sends there",
                              source, line, topology.node(flow.from).name, topology.node(flow.to).name, job.name));
    }
  }
  return Ok();
}

Status CheckFlows(const planner::Scenario& scenario, const std::string& place) {
  size_t flows = 0;
  for (const planner::ScenarioJob& job : scenario.jobs) {
    flows += job.flows.size();
    for (const planner::ScenarioWay& way : job.others) flows += way.flows.size();
    for (const planner::ScenarioSize& size : job.sizes) {
      for (const planner::ScenarioWay& way : size.ways) flows += way.flows.size();
    }
  }
  if (flows <= kMostScenarioFlows) return Ok();
  return Fail(Code::kInvalidArgument, fmt::format("{}: more than {} flows of all jobs", place, kMostScenarioFlows));
}

}  // namespace

Status ApplyWays(const ScenarioModel& model, size_t i, const std::vector<planner::ModelWay>& found, bool fine,
                 planner::Scenario* scenario) {
  planner::ScenarioJob& job = scenario->jobs[model.jobs[i]];
  std::vector<planner::ScenarioWay> ways;
  for (const planner::ModelWay& one : found) {
    const planner::ModelProfile& profile = one.profile;
    planner::ScenarioWay way{.name = planner::DescribeStrategy(profile.plan.strategy), .compute = profile.compute};
    std::vector<planner::TrafficEnd> ends;
    for (const int32_t host : one.hosts) ends.push_back(model.ends[i][static_cast<size_t>(host)]);
    std::vector<std::vector<planner::PairBytes>> between;
    for (const planner::ProfileBurst& burst : fine ? profile.fine : profile.bursts) {
      way.bursts.push_back(burst.times);
      between.push_back(burst.between);
    }
    way.release = way.bursts.empty() ? way.compute : way.bursts.front().release;
    way.flows = planner::FlowsOfBursts(ends, between);
    ways.push_back(std::move(way));
  }
  const planner::Prediction& predicted = found.front().profile.plan.predicted;
  const double gpus = model.size ? job.sizes[*model.size].gpus : job.gpus, work = predicted.mfu * predicted.iteration.count() * gpus;
  // The same FLOPs in every size, up to rounding, which must not make it more than the GPUs of a size compute.
  job.work = model.size && job.work > 0 ? std::min(job.work, work) : work;
  if (model.size) {
    for (const planner::ScenarioWay& way : ways) job.work = std::min(job.work, gpus * way.compute.count());
    job.sizes[*model.size].ways = std::move(ways);
  } else {
    planner::ScenarioWay& first = ways.front();
    job.way = std::move(first.name);
    job.compute = first.compute;
    job.release = first.release;
    job.bursts = std::move(first.bursts);
    job.flows = std::move(first.flows);
    job.others.assign(std::make_move_iterator(ways.begin() + 1), std::make_move_iterator(ways.end()));
  }
  return CheckFlows(*scenario, model.place);
}

/// A job that begins anew in another of the strategies that are planned for it; which there are is known once they are planned
/// (planner::Simulate refuses others).
Status ReadRestart(const YamlValue& item, std::string_view source, size_t index, planner::Scenario* scenario) {
  YamlFields fields(item, source, fmt::format("restarts[{}].", index));
  if (fields.Value("at") == nullptr) fields.Reject("at", "missing, expected a time such as 10s");
  planner::ScenarioRestart restart{.at = fields.Duration("at", Seconds(0)), .job = fields.Text("job"), .way = fields.Text("as")};
  if (restart.at >= scenario->duration) {
    fields.Reject("at", fmt::format("{} s, expected less than the duration, {} s", restart.at.count(), scenario->duration.count()));
  }
  if (index >= planner::kMostRestarts) fields.Reject("at", fmt::format("more than {} restarts", planner::kMostRestarts));
  const auto job = std::ranges::find(scenario->jobs, restart.job, &planner::ScenarioJob::name);
  if (job == scenario->jobs.end()) {
    fields.Reject("job", fmt::format("\"{}\", expected the name of a job", OneLine(restart.job, 40)));
  }
  WEFT_RETURN_IF_ERROR(fields.Finish());
  scenario->restarts.push_back(std::move(restart));
  return Ok();
}

Result<ScenarioFile> ParseScenarioYaml(std::string_view text, std::string_view source_name, const std::string& folder,
                                       std::optional<uint64_t> seed) {
  WEFT_ASSIGN_OR_RETURN(const YamlValue root, ParseYaml(text, source_name));
  YamlFields fields(root, source_name);
  ScenarioFile file;
  ReadScalars(fields, &file);
  if (seed) file.scenario.seed = *seed;
  const YamlValue* cluster_map = fields.Value("cluster");
  if (cluster_map == nullptr) fields.Reject("cluster", "missing, expected a map with the key fabric");
  const std::vector<YamlValue>& jobs = fields.List("jobs");
  if (jobs.empty()) fields.Reject("jobs", "expected a list of at least one job");
  const std::vector<YamlValue>& faults = fields.List("faults");
  const std::vector<YamlValue>& restarts = fields.List("restarts");
  WEFT_RETURN_IF_ERROR(fields.Finish());
  WEFT_ASSIGN_OR_RETURN(ScenarioCluster cluster, ReadScenarioCluster(*cluster_map, source_name, folder));
  WEFT_RETURN_IF_ERROR(ReadScenarioJobs(jobs, source_name, folder, cluster, &file));
  file.scenario.topology = std::move(cluster.topology);
  if (!cluster.generated) WEFT_RETURN_IF_ERROR(CheckConnected(file.scenario, source_name, cluster_map->line));
  FaultReader reader(source_name, &file.scenario);
  for (size_t i = 0; i < faults.size(); ++i) WEFT_RETURN_IF_ERROR(reader.Read(faults[i], i));
  for (size_t i = 0; i < restarts.size(); ++i) WEFT_RETURN_IF_ERROR(ReadRestart(restarts[i], source_name, i, &file.scenario));
  return file;
}

Result<ScenarioFile> ReadScenarioYaml(const std::string& path, std::optional<uint64_t> seed) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const size_t slash = path.rfind('/');
  return ParseScenarioYaml(text, path, slash == path.npos ? "" : path.substr(0, slash), seed);
}

}  // namespace weft::formats
