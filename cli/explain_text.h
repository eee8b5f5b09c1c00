// What `weft explain JOB` prints as a table: everything that was decided for a job, and why, from its strategy down to the
// paths of its flows.
#pragma once

#include <string>

namespace weft::v1 {
class ExplainJobResponse;
}

namespace weft::cli {

/// Lines of text, the last one ended.
std::string ExplainText(const v1::ExplainJobResponse& response);

}  // namespace weft::cli
