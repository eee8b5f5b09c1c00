// Published config.json files of encoders and a diffusion transformer, with all their keys. Internal to
// config_corpus.h.
// Sizes are the totals of the checkpoints' safetensors. BERT's files hold 110,106,428 and 336,226,108: the pooler (h² + h) and
// the head of the next sentence (2h + 2) besides, which the class that config.json names has not. RoBERTa's hold 514 position
// ids more. DiT has an embedder of time and class in each of its 28 layers, as diffusers stores it; with one it is 674,834,720,
// the 675 million of arXiv 2212.09748, table 4.
#pragma once

#include "formats/testing/config_sample.h"

namespace weft::formats::testing {

inline constexpr ConfigSample kPublishedEncoders[] = {
    // google-bert/bert-base-uncased
    {"bert-base-uncased", R"({"architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1,
      "gradient_checkpointing": false, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "initializer_range": 0.02,
      "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert", "pad_token_id": 0,
      "position_embedding_type": "absolute", "transformers_version": "4.6.0.dev0", "type_vocab_size": 2,
      "use_cache": true, "vocab_size": 30522, "hidden_size": 768, "intermediate_size": 3072,
      "num_attention_heads": 12, "num_hidden_layers": 12})",
     109'514'298},
    // the same, as it was trained
    {"bert-base-pretraining", R"({"architectures": ["BertForPreTraining"], "attention_probs_dropout_prob": 0.1,
      "gradient_checkpointing": false, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "initializer_range": 0.02,
      "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert", "pad_token_id": 0,
      "position_embedding_type": "absolute", "transformers_version": "4.6.0.dev0", "type_vocab_size": 2,
      "use_cache": true, "vocab_size": 30522, "hidden_size": 768, "intermediate_size": 3072,
      "num_attention_heads": 12, "num_hidden_layers": 12})",
     110'106'428},
    // google-bert/bert-large-uncased
    {"bert-large-uncased", R"({"architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1,
      "gradient_checkpointing": false, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "initializer_range": 0.02,
      "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert", "pad_token_id": 0,
      "position_embedding_type": "absolute", "transformers_version": "4.6.0.dev0", "type_vocab_size": 2,
      "use_cache": true, "vocab_size": 30522, "hidden_size": 1024, "intermediate_size": 4096,
      "num_attention_heads": 16, "num_hidden_layers": 24})",
     335'174'458},
    // FacebookAI/roberta-base
    {"roberta-base", R"({"architectures": ["RobertaForMaskedLM"], "attention_probs_dropout_prob": 0.1,
      "bos_token_id": 0, "eos_token_id": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
      "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-05, "max_position_embeddings": 514,
      "model_type": "roberta", "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 1,
      "type_vocab_size": 1, "vocab_size": 50265})",
     124'697'433},
    // FacebookAI/roberta-large
    {"roberta-large", R"({"architectures": ["RobertaForMaskedLM"], "attention_probs_dropout_prob": 0.1,
      "bos_token_id": 0, "eos_token_id": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 1024,
      "initializer_range": 0.02, "intermediate_size": 4096, "layer_norm_eps": 1e-05, "max_position_embeddings": 514,
      "model_type": "roberta", "num_attention_heads": 16, "num_hidden_layers": 24, "pad_token_id": 1,
      "type_vocab_size": 1, "vocab_size": 50265})",
     355'412'057},
    // google/vit-base-patch16-224; its id2label has 1000 names
    {"vit-base-patch16-224", R"({"architectures": ["ViTForImageClassification"],
      "attention_probs_dropout_prob": 0.0, "hidden_act": "gelu", "hidden_dropout_prob": 0.0, "image_size": 224,
      "initializer_range": 0.02, "layer_norm_eps": 1e-12, "model_type": "vit", "num_channels": 3, "patch_size": 16,
      "qkv_bias": true, "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12,
      "num_hidden_layers": 12, "num_labels": 1000, "transformers_version": "4.13.0.dev0"})",
     86'567'656},
    // google/vit-large-patch16-384; the same
    {"vit-large-patch16-384", R"({"architectures": ["ViTForImageClassification"],
      "attention_probs_dropout_prob": 0.0, "hidden_act": "gelu", "hidden_dropout_prob": 0.0, "image_size": 384,
      "initializer_range": 0.02, "layer_norm_eps": 1e-12, "model_type": "vit", "num_channels": 3, "patch_size": 16,
      "qkv_bias": true, "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16,
      "num_hidden_layers": 24, "num_labels": 1000})",
     304'715'752},
    // google/vit-huge-patch14-224-in21k
    {"vit-huge-patch14-224-in21k", R"({"architectures": ["ViTModel"], "attention_probs_dropout_prob": 0.0,
      "hidden_act": "gelu", "hidden_dropout_prob": 0.0, "image_size": 224, "initializer_range": 0.02,
      "layer_norm_eps": 1e-12, "model_type": "vit", "num_channels": 3, "patch_size": 14, "qkv_bias": true,
      "hidden_size": 1280, "intermediate_size": 5120, "num_attention_heads": 16, "num_hidden_layers": 32,
      "encoder_stride": 16})",
     632'404'480},
    // facebook/DiT-XL-2-256, transformer/config.json
    {"dit-xl-2-256", R"({"_class_name": "Transformer2DModel", "_diffusers_version": "0.12.0.dev0",
      "activation_fn": "gelu-approximate", "attention_bias": true, "attention_head_dim": 72,
      "cross_attention_dim": null, "dropout": 0.0, "in_channels": 4, "norm_elementwise_affine": false,
      "norm_num_groups": 32, "norm_type": "ada_norm_zero", "num_attention_heads": 16, "num_embeds_ada_norm": 1000,
      "num_layers": 28, "num_vector_embeds": null, "only_cross_attention": false, "out_channels": 8,
      "patch_size": 2, "sample_size": 32, "upcast_attention": false, "use_linear_projection": false})",
     749'826'464, "", kNoAutoencoder},
    // facebook/DiT-XL-2-512, transformer/config.json
    {"dit-xl-2-512", R"({"_class_name": "Transformer2DModel", "_diffusers_version": "0.12.0.dev0",
      "activation_fn": "gelu-approximate", "attention_bias": true, "attention_head_dim": 72,
      "cross_attention_dim": null, "dropout": 0.0, "in_channels": 4, "norm_elementwise_affine": false,
      "norm_num_groups": 32, "norm_type": "ada_norm_zero", "num_attention_heads": 16, "num_embeds_ada_norm": 1000,
      "num_layers": 28, "num_vector_embeds": null, "only_cross_attention": false, "out_channels": 8,
      "patch_size": 2, "sample_size": 64, "upcast_attention": false, "use_linear_projection": false})",
     749'826'464, "", kNoAutoencoder},
};

}  // namespace weft::formats::testing
