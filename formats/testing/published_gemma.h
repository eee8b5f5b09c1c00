// Published config.json files of Gemma 2 and 3, with all their keys. Internal to
// config_corpus.h.
// Sizes are the totals of the checkpoints' safetensors. Those of 4B, 12B and 27B hold a vision tower too: 416,866,032 of
// SigLIP (27 layers of 15,239,504, patches 678,528, positions 4,718,592, a norm 2,304) and a projector of 1152·(hidden + 1);
// with both they are 4,300,079,472, 12,187,325,040 and 27,432,406,640.
#pragma once

#include "formats/testing/config_sample.h"

namespace weft::formats::testing {

inline constexpr ConfigSample kPublishedGemma[] = {
    // google/gemma-2-2b
    {"gemma-2-2b", R"({"architectures": ["Gemma2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": 1,
      "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
      "hidden_activation": "gelu_pytorch_tanh", "initializer_range": 0.02, "max_position_embeddings": 8192,
      "model_type": "gemma2", "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
      "rope_theta": 10000.0, "sliding_window": 4096, "torch_dtype": "float32", "transformers_version": "4.42.4",
      "use_cache": true, "vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216,
      "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4})",
     2'614'341'888},
    // google/gemma-2-9b
    {"gemma-2-9b", R"({"architectures": ["Gemma2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": 1,
      "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
      "hidden_activation": "gelu_pytorch_tanh", "initializer_range": 0.02, "max_position_embeddings": 8192,
      "model_type": "gemma2", "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
      "rope_theta": 10000.0, "sliding_window": 4096, "torch_dtype": "float32", "transformers_version": "4.42.4",
      "use_cache": true, "vocab_size": 256000, "hidden_size": 3584, "intermediate_size": 14336,
      "num_attention_heads": 16, "num_hidden_layers": 42, "num_key_value_heads": 8, "sliding_window_size": 4096})",
     9'241'705'984, "sliding_window_size"},
    // google/gemma-2-27b
    {"gemma-2-27b", R"({"architectures": ["Gemma2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": 1,
      "final_logit_softcapping": 30.0, "head_dim": 128, "hidden_act": "gelu_pytorch_tanh",
      "hidden_activation": "gelu_pytorch_tanh", "initializer_range": 0.02, "max_position_embeddings": 8192,
      "model_type": "gemma2", "pad_token_id": 0, "query_pre_attn_scalar": 144, "rms_norm_eps": 1e-06,
      "rope_theta": 10000.0, "sliding_window": 4096, "torch_dtype": "float32", "transformers_version": "4.42.4",
      "use_cache": true, "vocab_size": 256000, "hidden_size": 4608, "intermediate_size": 36864,
      "num_attention_heads": 32, "num_hidden_layers": 46, "num_key_value_heads": 16,
      "_attn_implementation": "eager"})",
     27'227'128'320},
    // google/gemma-3-270m
    {"gemma-3-270m", R"({"architectures": ["Gemma3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "attn_logit_softcapping": null, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": 1,
      "final_logit_softcapping": null, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
      "initializer_range": 0.02, "max_position_embeddings": 32768, "model_type": "gemma3_text", "pad_token_id": 0,
      "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000.0, "rope_scaling": null,
      "rope_theta": 1000000.0, "sliding_window": 512, "torch_dtype": "bfloat16", "use_cache": true,
      "vocab_size": 262144, "num_attention_heads": 4, "num_key_value_heads": 1, "_sliding_window_pattern": 6,
      "hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 18, "layer_types": ["sliding_attention",
      "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
      "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention",
      "full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention",
      "sliding_attention", "full_attention"], "use_bidirectional_attention": false,
      "transformers_version": "4.55.0.dev0"})",
     268'098'176},
    // google/gemma-3-1b-pt
    {"gemma-3-1b", R"({"architectures": ["Gemma3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "attn_logit_softcapping": null, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": 1,
      "final_logit_softcapping": null, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
      "initializer_range": 0.02, "max_position_embeddings": 32768, "model_type": "gemma3_text", "pad_token_id": 0,
      "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000, "rope_scaling": null,
      "rope_theta": 1000000, "sliding_window": 512, "torch_dtype": "bfloat16", "use_cache": true,
      "vocab_size": 262144, "num_attention_heads": 4, "num_key_value_heads": 1, "hidden_size": 1152,
      "intermediate_size": 6912, "num_hidden_layers": 26, "sliding_window_pattern": 6,
      "transformers_version": "4.50.0.dev0"})",
     999'885'952},
    // google/gemma-3-4b-it
    {"gemma-3-4b", R"({"architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999,
      "eoi_token_index": 256000, "eos_token_id": [1, 106], "image_token_index": 262144, "initializer_range": 0.02,
      "mm_tokens_per_image": 256, "model_type": "gemma3", "text_config": {"hidden_size": 2560,
      "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}, "torch_dtype": "bfloat16",
      "transformers_version": "4.50.0.dev0", "vision_config": {"hidden_size": 1152, "image_size": 896,
      "intermediate_size": 4304, "model_type": "siglip_vision_model", "num_attention_heads": 16,
      "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": false}})",
     3'880'263'168, "", kNoVision},
    // google/gemma-3-12b-it
    {"gemma-3-12b", R"({"architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999,
      "eoi_token_index": 256000, "eos_token_id": [1, 106], "image_token_index": 262144, "initializer_range": 0.02,
      "mm_tokens_per_image": 256, "model_type": "gemma3", "text_config": {"hidden_size": 3840,
      "intermediate_size": 15360, "model_type": "gemma3_text", "num_attention_heads": 16, "num_hidden_layers": 48,
      "num_key_value_heads": 8, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
      "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0", "vision_config": {"hidden_size": 1152,
      "image_size": 896, "intermediate_size": 4304, "model_type": "siglip_vision_model", "num_attention_heads": 16,
      "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": false}})",
     11'766'034'176, "", kNoVision},
    // google/gemma-3-27b-it
    {"gemma-3-27b", R"({"architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999,
      "eoi_token_index": 256000, "eos_token_id": [1, 106], "image_token_index": 262144, "initializer_range": 0.02,
      "mm_tokens_per_image": 256, "model_type": "gemma3", "text_config": {"head_dim": 128, "hidden_size": 5376,
      "intermediate_size": 21504, "model_type": "gemma3_text", "num_attention_heads": 32, "num_hidden_layers": 62,
      "num_key_value_heads": 16, "query_pre_attn_scalar": 168, "rope_scaling": {"factor": 8.0,
      "rope_type": "linear"}, "sliding_window": 1024}, "torch_dtype": "bfloat16",
      "transformers_version": "4.50.0.dev0", "vision_config": {"hidden_size": 1152, "image_size": 896,
      "intermediate_size": 4304, "model_type": "siglip_vision_model", "num_attention_heads": 16,
      "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": false}})",
     27'009'346'304, "", kNoVision},
};

}  // namespace weft::formats::testing
