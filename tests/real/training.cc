#include "tests/real/training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/parse_units.h"
#include "formats/calibration_yaml.h"
#include "formats/hf_config.h"
#include "formats/program_json.h"
#include "formats/scenario_yaml.h"
#include "planner/plan/model_ways.h"
#include "testbed/process.h"
#include "tests/real/program_profile.h"

namespace weft::real {
namespace {

constexpr int kCalibrationSteps = 12;
constexpr Seconds kCalibrationPatience{120};
constexpr int64_t kMoreSteps = 4;           // than what is measured takes: the first ones, and the other job's
constexpr double kLeastIterations = 4;         // of the slowest job, that are measured
constexpr double kMostlyMarked = 0.9;       // what stood in queues when the class changed has the old one
constexpr double kFaster = 1.3;             // than foretold a job may be, and not end too soon

/// What weft-train is told of one strategy of a job.
struct ProgramFiles {
  std::string config, program, calibration;
};

Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  return file ? Ok() : Status(Fail(Code::kUnavailable, path + ": cannot be written"));
}

/// A core that is `stretch` times slower.
void Slow(double stretch, const std::vector<planner::MeasuredConstant>& constants, planner::ClusterSpec* cluster) {
  for (FlopsPerSecond& peak : cluster->device.peak) peak = FlopsPerSecond(peak.value() / stretch);
  cluster->device.memory_rate = cluster->device.memory_rate / stretch;
  for (planner::MeasuredConstant constant : constants) {
    if (constant.name == "gpu.cpu.launch" || constant.name == "host.kernel") constant.value *= stretch;
    cluster->measured.push_back(std::move(constant));
  }
  cluster->measured.push_back({"link.nic.efficiency", 1});  // what was measured is what payload gets
}

/// The jobs of a scenario with their ways, and the programs of these.
class Jobs {
 public:
  Jobs(const TrainingOptions& options, formats::ScenarioFile file) : options_(options), file_(std::move(file)) {}

  Status Prepare() {
    WEFT_ASSIGN_OR_RETURN(constants_, formats::ReadMeasuredConstants(options_.calibration));
    for (formats::ScenarioModel& model : file_.models) WEFT_RETURN_IF_ERROR(PrepareModel(&model));
    if (ways_.size() == file_.scenario.jobs.size()) return Ok();
    return Fail(Code::kInvalidArgument,
                fmt::format("{}: {} of {} jobs with a model and given hosts, expected all", options_.scenario, ways_.size(),
                            file_.scenario.jobs.size()));
  }

  const planner::Scenario& scenario() const { return file_.scenario; }

  /// The longest iteration of any job in any way, alone.
  Seconds Slowest() const {
    Seconds slowest{0};
    for (const auto& [job, ways] : ways_) {
      for (const Way& way : ways) slowest = std::max(slowest, way.alone);
    }
    return slowest;
  }

  /// The job in that way, as weft-train runs it for `length`.
  JobSpec SpecOf(size_t job, size_t way, const planner::SimulatedJob& simulated, Seconds length) const {
    const planner::ScenarioWay described = WayOf(file_.scenario.jobs[job], way);
    const Way& own = ways_.at(job)[way];
    JobSpec spec{.name = simulated.name, .hosts = own.hosts, .compute = described.compute};
    for (const planner::BurstTimes& times : described.bursts) spec.bursts.push_back({times, Bytes(0)});
    const auto place = [&](NodeId node) {
      const std::string& name = file_.scenario.topology.node(node).name;
      return static_cast<size_t>(std::ranges::find(own.hosts, name) - own.hosts.begin());
    };
    for (const planner::ScenarioFlow& flow : described.flows) {
      spec.flows.push_back({place(flow.from), place(flow.to), flow.bytes, flow.per_burst});
    }
    const auto steps = static_cast<int64_t>(std::ceil(length * kFaster / simulated.iteration)) + kMoreSteps;
    spec.command = Training(own.files);
    const std::vector<std::string> run{"--calibration", own.files.calibration, "--stretch", fmt::format("{}", options_.stretch),
                                       "--steps", std::to_string(steps), "--stall-timeout", "60s", "--output", "json"};
    spec.command.insert(spec.command.end(), run.begin(), run.end());
    return spec;
  }

 private:
  struct Way {
    std::vector<std::string> hosts;  ///< in order of rank
    ProgramFiles files;
    Seconds alone{0};                ///< an iteration
  };

