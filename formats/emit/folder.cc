// EmitFolder: the files of one plan together, with scripts that start it.
#include <fmt/format.h>

#include <algorithm>

#include "formats/emit/writers.h"
#include "formats/hf_config.h"

namespace weft::formats {
namespace {

using planner::Framework;

// Settings of the user's own win.
constexpr std::string_view kPrologue = R"sh(set -euo pipefail
cd "$(dirname "$0")"
while IFS='=' read -r name value; do
  if [[ -z $name || $name == \#* || -n ${!name:-} ]]; then continue; fi
  export "$name=$value"
done < <(cat environment nccl.conf)
)sh";

struct Program {
  EmitTarget target;
  std::string_view file;   ///< its configuration
  std::string_view start;  ///< what the launch script does once $launch is set
};
constexpr Program kPrograms[] = {
    {EmitTarget::kMegatron, "megatron.args", R"sh(# MEGATRON_LM is a checkout of the release. Without --data-path behind it, the script trains on random tokens.
arguments=()
eval "arguments=($(grep -v '^#' megatron.args))"
data=(--mock-data --tokenizer-type NullTokenizer --split "969,30,1")
steps=(--train-iters 10)
for argument in "$@"; do
  case $argument in
    --data-path* | --train-data-path* | --data-args-path* | --per-split-data-args-path*) data=() ;;
    --train-samples* | --train-iters*) steps=() ;;
  esac
done
exec "${launch[@]}" "${MEGATRON_LM:?the folder of a checkout of the release}/pretrain_gpt.py" "${arguments[@]}" "${data[@]}" "${steps[@]}" --lr 1e-4 \
  --eval-iters 0 --log-interval 1 "$@"
)sh"},
    {EmitTarget::kTorchtitan, "torchtitan.toml", R"sh(# TORCHTITAN is a checkout of the release; its test data and tokenizer are the default.
here=$PWD
export PYTHONPATH=$here${PYTHONPATH:+:$PYTHONPATH}
cd "${TORCHTITAN:?the folder of a checkout of the release}"
exec "${launch[@]}" -m torchtitan.train --job.config_file "$here/torchtitan.toml" --training.steps 10 "$@"
)sh"},
    {EmitTarget::kDeepSpeed, "deepspeed.json", R"sh(# train.py trains the model of config.json on random tokens: put your own in its place.
exec "${launch[@]}" train.py "$@"
)sh"},
    {EmitTarget::kMegatronBridge, "megatron-bridge.overrides", R"sh(# MEGATRON_BRIDGE is a checkout of the release, RECIPE one of its recipes of this model.
mapfile -t overrides < <(grep -v '^#' megatron-bridge.overrides)
exec "${launch[@]}" "${MEGATRON_BRIDGE:?the folder of a checkout of the release}/scripts/training/run_recipe.py" --recipe "${RECIPE:?a recipe of this model}" \
  @DATASET@ "${overrides[@]}" "$@"
)sh"},
    {EmitTarget::kAccelerate, "accelerate.yaml", R"sh(# train.py trains the model of config.json on random tokens: put your own in its place.
exec accelerate launch --config_file accelerate.yaml --machine_rank "${NODE_RANK:-${SLURM_NODEID:-0}}" \
  --main_process_ip "$head" --main_process_port "${MASTER_PORT:-29500}" train.py "$@"
)sh"},
    {EmitTarget::kWeftTrain, "weft-train.args", R"sh(# WEFT_TRAIN is the program, WEFT_PLUGIN a libnccl-net-weft.so. Without --data behind it, it trains on texts of licenses.
read -r -a arguments <<< "$(grep -v '^#' weft-train.args | tr '\n' ' ')"
data=(--data /usr/share/common-licenses)
for argument in "$@"; do
  case $argument in --data*) data=() ;; esac
done
node=@NODE@
ranks=()
for ((i = 0; i < @PER_HOST@; i++)); do
  "${WEFT_TRAIN:-weft-train}" --config config.json "${arguments[@]}" --rank $((node * @PER_HOST@ + i)) --world @WORLD@ \
    --rendezvous "$head:${MASTER_PORT:-29500}" --plugin "${WEFT_PLUGIN:?a libnccl-net-weft.so}" "${data[@]}" "$@" &
  ranks+=($!)
done
status=0
for rank in "${ranks[@]}"; do wait "$rank" || status=$?; done
exit "$status"
)sh"},
};

