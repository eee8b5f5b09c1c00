#include "formats/validation_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "planner/parallelism/memory_model.h"

namespace weft::formats {
namespace {

using planner::ClusterSpec;
using planner::Precision;
using planner::Recompute;
using planner::ScheduleKind;
using planner::Strategy;

struct Gpu {
  std::string_view prefix, device;
  double intra_gigabytes;     ///< per GPU and direction
  double nic_gigabits;        ///< per GPU, where the row does not say
};
// NVLink per direction from the systems' data sheets; NICs: one of 200 Gbit/s per A100, 400 per Hopper and Blackwell.
constexpr std::array kGpus = {
    Gpu{"A100-80GB", "a100-80", 300, 200}, Gpu{"A100-40GB", "a100-40", 300, 200}, Gpu{"A800", "a100-80", 200, 200},
    Gpu{"H100-96GB", "h100-96", 450, 400}, Gpu{"H100", "h100-80", 450, 400},      Gpu{"H800", "h800", 200, 400},
    Gpu{"H200", "h200", 450, 400},         Gpu{"GB200", "gb200", 900, 400},       Gpu{"GB300", "gb300", 900, 800},
    Gpu{"B200", "b200", 900, 400},         Gpu{"B300", "b300", 900, 800},         Gpu{"V100-16", "v100-16", 150, 50},
    Gpu{"V100", "v100-32", 150, 50},       Gpu{"L40S", "l40s", 25, 200},          Gpu{"P40", "p40", 12, 25},
};

/// The source's software: what its text, name or the row's notes say.
std::string_view StackNameOf(const ValidationRow& row) {
  const std::string_view source = row.source, notes = row.notes;
  const auto has = [](std::string_view text, std::string_view what) { return text.find(what) != std::string_view::npos; };
  if (Note(notes, "system") == "MegaScale") return "megascale";
  if (has(source, "2104.04473")) return "megatron-2021";
  if (has(source, "2205.05198")) return "megatron-2022";
  if (has(source, "bigscience")) return "megatron-deepspeed";
  if (has(source, "2401.10241")) return "zero-bubble";
  if (has(source, "2402.15627")) return "megatron-2023";
  if (has(source, "NeMo-Framework-Launcher")) return "nemo-2022";
  if (has(source, "NeMo 24") || has(source, "NeMo docs")) return "nemo-2024";
  if (has(source, "26.06")) return "nemo-2026-06";
  if (has(source, "(26.")) return "nemo-2026";
  if (has(source, "Megatron-Bridge")) return "nemo-2025-09";
  if (has(source, "dgxc")) return "nemo-2025";
  if (has(source, "llm-foundry")) return Note(notes, "fsdp_mixed_precision") == "PURE" ? "llm-foundry-pure" : "llm-foundry";
  if (has(source, "torchtitan")) return has(notes, "eager") ? "torchtitan-eager" : "torchtitan";
  if (has(source, "InternEvo")) return "internevo";
  if (has(source, "fms-fsdp")) return "fms-fsdp";
  if (has(source, "torchgpipe")) return "torchgpipe";
  if (has(source, "nanotron")) return "nanotron";
  if (has(source, "JAX-Toolbox")) return "jax-toolbox";
  if (has(source, "torchtune")) return has(notes, "chunked") ? "torchtune-chunked" : has(notes, "torch.compile") ? "torchtune-compiled" : "torchtune";
  if (has(source, "mlcommons")) {
    const bool graphs = (has(notes, "CUDA graphs") && !has(notes, "no CUDA graphs")) || has(notes, "LAMB");
    return graphs ? "mlperf-graphs" : "mlperf";
  }
  if (has(source, "MoE-ModelZoo")) {
    if (has(notes, "CUDA graphs")) return "nemo-graphs";
    if (has(notes, "whole MoE block")) return "megatron-moe-block";
    if (has(notes, "overlap")) return "megatron-moe-overlap";
    return has(notes, "dispatcher=a2a") ? "megatron-moe" : "megatron-moe-deepep";
  }
  if (has(source, "MarinFold")) return "nemo-2025";
  if (has(source, "Megatron-DeepSpeed")) return "megatron-deepspeed";
  if (has(source, "LlamaFactory") || has(source, "open-instruct") || has(source, "open-r1")) return "deepspeed";
  if (has(source, "metaseq") || has(source, "llama-cookbook") || has(source, "ColossalAI")) return "accelerate";
  if (has(source, "NVIDIA/Megatron-LM README")) return "megatron-h100";
  return "megatron-core";
}

Precision PrecisionOf(const ValidationRow& row) {
  std::string_view text = Note(row.notes, "precision");
  if (text.find("nvfp4") != std::string_view::npos || text.find("fp4") != std::string_view::npos) return Precision::kFp4;
  if (text.find("fp8") != std::string_view::npos) return Precision::kFp8;
  if (text.starts_with("fp16")) return Precision::kFp16;
  if (text.starts_with("fp32")) return Precision::kFp32;
  return Precision::kBf16;
}

struct NodeNics {
  double gigabits = 0;  // per second, of all together; 0: the notes do not say
  int64_t count = 0;    // 0: the same
};

/// From notes such as "4x100Gb/s" or "400Gb/s per node".
NodeNics NicsOf(std::string_view notes) {
  const size_t unit = notes.find("Gb");
  if (unit == std::string_view::npos || unit == 0) return {};
  const auto number_before = [&](size_t end) {
    size_t begin = end;
    while (begin > 0 && std::isdigit(static_cast<unsigned char>(notes[begin - 1]))) --begin;
    double value = 0;
    std::from_chars(notes.data() + begin, notes.data() + end, value);
    return std::pair{value, begin};
  };
  const size_t digits_end = notes[unit - 1] == ' ' ? unit - 1 : unit;
  const auto [rate, begin] = number_before(digits_end);
  if (rate == 0) return {};
  if (begin > 0 && notes[begin - 1] == 'x') {
    const double count = number_before(begin - 1).first;
    return {rate * count, static_cast<int64_t>(count)};
  }
  return {notes.substr(unit, 16).find("per node") != std::string_view::npos ? rate : 0, 0};
}

Result<ClusterSpec> ClusterOf(const ValidationRow& row) {
  for (const Gpu& gpu : kGpus) {
    if (!row.gpu.starts_with(gpu.prefix)) continue;
    ClusterSpec cluster;
    const int64_t gpus = *row.gpus;
    const int64_t per_node = row.gpus_per_node.value_or(8);
    cluster.name = row.gpu;
    cluster.device = *planner::FindDevice(gpu.device);
    cluster.gpus_per_node = per_node;
    cluster.nodes = (gpus + per_node - 1) / per_node;
    cluster.intra_node_rate = GigabytesPerSecond(gpu.intra_gigabytes);
    const NodeNics nics = NicsOf(row.notes);
    cluster.nic_rate = GigabitsPerSecond(nics.gigabits > 0 ? nics.gigabits : gpu.nic_gigabits * static_cast<double>(per_node));
    cluster.nics_per_node = nics.count;
    cluster.nic_kind = NicKindOf(row.notes);
    cluster.intra_latency = Seconds(4e-6);
    cluster.nic_latency = Seconds(12e-6);
    return cluster;
  }
  return Fail(Code::kFailedPrecondition, row.gpu.empty() ? "GPU type not stated" : fmt::format("GPU \"{}\" unknown", row.gpu));
}

/// Chunks per stage where a Megatron run does not say: two layers per chunk, or one if their number is odd.
int64_t DefaultChunks(const Strategy& s, int64_t layers) {
  if (s.pp == 1) return 1;
  const int64_t each = (layers + s.pp - 1) / s.pp;
  return each % 2 == 0 ? each / 2 : each;
}

ScheduleKind ScheduleOf(const ValidationRow& row, const Strategy& s) {
  const std::string_view text = Note(row.notes, "schedule");
  if (text.starts_with("zb-2p")) return ScheduleKind::kZbH2;
  if (text.starts_with("zb-1p")) return ScheduleKind::kZbH1;
  if (text.starts_with("gpipe")) return ScheduleKind::kGpipe;
  return s.vpp > 1 ? ScheduleKind::kInterleaved : ScheduleKind::k1F1B;
}

/// "ETP=4" or "zero1=8" among the notes.
int64_t NoteNumber(const ValidationRow& row, std::string_view key, int64_t otherwise) {
  const std::string_view text = Note(row.notes, key);
  int64_t value = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

void FillSharding(const ValidationRow& row, ValidationCase& out) {
  Strategy& s = out.strategy;
  if (row.zero_stage.empty() && row.notes.find("LAMB") != std::string::npos) {
    s.zero_stage = 0;  // its norms are of whole layers
  } else if (row.zero_stage.empty()) {
    s.zero_stage = 1;
    out.zero_unknown = true;
    out.defaults.push_back("zero_stage: 1, or 3 where nothing else fits");
  } else {
    s.zero_stage = row.zero_stage[0] - '0';
  }
  const int64_t group = NoteNumber(row, "zero1", 0);
  if (group > 0 && (s.dp * s.cp) % group == 0 && group < s.dp * s.cp) s.shard_group = group;
  if (s.zero_stage == 3 && s.pp > 1) s.keep_after_forward = true;
  const planner::SoftwareStack stack = planner::StackOf(out.framework);
  s.bucket_bytes = planner::DefaultBucket(
      out.framework, s, planner::StateBytesOf(stack.state, out.job.precision, stack.gradients_16bit).gradient_sent.count());
}

void FillRecompute(const ValidationRow& row, ValidationCase& out) {
  Strategy& s = out.strategy;
  if (row.recompute == "full") s.recompute = Recompute::kFull;
  if (row.recompute == "selective") {
    s.recompute = Recompute::kSelective;
    // Every n-th block, n not stated: half, or as many as needed.
    if (planner::FrameworkName(out.framework) == "fms-fsdp") {
      s.recompute = Recompute::kFull;
      s.recompute_layers = (out.job.model.layers / s.pp + 1) / 2;
      out.recompute_unknown = true;
    }
  }
  if (row.recompute.empty()) {
    out.recompute_unknown = true;
    out.defaults.push_back("recompute: the least that fits");
  }
}

Result<Strategy> StrategyOf(const ValidationRow& row, ValidationCase& out) {
  Strategy s;
  if (!row.tp || !row.pp || !row.dp) return Fail(Code::kFailedPrecondition, "tp, pp or dp not stated");
  s.tp = *row.tp;
  s.pp = *row.pp;
  s.dp = *row.dp;
  s.cp = row.cp.value_or(1);
  s.ep = row.experts ? row.ep.value_or(1) : 1;
  s.etp = row.experts ? NoteNumber(row, "ETP", 1) : 1;
  s.micro_batch = row.micro_batch.value_or(1);
  if (!row.micro_batch) out.defaults.push_back("micro_batch=1");
  s.vpp = row.vpp.value_or(DefaultChunks(s, out.job.model.layers));
  out.chunks_unknown = !row.vpp && s.pp > 1;
  if (!row.vpp && s.pp > 1) out.defaults.push_back(fmt::format("vpp={}: two layers per chunk", s.vpp));
  if (s.pp == 1) s.vpp = 1;
  while (s.vpp > 1 && s.pp * s.vpp > out.job.model.layers + 2) --s.vpp;
  s.schedule = ScheduleOf(row, s);
  const planner::SoftwareStack stack = planner::StackOf(out.framework);
  s.sequence_parallel = s.tp > 1 && row.seq_parallel.value_or(stack.sequence_parallel);
  if (!row.seq_parallel && s.tp > 1) out.defaults.push_back(fmt::format("sequence_parallel={}", s.sequence_parallel));
  if (s.cp > 1 && row.seq.value_or(0) % s.cp != 0) return Fail(Code::kFailedPrecondition, "cp does not divide seq");
  return s;
}

Status FillMeasured(const ValidationRow& row, ValidationCase& out) {
  const double gpus = static_cast<double>(*row.gpus);
  const double tokens = static_cast<double>(out.job.global_batch) * static_cast<double>(out.job.sequence);
  const double samples = static_cast<double>(out.job.global_batch);
  const std::string& metric = row.metric;
  out.kind = MetricKind::kTime;
  if (!(row.value > 0) && metric != "fits_in_memory") return Fail(Code::kFailedPrecondition, "measured value not positive");
  if (metric == "iteration_time") out.measured = row.value;
  else if (metric == "tokens_per_s_per_gpu") out.measured = tokens / (row.value * gpus);
  else if (metric == "tokens_per_s_total") out.measured = tokens / row.value;
  else if (metric == "samples_per_s_per_gpu") out.measured = samples / (row.value * gpus);
  else if (metric == "samples_per_s_total") out.measured = samples / row.value;
  else if (metric == "model_tflops_per_gpu" || metric == "hw_tflops_per_gpu") {
    out.measured = SourceFlops(row) / (row.value * 1e12 * gpus);
  } else if (metric == "mfu") {
    out.measured = SourceFlops(row) / (row.value / 100 * out.cluster.device.Peak(out.job.precision).value() * gpus);
  } else if (metric == "gpu_hours_per_trillion_tokens") {
    out.measured = row.value * 3600 / gpus * tokens / 1e12;
  } else if (metric == "fits_in_memory") {
    out.kind = MetricKind::kFits;
    out.measured = row.value;
  } else if (metric == "peak_memory" || metric == "peak_memory_nvidia_smi") {
    out.kind = MetricKind::kMemory;
    const double unit = row.unit.starts_with("GiB") ? 0x1p30 : row.unit.starts_with("MB") ? 1e6 : 1e9;
    out.measured = row.value * unit;
  } else if (metric == "param_optimizer_memory" || metric == "activation_memory" ||
             metric == "activation_memory_vs_tp_baseline" || metric == "layer_forward_time" ||
             metric == "layer_backward_time") {
    out.kind = MetricKind::kPart;
    out.measured = row.value;
  } else {
    return Fail(Code::kFailedPrecondition, fmt::format("metric {} is not predicted", metric));
  }
  return Ok();
}

}  // namespace

Result<ValidationCase> MakeValidationCase(const ValidationRow& row) {
  ValidationCase out;
  if (row.zero_stage == "per-op") return Fail(Code::kFailedPrecondition, "sharding per operator: throughput ratios only");
  if (!row.gpus) return Fail(Code::kFailedPrecondition, "number of GPUs not stated");
  WEFT_ASSIGN_OR_RETURN(out.job.model, ModelOfRow(row, out.defaults));
  WEFT_ASSIGN_OR_RETURN(out.cluster, ClusterOf(row));
  if (!row.seq) return Fail(Code::kFailedPrecondition, "sequence length not stated");
  out.framework = planner::FindFramework(StackNameOf(row) == "megatron-core" ? "megatron" : StackNameOf(row)).value();
  out.job.name = row.model;
  out.job.sequence = *row.seq;
  out.job.gpus = *row.gpus;
  out.job.precision = PrecisionOf(row);
  WEFT_ASSIGN_OR_RETURN(out.strategy, StrategyOf(row, out));
  const int64_t accumulated = NoteNumber(row, "micro_num", 0);
  if (!row.global_batch && accumulated == 0) return Fail(Code::kFailedPrecondition, "global batch not stated");
  out.job.global_batch = row.global_batch.value_or(accumulated * out.strategy.micro_batch * out.strategy.dp);
  FillSharding(row, out);
  FillRecompute(row, out);
  WEFT_RETURN_IF_ERROR(FillMeasured(row, out));
  return out;
}

}  // namespace weft::formats