  Status PrepareModel(formats::ScenarioModel* model) {
    Slow(options_.stretch, constants_, &model->cluster);
    planner::WayPlanner planner(model->spec, model->cluster, model->options);
    for (size_t i = 0; i < model->jobs.size() && !model->size; ++i) {
      const planner::NodeTiers fabric = planner::FindNodeTiers(file_.scenario.topology, model->ends[i]);
      WEFT_ASSIGN_OR_RETURN(planner::ModelWaysAnswer found, planner.On(fabric));
      if (found.ways.empty()) {
        const std::string why = fmt::format("{}", fmt::join(found.infeasible, "; "));
        return Fail(Code::kInvalidArgument, fmt::format("{}: no feasible plan: {}", model->place, why));
      }
      planner::ScenarioJob& job = file_.scenario.jobs[model->jobs[i]];
      for (planner::ModelWay& way : found.ways) {
        WEFT_ASSIGN_OR_RETURN(Way made, Price(*model, job.name, &way));
        for (const int32_t host : way.hosts) {
          made.hosts.push_back(file_.scenario.topology.node(model->ends[i][static_cast<size_t>(host)].front()).name);
        }
        Say(job.name, way.profile.plan, made.hosts);
        ways_[model->jobs[i]].push_back(std::move(made));
      }
      WEFT_RETURN_IF_ERROR(formats::ApplyWays(*model, i, found.ways, false, &file_.scenario));
      // A core reaches more than the peak that device cpu stands for: its work would be more than it computes.
      for (size_t w = 0; w < found.ways.size(); ++w) job.work = std::min(job.work, job.gpus * WayOf(job, w).compute.count());
    }
    return Ok();
  }

  static void Say(const std::string& job, const planner::JobPlan& plan, const std::vector<std::string>& hosts) {
    const planner::Prediction& alone = plan.predicted;
    fmt::print(stderr, "{}: {} alone, of which {:.0f} % waits for communication, on {}: {}\n", job, FormatDuration(alone.iteration),
               100 * (alone.parts.exposed_communication() / alone.iteration), fmt::join(hosts, " "),
               planner::DescribeStrategy(plan.strategy));
  }

  std::vector<std::string> Training(const ProgramFiles& files) const {
    return {options_.installation.bin + "/weft-train", "--config", files.config, "--data", options_.data, "--plan", files.program};
  }

  /// The way as its program, on computations that are timed now.
  Result<Way> Price(const formats::ScenarioModel& model, const std::string& name, planner::ModelWay* way) {
    planner::JobSpec job = model.spec;
    job.gpus = model.cluster.TotalGpus();
    WEFT_ASSIGN_OR_RETURN(const planner::StepProgram program,
                          planner::ProgramOf(job, model.cluster, way->profile.plan, planner::ElementType::kFloat32));
    WEFT_ASSIGN_OR_RETURN(const ProgramFiles files, FilesOf(model.spec.model, name, program));
    std::vector<planner::MeasuredConstant> measured = model.cluster.measured;
    WEFT_ASSIGN_OR_RETURN(const auto operations, formats::ReadMeasuredConstants(files.calibration));
    measured.insert(measured.end(), operations.begin(), operations.end());
    const planner::Calibration calibration = planner::Calibration().With(measured);
    WEFT_ASSIGN_OR_RETURN(planner::JobPlan plan,
                          PricedByProgram(way->profile.plan, program, model.cluster, calibration, options_.stretch));
    WEFT_ASSIGN_OR_RETURN(way->profile, planner::ProfileOf(job, model.cluster, std::move(plan)));
    return Way{.hosts = {}, .files = files, .alone = way->profile.plan.predicted.iteration};
  }

  /// Written and timed once per program.
  Result<ProgramFiles> FilesOf(const planner::ModelSpec& model, const std::string& job, const planner::StepProgram& program) {
    const std::string text = formats::WriteProgramJson(program);
    const auto known = files_.find(text);
    if (known != files_.end()) return known->second;
    const std::string stem = fmt::format("{}/{}-{}", options_.installation.run_dir, job, files_.size());
    const ProgramFiles files{stem + "-config.json", stem + "-program.json", stem + "-calibration.yaml"};
    WEFT_RETURN_IF_ERROR(WriteText(files.config, formats::WriteHfConfig(model)));
    WEFT_RETURN_IF_ERROR(WriteText(files.program, text));
    std::vector<std::string> command = Training(files);
    command.insert(command.end(), {"--calibrate", files.calibration, "--steps", std::to_string(kCalibrationSteps)});
    WEFT_ASSIGN_OR_RETURN(testbed::Process process,
                          testbed::Spawn({.argv = std::move(command), .environment = {{"OMP_NUM_THREADS", "1"}},
                                          .out = testbed::Output::Null(), .err = testbed::Output::File(stem + ".log")}));
    WEFT_ASSIGN_OR_RETURN(const testbed::ExitStatus status, process.Wait(kCalibrationPatience));
    if (!status.ok()) {
      return Fail(Code::kUnavailable, fmt::format("weft-train --calibrate: {}: {}", status.ToString(), LastLine(stem + ".log")));
    }
    files_.emplace(text, files);
    return files;
  }

