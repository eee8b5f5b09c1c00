// What `weft explain JOB` prints as a table: everything that was decided for a job, and why, from its strategy down to the
// paths of its flows.
#pragma once

#include <string>

namespace weft::v1 {
class ExplainJobResponse;
class JobPlan;
}

namespace weft::cli {

/// Lines of text, the last one ended.
std::string ExplainText(const v1::ExplainJobResponse& response);

/// A strategy that the user gave, its price and its memory, in a line.
std::string GivenText(const v1::JobPlan& plan);

/// What a change of strategy that was asked for comes to, in lines: `plan` runs, and its change is what was, or would be, told.
std::string ReshardText(const std::string& job_id, const v1::JobPlan& plan, bool dry_run);

}  // namespace weft::cli
