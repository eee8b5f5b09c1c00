#include "controller/sample_parts.h"

#include <utility>

namespace weft::controller {

bool SampleParts::Complete(const std::string& host, v1::HostSample* sample) {
  const auto begun = begun_.find(host);
  if (begun == begun_.end()) {
    if (!sample->more() || sample->ByteSizeLong() > most_bytes_) return true;
    begun_[host] = std::move(*sample);
    return false;
  }
  begun->second.MergeFrom(*sample);
  if (sample->more() && begun->second.ByteSizeLong() <= most_bytes_) return false;
  *sample = std::move(begun->second);
  sample->clear_more();
  begun_.erase(begun);
  return true;
}

}  // namespace weft::controller
