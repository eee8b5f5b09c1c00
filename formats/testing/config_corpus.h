// One valid configuration of each kind that formats/ reads, for tests of parsers: the keys of published files that matter,
// and some that do not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft::formats::testing {

struct ConfigSample {
  const char* name;
  const char* text;
  int64_t parameters;         ///< of the published checkpoint
};

inline constexpr ConfigSample kModelConfigs[] = {
    {"gpt2", R"({"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_inner": null, "n_positions": 1024,
      "attn_pdrop": 0.1, "task_specific_params": {"text-generation": {"do_sample": true}}, "vocab_size": 50257})",
     124'439'808},
    {"llama-2-7b", R"({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000, "max_position_embeddings": 4096,
      "rope_scaling": null, "tie_word_embeddings": false})",
     6'738'415'616},
    {"mistral-7b", R"({"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 32768,
      "sliding_window": 4096})",
     7'241'732'096},
    {"mixtral-8x7b", R"({"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
      "max_position_embeddings": 32768, "num_local_experts": 8, "num_experts_per_tok": 2})",
     46'702'792'704},
    {"qwen2.5-0.5b", R"({"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
      "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 32768,
      "tie_word_embeddings": true, "use_sliding_window": false})",
     494'032'768},
    {"qwen2-7b", R"({"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
      "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 131072})",
     7'615'616'512},
    {"qwen1.5-moe-a2.7b", R"({"model_type": "qwen2_moe", "hidden_size": 2048, "intermediate_size": 5632,
      "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 151936,
      "max_position_embeddings": 8192, "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
      "shared_expert_intermediate_size": 5632, "decoder_sparse_step": 1})",
     14'315'784'192},
    {"qwen3-8b", R"({"model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
      "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
      "max_position_embeddings": 40960, "attention_bias": false, "tie_word_embeddings": false})",
     8'190'735'360},
    {"qwen3-30b-a3b", R"({"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144,
      "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
      "vocab_size": 151936, "max_position_embeddings": 40960, "num_experts": 128, "num_experts_per_tok": 8,
      "moe_intermediate_size": 768, "decoder_sparse_step": 1, "mlp_only_layers": []})",
     30'532'122'624},
    {"deepseek-v2-lite", R"({"model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944,
      "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 102400,
      "max_position_embeddings": 163840, "q_lora_rank": null, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
      "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 64, "n_shared_experts": 2,
      "num_experts_per_tok": 6, "moe_intermediate_size": 1408, "first_k_dense_replace": 1, "moe_layer_freq": 1})",
     15'706'484'224},
    {"deepseek-v2", R"({"model_type": "deepseek_v2", "hidden_size": 5120, "intermediate_size": 12288,
      "num_hidden_layers": 60, "num_attention_heads": 128, "num_key_value_heads": 128, "vocab_size": 102400,
      "max_position_embeddings": 163840, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
      "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 160, "n_shared_experts": 2, "n_group": 8,
      "num_experts_per_tok": 6, "moe_intermediate_size": 1536, "first_k_dense_replace": 1, "moe_layer_freq": 1})",
     235'741'434'880},
    {"weft-cnn3d", R"({"model_type": "weft-cnn3d", "_name_or_path": "unet", "input": {"channels": 2, "extent": [16, 32, 32]},
      "layers": [{"type": "convolution", "channels": 8, "kernel": 3, "norm": true},
                 {"type": "pooling", "kernel": 2, "stride": 2},
                 {"type": "transposed_convolution", "channels": 8, "kernel": [2, 2, 2], "stride": 2, "bias": false},
                 {"type": "convolution", "channels": 4, "kernel": 3, "skip_channels": 8},
                 {"type": "dense", "channels": 10}]})",
     // 2·8·27 + 8 + 16; 8·8·8; 16·4·27 + 4; 4·16·32·32·10 + 10
     456 + 512 + 1732 + 655370},
};

inline constexpr const char* kClusterFile = R"(version: 1
name: lab
nodes: 4
gpus_per_node: 8
device: a100-80
device_memory: 80GiB
device_efficiency: 0.47
intra_node_rate: 300GB/s
nic_rate: 1.6Tbit/s
intra_latency: 4us
nic_latency: 12us
network_efficiency: 0.92
)";

inline constexpr const char* kGroupsFile = R"(version: 1
name: mixed
groups:
  - {nodes: 2, gpus_per_node: 8, device: h100-80, intra_node_rate: 450GB/s, nic_rate: 3.2Tbit/s}
  - {name: old, nodes: 4, gpus_per_node: 8, device: v100-32, intra_node_rate: 150GB/s, nic_rate: 400Gbit/s}
between_groups_rate: 10Gbit/s
between_groups_latency: 5ms
)";

inline constexpr const char* kJobFile = R"(version: 1
name: pretrain
model: llama3-8b
global_batch: 64
sequence: 1024
precision: bf16
hosts: [h1, h2]
ranks_per_host: 1
gpus: 2
framework: weft-train
measured_compute: 250ms
strategy: {dp: 2, micro_batch: 4, recompute: full, bucket_bytes: 25MiB}
)";

inline constexpr const char* kPlanFile = R"({"plans": [{"strategy": {"bucket_bytes": 26214400, "cp": 1, "dp": 2, "ep": 1,
  "micro_batch": 1, "pp": 4, "recompute": "selective", "schedule": "1f1b", "sequence_parallel": true, "tp": 8,
  "zero_stage": 1}, "predicted": {"iteration_s": 12.5}, "why": ["tp=8: inside a node"]}], "infeasible": []})";

/// A small network in place of std's generators, whose distributions differ between libraries: the same mutations everywhere.
class Noise {
 public:
  explicit Noise(uint64_t seed) : state_(seed) {}
  /// Uniform enough in [0, below). Requires: below ≥ 1. Source: SplitMix64, Steele, Lea and Flood 2014, figure 17.
  uint64_t Below(uint64_t below) {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (z ^ (z >> 31)) % below;
  }

 private:
  uint64_t state_;
};

/// `text` with one to three faults: bytes changed, cut out, doubled or put in, numbers and words replaced by awkward ones.
inline std::string Mutated(std::string text, Noise& noise) {
  static const std::vector<std::string> kWords = {
      "0", "-1", "null", "[]", "{}", "true", "\"\"", "1e400", "-0.0", "9223372036854775807", "9223372036854775808",
      "18446744073709551616", "1e-9", "nan", "[[[[", "}", "\"", "\\u0000", "\n", "\xff\xfe", ":", ",", "1048576", "7",
      "&a", "*a", "<<: *a", "- ", "| ", "!!binary ", "0x10", "1GiB", "3.5", "-3us"};
  for (uint64_t faults = 1 + noise.Below(3); faults > 0 && !text.empty(); --faults) {
    const size_t at = noise.Below(text.size());
    switch (noise.Below(6)) {
      case 0: text[at] = static_cast<char>(noise.Below(256)); break;
      case 1: text.erase(at, 1 + noise.Below(12)); break;
      case 2: text.insert(at, text.substr(noise.Below(text.size()), 1 + noise.Below(40))); break;
      case 3: text.resize(at); break;
      case 4: text.insert(at, kWords[noise.Below(kWords.size())]); break;
      default: {  // a whole number becomes a word
        const size_t first = text.find_first_of("0123456789", at);
        if (first == std::string::npos) break;
        const size_t end = text.find_first_not_of("0123456789", first);
        text.replace(first, (end == std::string::npos ? text.size() : end) - first, kWords[noise.Below(kWords.size())]);
      }
    }
  }
  return text;
}

}  // namespace weft::formats::testing
