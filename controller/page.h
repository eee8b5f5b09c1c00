// The controller's page: one self-contained HTML text that reads /api/v1/state every two seconds. It only shows.
#pragma once

namespace weft::controller {

extern const char kPage[];

}  // namespace weft::controller
