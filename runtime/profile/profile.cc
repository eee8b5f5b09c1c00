#include "runtime/profile/profile.h"

#include <fmt/format.h>

#include <cstdio>

#include "formats/profiled_model.h"
#include "runtime/profile/layers.h"
#include "runtime/profile/recognise.h"
#include "runtime/profile/trace.h"

namespace weft::runtime {

Status Profile(const ProfileOptions& o) {
  TraceOptions trace{.path = o.file, .input = {o.batch, o.sequence}, .tokens = o.input.empty()};
  if (!trace.tokens) {
    auto shape = formats::ParseShape(o.input);
    if (!shape) return Fail(shape.error().WithContext("--input"));
    trace.input = std::move(*shape);
  }
  WEFT_ASSIGN_OR_RETURN(const TracedModel traced, TraceTorchScript(trace));
  WEFT_ASSIGN_OR_RETURN(Recognised found, Recognise(traced));
  planner::OperatorProfile profile = ProfileOf(traced);
  profile.assumptions = std::move(found.assumptions);
  profile.assumptions.emplace_back(
      "activations: all that operators write is kept for the backward pass; weft plan counts by family and program");
  profile.assumptions.emplace_back("FLOPs: of products alone; attention whole, also where it is causal");
  for (const std::string& line : formats::ProfileLines(found.model, profile)) fmt::print(stderr, "weft profile: {}\n", line);
  return formats::WriteModelFile(o.out, formats::WriteProfiledModel(found.model, profile));
}

}  // namespace weft::runtime