std::string LaunchScript(const EmitRequest& request, const Program& program) {
  const int64_t gpus = planner::GpuCount(request.strategy), per_host = std::min(gpus, request.cluster.GpusPerHost());
  const bool many = gpus > per_host;
  std::string start(program.start);
  const std::string_view dataset =
      request.framework == Framework::kMegatronBridge04 ? "--dataset llm-pretrain-mock" : "--mode pretrain --dataset mock";
  for (const auto& [word, value] : {std::pair<std::string_view, std::string>{"@DATASET@", dataset},
                                    {"@PER_HOST@", fmt::format("{}", per_host)}, {"@WORLD@", fmt::format("{}", gpus)},
                                    {"@NODE@", many ? "${NODE_RANK:-${SLURM_PROCID:?NODE_RANK: the number of this host, from 0}}" : "0"}}) {
    for (size_t at = start.find(word); at != std::string::npos; at = start.find(word)) start.replace(at, word.size(), value);
  }
  return fmt::format(
      "#!/usr/bin/env bash\n# {}\n# {}, on every one of {} host{} with {} GPUs{}. Arguments go to the training program.\n"
      "# shellcheck disable=SC2034  # not every program wants all of the variables below\n{}"
      "head={}\n"

      "launch=(torchrun --nnodes={} --nproc-per-node={} --max-restarts=0 --rdzv-id=\"${{SLURM_JOB_ID:-weft}}\"\n"
      "  --rdzv-backend=c10d --rdzv-endpoint=\"$head:${{MASTER_PORT:-29500}}\")\n{}",
      PlanSummary(request), planner::FrameworkTitle(request.framework), gpus / per_host, many ? "s" : "", per_host,
      many ? ", with MASTER_ADDR the name of one of them" : "", kPrologue,
      many ? "${MASTER_ADDR:?the name of one of the hosts}" : "${MASTER_ADDR:-localhost}", gpus / per_host, per_host, start);
}

std::string SlurmScript(const EmitRequest& request) {
  const int64_t gpus = planner::GpuCount(request.strategy), per_host = std::min(gpus, request.cluster.GpusPerHost());
  return fmt::format(
      "#!/usr/bin/env bash\n"
      "#SBATCH --nodes={}\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node={}\n#SBATCH --exclusive\n"
      "# {}\n# sbatch launch-slurm.sh, in this folder. Arguments go to the training program.\n"
      "set -euo pipefail\n"
      "MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\nexport MASTER_ADDR\n"
      "exec srun --cpu-bind=none bash \"$SLURM_SUBMIT_DIR/launch-torchrun.sh\" \"$@\"\n",
      gpus / per_host, per_host, PlanSummary(request));
}