  const TrainingOptions& options_;
  formats::ScenarioFile file_;
  std::vector<planner::MeasuredConstant> constants_;
  std::map<std::string, ProgramFiles> files_;      // by the program's text
  std::map<size_t, std::vector<Way>> ways_;        // by job
};

}  // namespace

Status RunTraining(const TrainingOptions& options, const std::function<void(const MixOutcome&)>& done) {
  WEFT_ASSIGN_OR_RETURN(formats::ScenarioFile file, formats::ReadScenarioYaml(options.scenario));
  WEFT_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(file.scenario.topology));
  Jobs jobs(options, std::move(file));
  WEFT_RETURN_IF_ERROR(jobs.Prepare());
  ExperimentOptions experiment;
  // As prediction_test.py has its ports: a message of a few milliseconds does not wait behind a bulk of another host.
  experiment.fabric = shape.At(options.link_rate, {.grain = Seconds(250e-6), .fair = true});
  experiment.installation = options.installation;
  experiment.goodput = shape.host_rate;
  experiment.phase = std::max(options.phase, kLeastIterations * jobs.Slowest());
  experiment.placed = false;
  const auto spec_of = [&](size_t job, size_t way, const planner::SimulatedJob& simulated) {
    return jobs.SpecOf(job, way, simulated, experiment.settle + experiment.phase);
  };
  for (const planner::SimulationPolicy policy : options.policies) {
    WEFT_ASSIGN_OR_RETURN(const MixOutcome made, RunPolicy(experiment, jobs.scenario(), policy, spec_of));
    done(made);
  }
  return Ok();
}

std::string TrainingLine(const MixOutcome& one) {
  nlohmann::json jobs = nlohmann::json::array();
  for (size_t j = 0; j < one.outcome.jobs.size(); ++j) {
    const JobOutcome& job = one.outcome.jobs[j];
    const JobEnd& end = one.ending.jobs[j];
    jobs.push_back({{"name", job.name},
                    {"strategy", one.strategies[j]},
                    {"hosts", one.hosts[j]},
                    {"spines", job.spines},
                    {"class", job.traffic_class},
                    {"iterations", job.iterations},
                    {"median_s", job.median.count()},
                    {"mean_s", job.measured.count()},
                    {"predicted_s", one.foretold[j].count()},
                    {"alone_s", job.alone.count()},
                    {"sent_bytes", end.bytes_sent},
                    {"cores_busy", end.busy},
                    {"overruns", end.overruns}});
  }
  const nlohmann::json line = {{"policy", one.outcome.policy}, {"goodput", one.goodput},
                               {"predicted_goodput", one.foretold_goodput}, {"jobs", jobs}};
  return line.dump() + "\n";
}

std::vector<std::string> BrokenFacts(const MixOutcome& one) {
  std::vector<std::string> broken;
  const auto say = [&](const std::string& fact) { broken.push_back(fmt::format("{}: {}", one.outcome.policy, fact)); };
  if (one.ending.rejected > 0) say(fmt::format("{} policy entries were refused by plugins", one.ending.rejected));
  for (size_t j = 0; j < one.outcome.jobs.size(); ++j) {
    const JobOutcome& job = one.outcome.jobs[j];
    const JobEnd& end = one.ending.jobs[j];
    if (job.iterations == 0) say(fmt::format("job {} made no whole iteration while both ran", job.name));
    if (end.bytes_planned == 0 || end.bytes_sent != end.bytes_planned) {
      say(fmt::format("job {} sent {} bytes, its program says {}", job.name, end.bytes_sent, end.bytes_planned));
    }
    const bool wanted = job.traffic_class == 0;
    if (wanted ? job.marked > kMostlyMarked : job.marked < 1 - kMostlyMarked) continue;
    say(fmt::format("{:.1f} % of the bytes of job {} left in the priority class, which it was {}", 100 * job.marked, job.name,
                    wanted ? "given" : "not given"));
  }
  return broken;
}

}  // namespace weft::real
