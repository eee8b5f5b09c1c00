// Keys that no reader takes because neither the plan nor the numbers that training computes depend on them.
#include "formats/hf_reader.h"

namespace weft::formats {
namespace {

struct KnownKeys {
  std::string_view reason;
  std::string_view families;  ///< with spaces between them; "": all
  std::string_view keys;
};

constexpr KnownKeys kKnown[] = {
    {"names the file or its code", "",
     "_name_or_path architectures auto_map model_type _class_name _diffusers_version transformers_version name_or_path "
     "tokenizer_class _commit_hash"},
    {"what weft profile counted; its parameters are compared", "", "weft_profile"},
    {"which number stands for which token", "", "image_token_index vision_feature_layer boi_token_index eoi_token_index"},
    {"how the checkpoint is stored", "", "torch_dtype dtype quantization_config unsloth_version unsloth_fixed torchscript use_bfloat16"},
    {"how text is generated", "",
     "use_cache cache_implementation generation_config task_specific_params do_sample temperature top_k top_p max_length "
     "min_length num_beams num_beam_groups num_return_sequences repetition_penalty length_penalty no_repeat_ngram_size "
     "diversity_penalty early_stopping typical_p bad_words_ids suppress_tokens begin_suppress_tokens remove_invalid_values "
     "encoder_no_repeat_ngram_size exponential_decay_length_penalty prefix"},
    {"what a forward pass returns", "",
     "output_attentions output_hidden_states output_router_logits return_dict return_dict_in_generate output_past "
     "output_scores"},
    {"the head of a classifier that is not trained", "",
     "id2label label2id num_labels problem_type finetuning_task classifier_dropout"},
    {"how attention is implemented; gpt2 takes it", "",
     "_attn_implementation attn_implementation _attn_implementation_autoset _flash_attn_2_enabled"},
    {"how inference is split", "", "pretraining_tp ep_size"},
    {"how transformers saves memory", "", "gradient_checkpointing chunk_size_feed_forward"},
    {"of models with a decoder beside an encoder", "",
     "is_decoder tie_encoder_decoder cross_attention_hidden_size tf_legacy_loss pruned_heads"},
    {"repeats the tokenizer's limit", "", "model_max_length"},
    {"repeats n_positions", "gpt2", "n_ctx"},
    {"the head of a classifier that is not trained", "gpt2",
     "summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj"},
    {"latent attention has a key of every head, as wide as the keys that are read say", "deepseek_v2 deepseek_v3",
     "num_key_value_heads head_dim qk_head_dim"},
    {"repeats num_experts_per_tok", "gpt_oss", "experts_per_token"},
    {"repeats rope_scaling's original_max_position_embeddings", "gpt_oss", "initial_context_length"},
    {"repeats hidden_activation, which the class takes", "gemma2 gemma3_text", "hidden_act"},
    {"a switch for a tool that quantises", "llama4_text", "for_llm_compressor"},
    {"how images become tokens of the text", "gemma3", "mm_tokens_per_image"},
    {"repeats a default of its objects", "gemma3 llama4", "initializer_range"},
    {"of a head that restores masked images, or of a pooler of another width", "vit",
     "encoder_stride pooler_output_size pooler_act"},
    {"of a pooler that no class here trains", "bert",
     "pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type directionality"},
    {"groups of a norm before patches; there is none", "DiTTransformer2DModel", "norm_num_groups attention_type"},
};

/// Whether `word` is one of the words in `words`.
bool Among(std::string_view words, std::string_view word) {
  for (size_t at = words.find(word); at != words.npos; at = words.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' ')) return true;
  }
  return false;
}

}  // namespace

std::string_view WhyIgnored(std::string_view model_type, std::string_view key) {
  if (key.ends_with("_token_id") || key.ends_with("_token_ids")) return "which number stands for which token";
  for (const KnownKeys& known : kKnown) {
    if ((known.families.empty() || Among(known.families, model_type)) && Among(known.keys, key)) return known.reason;
  }
  return "";
}

}  // namespace weft::formats