/// A training loop of our own for programs that bring none: Adam on random tokens.
std::string TrainingScript(const EmitRequest& request) {
  const planner::Strategy& s = request.strategy;
  const bool deepspeed = EmitTargetOf(request.framework) == EmitTarget::kDeepSpeed;
  const bool full = s.recompute == planner::Recompute::kFull;
  const bool masked = request.job.model.head == planner::HeadKind::kMaskedLanguage;
  std::string text = fmt::format(
      "# {}\n# {}: trains the model of config.json on random tokens. Not run with GPUs by Weft's own tests.\n"
      "import os\n\nimport torch\nfrom transformers import AutoConfig, {} as AutoModel\n\n"
      "MICRO_BATCH, SEQUENCE, ACCUMULATE, STEPS = {}, {}, {}, 10\n"
      "config = AutoConfig.from_pretrained(os.path.dirname(os.path.abspath(__file__)))\n",
      PlanSummary(request), planner::FrameworkTitle(request.framework), masked ? "AutoModelForMaskedLM" : "AutoModelForCausalLM",
      s.micro_batch, request.job.sequence, planner::MicroBatches(s, request.job.global_batch));
  const std::string loop = fmt::format(
      "for step in range(STEPS * ACCUMULATE):\n"
      "    tokens = torch.randint(config.vocab_size, (MICRO_BATCH, SEQUENCE{}), device=device)\n", s.cp > 1 && deepspeed ? fmt::format(" // {}", s.cp) : "");
  if (deepspeed) {
    text += "import deepspeed  # noqa: E402\n\ndeepspeed.init_distributed()\n"
            "device = torch.device(\"cuda\", int(os.environ[\"LOCAL_RANK\"]))\ntorch.cuda.set_device(device)\n";
    if (s.cp > 1) {
      text += fmt::format("from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF  # noqa: E402\n\n"
                          "mpu = UlyssesSPAttentionHF.register_with_transformers(\n"
                          "    model_name_or_path=config._name_or_path or \".\", core_attn_implementation=\"sdpa\",\n"
                          "    sequence_parallel_size={}, micro_batch_size=MICRO_BATCH, seq_length=SEQUENCE)\n", s.cp);
    } else {
      text += "mpu = None\n";
    }
    text += fmt::format("with deepspeed.zero.Init(config_dict_or_path=\"deepspeed.json\", enabled={}):\n"
                        "    model = AutoModel.from_config(config)\n", s.zero_stage == 3 ? "True" : "False");
    if (full) text += "model.gradient_checkpointing_enable()\n";
    text += "engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=\"deepspeed.json\", mpu=mpu)\n";
    std::string more;
    if (s.cp > 1) {  // each rank holds a part of every sequence, and says which
      text += fmt::format("share = SEQUENCE // {0}\npositions = torch.arange(share, device=device)[None] + int(os.environ[\"RANK\"]) % {0} * share\n",
                          s.cp);
      more = ", position_ids=positions, shift_labels=tokens";
    }
    text += loop + fmt::format("    loss = engine(input_ids=tokens, labels=tokens{}).loss\n    engine.backward(loss)\n    engine.step()\n", more);
  } else {
    text += "from accelerate import Accelerator  # noqa: E402\n\naccelerator = Accelerator(gradient_accumulation_steps=ACCUMULATE)\n"
            "device = accelerator.device\nmodel = AutoModel.from_config(config)\n";
    // With FSDP, accelerate.yaml turns checkpoints on.
    if (full && s.zero_stage == 0) text += "model.gradient_checkpointing_enable()\n";
    text += "model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-4))\n" + loop +
            "    with accelerator.accumulate(model):\n        loss = model(input_ids=tokens, labels=tokens).loss\n"
            "        accelerator.backward(loss)\n        optimizer.step()\n        optimizer.zero_grad()\n";
  }
  return text + "    if step % ACCUMULATE == ACCUMULATE - 1 and int(os.environ[\"RANK\"]) == 0:\n"
                "        print(f\"step {step // ACCUMULATE}: loss {loss.item():.4f}\", flush=True)\n";
}

}  // namespace

std::span<const std::string_view> FolderFiles() {
  static constexpr std::string_view kNames[] = {"megatron.args", "torchtitan.toml", "deepspeed.json", "megatron-bridge.overrides",
                                                "accelerate.yaml", "weft-train.args", "environment", "nccl.conf", "config.json", "weft_flavor.py",
                                                "train.py", "launch-torchrun.sh", "launch-slurm.sh"};
  return kNames;
}

Result<std::vector<EmittedFile>> EmitFolder(const EmitRequest& request) {
  const auto target = EmitTargetOf(request.framework);
  if (!target) {
    return Fail(Code::kInvalidArgument, fmt::format("{}: has no files of its own, expected --framework with one of megatron, "
                                                    "torchtitan, deepspeed, megatron-bridge, accelerate, weft-train, or an older release",
                                                    planner::FrameworkName(request.framework)));
  }
  const int64_t gpus = planner::GpuCount(request.strategy), per_host = std::min(gpus, request.cluster.GpusPerHost());
  if (gpus % per_host != 0) {
    return Fail(Code::kInvalidArgument, fmt::format("{} GPUs on hosts of {}, expected whole hosts", gpus, per_host));
  }
  const Program& program = *std::find_if(std::begin(kPrograms), std::end(kPrograms),
                                         [&](const Program& p) { return p.target == *target; });
  std::vector<EmittedFile> files;
  const auto add = [&](std::string_view name, std::string content, bool executable = false) {
    files.push_back({std::string(name), std::move(content), executable});
  };
  for (const auto& [what, name] : {std::pair{*target, program.file}, {EmitTarget::kEnvironment, "environment"},
                                   {EmitTarget::kNccl, "nccl.conf"}}) {
    WEFT_ASSIGN_OR_RETURN(std::string text, Emit(what, request));
    add(name, std::move(text));
  }
  add("config.json", WriteHfConfig(request.job.model));
  if (*target == EmitTarget::kTorchtitan) add("weft_flavor.py", TorchtitanFlavor(request));
  if (*target == EmitTarget::kDeepSpeed || *target == EmitTarget::kAccelerate) add("train.py", TrainingScript(request));
  add("launch-torchrun.sh", LaunchScript(request, program), true);
  add("launch-slurm.sh", SlurmScript(request), true);
  return files;
}

}  // namespace weft::formats
