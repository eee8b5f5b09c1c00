#include "controller/job_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "common/launch_variable.h"
#include "formats/emit/emit.h"
#include "netplugin/abi/agent_socket.h"

namespace weft::controller {
namespace {

using formats::EmitTarget;

/// The lines of `text` that are no comments.
template <typename Use>
void ForEachLine(std::string_view text, const Use& use) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line.front() != '#') use(line);
  }
}

/// KEY=VALUE lines. Which plugin NCCL loads is the controller's to say.
void AddEnvironment(std::string_view text, v1::JobPlan& plan) {
  ForEachLine(text, [&](std::string_view line) {
    const size_t equals = line.find('=');
    if (equals == line.npos || line.substr(0, equals) == "NCCL_NET_PLUGIN") return;
    (*plan.mutable_environment())[std::string(line.substr(0, equals))] = std::string(line.substr(equals + 1));
  });
}

void AddFile(const formats::EmittedFile& file, v1::JobPlan& plan) {
  if (file.name == "megatron.args" || file.name == "weft-train.args") {
    ForEachLine(file.content, [&](std::string_view line) {
      for (std::string& word : ShellWords(line)) plan.add_arguments(std::move(word));
    });
  } else if (file.name == "megatron-bridge.overrides") {
    ForEachLine(file.content, [&](std::string_view line) { plan.add_arguments(std::string(line)); });
  } else if (file.name == "environment" || file.name == "nccl.conf") {
    AddEnvironment(file.content, plan);
  } else if (file.name == "torchtitan.toml" || file.name == "weft_flavor.py" || file.name == "deepspeed.json" ||
             file.name == "accelerate.yaml") {
    v1::LaunchFile& out = *plan.add_files();
    out.set_name(file.name);
    out.set_content(file.content);
  }  // the rest is the user's own: model, training loop, scripts that start them
}

/// How the program is to read what it was given.
std::string_view HowRead(EmitTarget target) {
  switch (target) {
    case EmitTarget::kMegatron: return "its arguments are those of pretrain_gpt.py";
    case EmitTarget::kMegatronBridge: return "its arguments are overrides behind a recipe of the model";
    case EmitTarget::kTorchtitan: return "start it with --job.config_file torchtitan.toml, weft_flavor.py on PYTHONPATH";
    case EmitTarget::kDeepSpeed: return "give deepspeed.json to deepspeed.initialize or to your script's --deepspeed_config";
    case EmitTarget::kAccelerate: return "start it with accelerate launch --config_file accelerate.yaml";
    case EmitTarget::kWeftTrain: return "its arguments are weft-train's, beside --config, --data and those that join its ranks";
    default: return "";
  }
}

/// What no file of the program says, and the user's script has to do.
std::vector<std::string> LeftToTheScript(EmitTarget target, const LaunchRequest& request) {
  const planner::Strategy& s = request.plan.strategy;
  std::vector<std::string> left;
  if (target == EmitTarget::kDeepSpeed && s.recompute == planner::Recompute::kFull) {
    left.emplace_back("recompute=full: only if your script calls the model's gradient_checkpointing_enable()");
  }
  if (target == EmitTarget::kDeepSpeed && s.cp > 1) {
    left.push_back(fmt::format("cp={}: only if your script uses UlyssesSPAttentionHF", s.cp));
  }
  if (target == EmitTarget::kAccelerate) {
    left.push_back(fmt::format(
        "micro_batch={} and {} micro-batches per step: your script's data loader and gradient_accumulation_steps say these",
        s.micro_batch, planner::MicroBatches(s, request.job.global_batch)));
  }
  if (target == EmitTarget::kTorchtitan) left.emplace_back("bucket_bytes: FSDP2 exchanges layer by layer");
  if (target == EmitTarget::kMegatronBridge) left.emplace_back("bucket_bytes and the model's sizes: the recipe's own");
  if (target != EmitTarget::kWeftTrain && std::max({s.tp, s.pp, s.cp, s.ep}) > 1) {
    left.emplace_back("algorithms of the communicators of tp, pp, cp and ep, and of parts of dp: NCCL's own choice, as a table of "
                      "collectives is for the communicator over all ranks");
  }
  return left;
}

/// As printf %b reads it; nothing but printable characters and escapes.
std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') out += "\\n";
    else if (c == '\\') out += "\\\\";
    else if (c >= ' ' && c != 0x7f) out += c;
    else out += fmt::format("\\0{:03o}", static_cast<unsigned char>(c));
  }
  return out;
}

