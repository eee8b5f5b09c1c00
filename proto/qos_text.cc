#include "proto/qos_text.h"

#include <fmt/format.h>

namespace weft::rpc {

std::string DriftLine(const std::string& host, const v1::QosDrift& drift) {
  return fmt::format("{} {}: {}: {}, expected {}", host, drift.interface(), drift.setting(), drift.is(), drift.expected());
}

std::string RewriteLine(const v1::QosRewrite& rewrite) {
  return fmt::format("DSCP {} from {} to {} arrives as {} at {}: changed there or by {}", rewrite.dscp(), rewrite.source(),
                     rewrite.destination(), rewrite.seen(), rewrite.at(),
                         rewrite.after().empty() ? "the host itself" : rewrite.after());
}

}  // namespace weft::rpc
