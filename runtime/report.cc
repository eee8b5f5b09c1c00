#include "runtime/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/parse_units.h"

namespace weft::runtime {
namespace {

/// Any bytes as a JSON string; what is not UTF-8 is replaced, never thrown at.
std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string QuotedList(const std::vector<std::string>& texts) {
  return nlohmann::json(texts).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// JSON has no word for what is not finite.
std::string Number(double value, const char* pattern) {
  return std::isfinite(value) ? fmt::format(fmt::runtime(pattern), value) : "null";
}

std::string Counts(const std::vector<Bytes>& sizes) {
  std::vector<int64_t> counts;
  for (const Bytes size : sizes) counts.push_back(size.count());
  return fmt::format("{}", fmt::join(counts, ","));
}

std::string Times(const std::vector<Seconds>& times) {
  std::vector<double> counts;
  for (const Seconds time : times) counts.push_back(time.count());
  return fmt::format("{:.9f}", fmt::join(counts, ","));
}

}  // namespace

Seconds MedianIteration(std::vector<Seconds> iterations) {
  if (iterations.size() > kWarmUpSteps) iterations.erase(iterations.begin(), iterations.begin() + kWarmUpSteps);
  if (iterations.empty()) return Seconds(0);
  std::sort(iterations.begin(), iterations.end());
  const size_t middle = iterations.size() / 2;
  return iterations.size() % 2 == 1 ? iterations[middle] : (iterations[middle - 1] + iterations[middle]) / 2;
}

std::string JobLine(const JobFacts& job, OutputFormat format) {
  if (format == OutputFormat::kJson) {
    return fmt::format(
        R"({{"job":{{"model":{},"parameters":{},"gradient_bytes":{},"bucket_bytes":[{}],"ranks":{},"global_batch":{},)"
        R"("sequence":{},"text_bytes":{},"communication":{},"plugin":{},"collectives":{},"scaling":{}}}}})",
        Quoted(job.model), job.parameters, job.gradient_bytes.count(), Counts(job.bucket_bytes), job.ranks, job.global_batch,
        job.sequence, job.text.count(), job.communication, Quoted(job.plugin),
        Quoted(job.collectives), QuotedList(job.scaling));
  }
  return fmt::format(
      "model    {} with {} parameters{}\n"
      "batch    {} samples of {} bytes over {} rank{}, from {} bytes of text\n"
      "exchange {} of gradients per step in {} bucket{}{}\n"
      "\n"
      "{:>6} {:>9} {:>12} {:>12} {:>12}",
      job.model, job.parameters, job.scaling.empty() ? "" : fmt::format("; scaled: {}", fmt::join(job.scaling, ", ")),
      job.global_batch, job.sequence, job.ranks, job.ranks == 1 ? "" : "s", job.text.count(),
      FormatBytes(job.gradient_bytes), job.bucket_bytes.size(), job.bucket_bytes.size() == 1 ? "" : "s",
      !job.communication ? "; communication is off, each rank trains alone"
      : job.plugin.empty() ? ""
                           : fmt::format(" through {}{}", job.plugin, job.collectives.empty() ? "" : ", by the job's collective table"),
      "step", "loss", "iteration", "compute", "exposed");
}

std::string StepLine(const StepFacts& step, OutputFormat format) {
  if (format == OutputFormat::kJson) {
    return fmt::format(R"({{"step":{},"loss":{},"iteration_s":{:.9f},"forward_s":{:.9f},"backward_s":{:.9f},)"
                       R"("update_s":{:.9f},"compute_s":{:.9f},"exposed_s":{:.9f},"time_s":{:.9f},"ready_s":[{}]}})",
                       step.step, Number(step.loss, "{:.9g}"), step.iteration.count(), step.forward.count(),
                       step.backward.count(), step.update.count(), step.compute.count(), step.exposed.count(),
                       step.time.count(), Times(step.ready));
  }
  return fmt::format("{:>6} {:>9.5f} {:>12} {:>12} {:>12}", step.step, step.loss, FormatDuration(step.iteration),
                     FormatDuration(step.compute), FormatDuration(step.exposed));
}

std::string Report::SummaryLine(Bytes bytes_sent) const {
  const Seconds median = MedianIteration(iterations_);
  if (format_ == OutputFormat::kJson) {
    return fmt::format(
        R"({{"summary":{{"steps":{},"ranks":{},"model":{},"iteration_s_median":{:.9f},"first_loss":{},)"
        R"("final_loss":{},"bytes_sent":{},"gradient_bytes":{}}}}})",
        steps_, job_.ranks, Quoted(job_.model), median.count(), Number(first_loss_, "{:.9g}"),
        Number(final_loss_, "{:.9g}"), bytes_sent.count(), job_.gradient_bytes.count());
  }
  return fmt::format("\n{} step{}, median iteration {} (without the first {}), loss {:.5f} -> {:.5f}, rank 0 sent {} bytes",
                     steps_, steps_ == 1 ? "" : "s", FormatDuration(median), kWarmUpSteps,
                     first_loss_, final_loss_, bytes_sent.count());
}

Status Report::Start() { return Print(JobLine(job_, format_)); }

Status Report::Step(const StepFacts& step) {
  if (steps_++ == 0) first_loss_ = step.loss;
  final_loss_ = step.loss;
  iterations_.push_back(step.iteration);
  return Print(StepLine(step, format_));
}

Status Report::Finish(Bytes bytes_sent) { return Print(SummaryLine(bytes_sent)); }

Status Report::Print(const std::string& line) {
  if (out_ == nullptr) return Ok();
  if (std::fputs((line + "\n").c_str(), out_) < 0 || std::fflush(out_) != 0) {
    return Fail(ErrnoError("write the report", errno));
  }
  return Ok();
}

}  // namespace weft::runtime
