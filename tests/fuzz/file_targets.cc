#include "formats/calibration_yaml.h"
#include "formats/checkpoint_json.h"
#include "formats/cluster_yaml.h"
#include "formats/collectives_csv.h"
#include "formats/given_strategy.h"
#include "formats/hf_config.h"
#include "formats/job_yaml.h"
#include "formats/lldp_json.h"
#include "formats/nccl_topology_xml.h"
#include "formats/plan_sequence.h"
#include "formats/program_json.h"
#include "formats/safetensors.h"
#include "formats/scenario_yaml.h"
#include "formats/slurm_topology.h"
#include "formats/testing/config_corpus.h"
#include "formats/testing/scenario_corpus.h"
#include "formats/testing/topology_corpus.h"
#include "formats/validation_csv.h"
#include "planner/planner.h"
#include "planner/workload/model_spec.h"
#include "tests/fuzz/samples.h"
#include "tests/fuzz/target.h"

namespace weft::fuzz {
namespace {

namespace samples = formats::testing;

constexpr const char* kSource = "fuzz";

/// Of a file a refusal names it first, and is no longer than a person reads.
template <typename T>
std::string SaidOfFile(const Result<T>& read) {
  const std::string said = Said(read);
  if (!read && read.error().code() != Code::kNotFound) {  // of another file that is named in it
    Require(said.starts_with(kSource), "a refusal that does not name the file");
    Require(said.size() < 600, "a refusal that nobody reads");
    Require(read.error().code() == Code::kInvalidArgument, "a refusal of another kind");
  }
  return said;
}

std::string OfModel(const std::string& text) {
  const auto read = formats::ParseHfModel(text, kSource);
  if (read) {
    Require(planner::ParameterCount(read->model) > 0, "a model without parameters");
    Require(planner::ParameterCount(read->model) >= planner::ActiveParameterCount(read->model), "more active parameters than there are");
    for (const std::string& warning : read->warnings) Require(warning.starts_with(kSource) && warning.size() < 600, "an unclear warning");
    const auto again = formats::ParseHfConfig(formats::WriteHfConfig(read->model), "written");
    Require(again.has_value() && *again == read->model, "a model that is another one when written and read");
  }
  return SaidOfFile(read);
}

std::string OfCluster(const std::string& text) {
  const auto read = formats::ParseClusterYaml(text, kSource);
  if (read) {
    Require(read->TotalGpus() > 0 && read->nic_rate.value() > 0, "a cluster without devices, or without a network");
    Require(read->device.memory > read->device.reserved, "a device without memory");
  }
  return SaidOfFile(read);
}

std::string OfPlan(const std::string& text) {
  const auto read = formats::ParsePlanJson(text, kSource, 0);
  if (read) {
    for (const planner::StrategyVariable& variable : planner::StrategyVariables()) {
      const auto value = variable.get(*read);
      Require(value >= variable.least && value <= variable.most, "a variable of a strategy out of its range");
    }
  }
  return SaidOfFile(read);
}

std::string OfHeader(const std::string& text) {
  const int64_t file_bytes = 8 + static_cast<int64_t>(text.size()) + 18;  // its length, itself, and the two tensors of the sample
  const auto read = formats::ParseSafetensorsHeader(text, file_bytes, kSource);
  if (read) {
    for (const formats::StoredTensor& tensor : *read) {
      Require(tensor.begin >= 8 + static_cast<int64_t>(text.size()) && tensor.begin <= tensor.end && tensor.end <= file_bytes, "a tensor outside of its file");
    }
  }
  return SaidOfFile(read);
}

std::vector<std::string> ModelTexts() {
  std::vector<std::string> all;
  for (const samples::ConfigSample& sample : samples::ModelConfigs()) all.emplace_back(sample.text);
  return all;
}

/// One that needs the text and where it is from only.
template <typename Parse>
Target Plain(std::string name, std::vector<std::string> corpus, Parse parse) {
  return {std::move(name), std::move(corpus), [parse](const std::string& text) { return SaidOfFile(parse(text, kSource)); }};
}

/// Of two layers on two ranks, with a pipeline and without.
std::vector<std::string> Programs() {
  std::vector<std::string> texts;
  for (const planner::Strategy& strategy : {planner::Strategy{.dp = 2}, planner::Strategy{.pp = 2}}) {
    texts.push_back(formats::WriteProgramJson(planner::ExpandProgram(SmallJob(), strategy, planner::ElementType::kFloat32).value()));
  }
  return texts;
}

const formats::CheckpointManifest kManifest{.step = 4, .files = {{"a.safetensors", 100}}, .sums = {{"wte", 3}}, .training = 5};
const formats::TrainingState kTraining{.step = 3, .seed = 1, .text_digest = 2, .sequence = 16, .global_batch = 8, .peak = 1e-3};
constexpr const char* kHeader = R"({"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
  "b": {"dtype": "BF16", "shape": [], "data_offsets": [16, 18]}})";

}  // namespace

std::vector<Target> FileTargets() {
  using namespace formats;
  const std::vector<std::string> scenarios(std::begin(samples::kScenarios), std::end(samples::kScenarios));
  return {
      {"model", ModelTexts(), OfModel},
      {"cluster", {samples::kClusterFile, samples::kGroupsFile, OfTree("docs/examples/clusters/oversubscribed.yaml")}, OfCluster},
      {"job", {samples::kJobFile, OfTree("cli/job.example.yaml")},
       [](const std::string& text) { return SaidOfFile(ParseJobYaml(text, kSource, "/nonexistent")); }},
      {"plan", {samples::kPlanFile}, OfPlan},
      {"scenario", scenarios, [](const std::string& text) { return SaidOfFile(ParseScenarioYaml(text, kSource, "/nonexistent")); }},
      Plain("calibration", {OfTree("planner/parallelism/calibration.yaml")}, ParseCalibrationYaml),
      Plain("program", Programs(), ParseProgramJson),
      Plain("plan-sequence", {"# step program\n0 a b.json\n\n50\tc.json"}, ParsePlanSequence),
      Plain("runs", {OfTree("tests/validation/zero_bubble.csv").substr(0, 4000), OfTree("tests/validation/torchgpipe.csv").substr(0, 4000)},
            ParseValidationCsv),
      Plain("collectives", {OfTree("tests/validation/collectives.csv").substr(0, 4000)},
            [](std::string_view text, std::string_view source) { return formats::ParseCollectiveTable(text, source); }),
      {"nccl-topology", {samples::kNcclTopology, samples::kNcclMesh},
       [](const std::string& text) { return SaidOfFile(ParseNcclTopologyXml(text, kSource, "h1")); }},
      Plain("lldp", {samples::kLldpOne, samples::kLldpSeveral}, ParseLldpJson),
      Plain("slurm-topology", {samples::kSlurmTree, samples::kSlurmBlocks}, ParseSlurmTopology),
      {"safetensors", {kHeader}, OfHeader},
      Plain("manifest", {formats::WriteManifest(kManifest)}, ParseManifest),
      Plain("training-state", {formats::WriteTrainingState(kTraining)}, ParseTrainingState),
      Plain("hf-index", {formats::WriteHfIndex({{"a", "x.safetensors"}, {"b", "y.safetensors"}}, 12)}, ParseHfIndex),
  };
}

}  // namespace weft::fuzz
