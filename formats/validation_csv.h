// Tables of published training measurements: RFC 4180 (quoted fields, CR LF or LF), one header line, the 29 columns of
// the training schema in any order; an empty cell means that the source does not say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "planner/fabric/cluster_spec.h"

namespace weft::formats {

/// Rows of fields as they stand in a CSV text, quotes removed, "" inside quotes read as ". Errors: kInvalidArgument as
/// "SOURCE:LINE: …" for a quote that never ends, text behind a closing quote, or more than 10 million fields.
[[nodiscard]] Result<std::vector<std::vector<std::string>>> ParseCsv(std::string_view text, std::string_view source);

/// One row of a table of training measurements.
struct ValidationRow {
  int64_t line = 0;  ///< of the file, from 1
  std::string source, model;
  std::optional<double> params_b;  ///< 10⁹ parameters
  std::optional<int64_t> layers, hidden, ffn_hidden, heads, kv_heads, vocab, seq, experts, topk;
  std::string gpu;
  std::optional<int64_t> gpus, gpus_per_node, tp, pp, dp, ep, cp, vpp;
  std::string zero_stage;          ///< "", "0" to "3" or "per-op"
  std::optional<int64_t> micro_batch, global_batch;
  std::string recompute;           ///< "", "none", "selective" or "full"
  std::optional<bool> seq_parallel;
  std::string metric;
  double value = 0;
  std::string unit, notes;
};

/// Errors: kNotFound or kFailedPrecondition when the file cannot be read; kInvalidArgument as "FILE:LINE: column …" for a
/// missing column, a row of another length, or a cell that is no number where one is expected.
[[nodiscard]] Result<std::vector<ValidationRow>> ReadValidationCsv(const std::string& path);
[[nodiscard]] Result<std::vector<ValidationRow>> ParseValidationCsv(std::string_view text, std::string_view source);

/// Whether the header of `text` is that of training measurements: tables of collectives have another.
bool IsTrainingTable(std::string_view text);

/// What the notes say of the network: EFA or Slingshot, else neither.
planner::NicKind NicKindOf(std::string_view notes);

/// The value of `key=value` among the notes, "" if it is not there.
std::string_view Note(std::string_view notes, std::string_view key);

}  // namespace weft::formats
