// What weft-train prints on rank 0: one line at the start, one per step, one at the end; as JSON objects (keys are a
// contract of docs and scripts) or as a table for people. Every line is flushed, so that a reader of a pipe sees the
// step when it is done.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/units.h"

namespace weft::runtime {

enum class OutputFormat { kTable, kJson };

/// What is trained, before the first step.
struct JobFacts {
  std::string model;
  std::vector<std::string> scaling;  ///< what differs from the published model
  int64_t parameters = 0;
  Bytes gradient_bytes;              ///< exchanged per step and rank, before the algorithm's factor
  std::vector<Bytes> bucket_bytes;   ///< gradients only, in the order in which they are exchanged
  int ranks = 1;
  int64_t global_batch = 0;
  int64_t sequence = 0;
  Bytes text;
  bool communication = true;
  std::string plugin;                ///< name and version; empty without one
  std::string collectives;           ///< the table that the gradients follow; empty: rings
};

/// One step. `compute` is the iteration without what was waited for communication after backward (`exposed`).
struct StepFacts {
  int64_t step = 0;
  float loss = 0;  ///< mean over the global batch, nats per byte
  Seconds iteration{0};
  Seconds forward{0};   ///< reading the batch included
  Seconds backward{0};  ///< with what the communication thread takes from the same core
  Seconds update{0};
  Seconds compute{0};
  Seconds exposed{0};
  Seconds time{0};  ///< CLOCK_MONOTONIC at the end of the step
  std::vector<Seconds> ready;  ///< since the step's begin: each bucket's gradients, and those before it, were there
};

/// The first steps warm caches and connections up; medians leave them out.
inline constexpr size_t kWarmUpSteps = 2;

/// Median over the steps after the first kWarmUpSteps, or over all when there are no more. 0 for none.
Seconds MedianIteration(std::vector<Seconds> iterations);

/// The lines, without a newline at the end.
std::string JobLine(const JobFacts& job, OutputFormat format);
std::string StepLine(const StepFacts& step, OutputFormat format);

/// Collects steps and prints. Errors of all calls: those of writing to `out`.
class Report {
 public:
  /// `out` null prints nothing (ranks other than 0).
  Report(JobFacts job, OutputFormat format, std::FILE* out) : job_(std::move(job)), format_(format), out_(out) {}

  [[nodiscard]] Status Start();
  [[nodiscard]] Status Step(const StepFacts& step);
  [[nodiscard]] Status Finish(Bytes bytes_sent);

  /// The summary line.
  std::string SummaryLine(Bytes bytes_sent) const;

 private:
  Status Print(const std::string& line);

  JobFacts job_;
  OutputFormat format_;
  std::FILE* out_;
  size_t steps_ = 0;
  std::vector<Seconds> iterations_;
  float first_loss_ = 0;
  float final_loss_ = 0;
};

}  // namespace weft::runtime