std::string VariableOf(const std::string& file) {
  std::string name = kFilePrefix + file;
  for (char& c : name) {
    const auto byte = static_cast<unsigned char>(c);
    c = std::isalnum(byte) != 0 ? static_cast<char>(std::toupper(byte)) : '_';
  }
  return name;
}

size_t EnvironmentBytes(const v1::JobPlan& plan) {
  size_t bytes = 0;
  for (const auto& [name, value] : plan.environment()) bytes += name.size() + value.size() + 2;  // "=" and line end
  return bytes;
}

/// Whether a shell gives `text` back when it splits the joined arguments.
bool IsWord(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > ' ' && c < 0x7f && c != '"' && c != '\''; });
}

void Hand(const std::string& name, std::string value, v1::JobPlan& plan) {
  constexpr size_t kMost = sizeof(abi::EnvironmentReply::text);
  const size_t bytes = EnvironmentBytes(plan) + name.size() + value.size() + 2;
  if (bytes > kMost) {
    return plan.add_why(
        fmt::format("not handed to the batch system: {}: the launch environment would have {} bytes, an agent hands on {}; "
                    "weft explain JOB --output json has it",
                    name, bytes, kMost));
  }
  (*plan.mutable_environment())[name] = std::move(value);
}

}  // namespace

std::vector<std::string> ShellWords(std::string_view text) {
  std::vector<std::string> words;
  bool open = false, quoted = false;
  for (const char c : text) {
    if (c == '"') {
      quoted = !quoted;
      if (!open) words.emplace_back();
      open = true;
    } else if (!quoted && (c == ' ' || c == '\t')) {
      open = false;
    } else {
      if (!open) words.emplace_back();
      open = true;
      words.back() += c;
    }
  }
  return words;
}

void FillProgram(const LaunchRequest& request, v1::JobPlan& plan) {
  const planner::Framework framework = request.plan.framework;
  if (framework == planner::Framework::kWeftTrainDdp) return;  // job_planner.cc: one argument, and nothing is left
  const auto target = formats::EmitTargetOf(framework);
  if (!target) {
    return plan.add_why(
        "not enforced: the strategy: no program is named, so there are no launch arguments; weft plan --framework says "
        "which programs take some");
  }
  const planner::ProgramChoices choices = planner::ChoicesOf(request.plan.strategy, request.plan.operators, request.plan.operations,
                                                             request.cluster.gpus_per_node);
  const auto files = formats::EmitFolder({.job = request.job, .cluster = request.cluster, .strategy = request.plan.strategy,
                                          .framework = framework, .operators = request.plan.operators, .sums = choices.sums});
  if (!files) return plan.add_why("not enforced: the strategy: no launch arguments: " + files.error().message());
  for (const formats::EmittedFile& file : *files) AddFile(file, plan);
  plan.add_why(fmt::format(
      "enforced: the strategy, where {} reads what the plan hands over: {}; a script that says otherwise runs another one",
      planner::FrameworkTitle(framework), HowRead(*target)));
  if (*target == EmitTarget::kWeftTrain) {
    plan.add_why("enforced: the algorithms of its collectives, which the program has; no table of collectives is needed");
  }
  for (const std::string& left : LeftToTheScript(*target, request)) plan.add_why("not enforced: " + left);
}

void SayLauncher(v1::JobPlan& plan) {
  plan.add_why(
      "enforced: the environment and, where one is given, the table of collectives, in every process that torchrun starts; the "
      "order of ranks, if each host's --node-rank follows it");
  plan.add_why(
      fmt::format("not enforced: how your script splits the model{}: torchrun has no argument for it; name the program (framework: "
                  "megatron, torchtitan, deepspeed ...) to have a strategy searched and its arguments handed over",
                  plan.has_strategy() ? "; plain data parallelism is assumed until its traffic is measured" : ""));
}

void FillHandover(v1::JobPlan& plan) {
  if (plan.arguments_size() > 0) {
    std::string joined;
    bool words = true;
    for (const std::string& argument : plan.arguments()) {
      words = words && IsWord(argument);
      joined += (joined.empty() ? "" : " ") + argument;
    }
    if (words) {
      Hand(kArgumentsVariable, std::move(joined), plan);
    } else {
      plan.add_why(fmt::format(
          "not handed to the batch system: {}: an argument has blanks or quotes; weft explain JOB --output json has them",
          kArgumentsVariable));
    }
  }
  for (const v1::LaunchFile& file : plan.files()) Hand(VariableOf(file.name()), Escaped(file.content()), plan);
}

}  // namespace weft::controller
