// One published configuration. Internal to config_corpus.h.
#pragma once

#include <cstdint>

namespace weft::formats::testing {

struct ConfigSample {
  const char* name;
  const char* text;
  int64_t parameters;         ///< of the published checkpoint
  const char* unused = "";    ///< keys that a warning names, ", " between them
  const char* note = "";      ///< what another warning says, without the file
};

inline constexpr const char* kNoVision =
    "key \"vision_config\": the vision tower is left out, the text model alone planned";
inline constexpr const char* kNoMtp =
    "key \"num_nextn_predict_layers\": 1 modules of multi-token prediction, planned without them";
inline constexpr const char* kNoAutoencoder =
    "key \"_class_name\": the transformer alone is planned, on latents that its autoencoder made before";

}  // namespace weft::formats::testing
