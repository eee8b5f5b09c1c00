#include "formats/validation_csv.h"

#include <fmt/format.h>

#include <charconv>
#include <map>

#include "formats/one_line.h"
#include "formats/read_file.h"

namespace weft::formats {
namespace {

constexpr size_t kMostFields = 10'000'000;

/// Reads one field at `at`; leaves `at` on the separator behind it.
Result<std::string> ReadField(std::string_view text, size_t& at, int64_t& line, std::string_view source) {
  std::string field;
  if (at >= text.size() || text[at] != '"') {
    const size_t end = std::min(text.find_first_of(",\n", at), text.size());
    field = text.substr(at, end - at);
    at = end;
    if (at >= text.size() || text[at] == '\n') {
      if (!field.empty() && field.back() == '\r') field.pop_back();
    }
    return field;
  }
  const int64_t begin = line;
  for (++at;; ++at) {
    if (at >= text.size()) {
      return Fail(Code::kInvalidArgument, fmt::format("{}:{}: a quoted field never ends, expected \"", source, begin));
    }
    if (text[at] == '\n') ++line;
    if (text[at] == '"') {
      if (at + 1 >= text.size() || text[at + 1] != '"') break;
      ++at;
    }
    field += text[at];
  }
  ++at;
  if (at < text.size() && text[at] == '\r') ++at;
  if (at < text.size() && text[at] != ',' && text[at] != '\n') {
    return Fail(Code::kInvalidArgument,
                fmt::format("{}:{}: '{}' behind a closing quote, expected a comma or the end of the line", source, line,
                            text[at]));
  }
  return field;
}

/// Cells of one row by column, with the first error kept.
class Cells {
 public:
  Cells(const std::map<std::string, size_t, std::less<>>& columns, const std::vector<std::string>& cells,
        std::string_view place)
      : columns_(columns), cells_(cells), place_(place) {}

  const std::string& Text(std::string_view column) const { return cells_[columns_.find(column)->second]; }

  std::optional<double> Number(std::string_view column) {
    const std::string& text = Text(column);
    if (text.empty()) return std::nullopt;
    double value = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (status == std::errc() && end == text.data() + text.size() && value >= 0 && value < 1e18) return value;
    Reject(column, "a number of at least 0");
    return std::nullopt;
  }

  std::optional<int64_t> Count(std::string_view column) {
    const std::string& text = Text(column);
    if (text.empty()) return std::nullopt;
    int64_t value = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (status == std::errc() && end == text.data() + text.size() && value >= 1) return value;
    Reject(column, "a positive whole number");
    return std::nullopt;
  }

  std::string OneOf(std::string_view column, std::initializer_list<std::string_view> known) {
    for (const std::string_view name : known) {
      if (Text(column) == name) return Text(column);
    }
    Reject(column, fmt::format("one of {}", fmt::join(known, ", ")));
    return "";
  }

  Status Finish() const { return error_.empty() ? Ok() : Status(Fail(Code::kInvalidArgument, error_)); }

 private:
  void Reject(std::string_view column, std::string_view expected) {
    if (error_.empty()) error_ = fmt::format("{}: {}: \"{}\", expected {}", place_, column, OneLine(Text(column), 60), expected);
  }

  const std::map<std::string, size_t, std::less<>>& columns_;
  const std::vector<std::string>& cells_;
  std::string place_;
  std::string error_;
};

constexpr std::string_view kColumns[] = {
    "source", "model",         "params_b", "layers", "hidden", "ffn_hidden", "heads", "kv_heads",    "vocab",        "seq",
    "experts", "topk",         "gpu",      "gpus",   "gpus_per_node", "tp",  "pp",    "dp",          "ep",           "cp",
    "vpp",    "zero_stage",    "micro_batch", "global_batch", "recompute", "seq_parallel", "measured_metric", "measured_value",
    "unit",   "notes"};

Result<ValidationRow> MakeRow(Cells cells, int64_t line) {
  ValidationRow row;
  row.line = line;
  row.source = cells.Text("source");
  row.model = cells.Text("model");
  row.params_b = cells.Number("params_b");
  row.layers = cells.Count("layers");
  row.hidden = cells.Count("hidden");
  row.ffn_hidden = cells.Count("ffn_hidden");
  row.heads = cells.Count("heads");
  row.kv_heads = cells.Count("kv_heads");
  row.vocab = cells.Count("vocab");
  row.seq = cells.Count("seq");
  row.experts = cells.Count("experts");
  row.topk = cells.Count("topk");
  row.gpu = cells.Text("gpu");
  row.gpus = cells.Count("gpus");
  row.gpus_per_node = cells.Count("gpus_per_node");
  row.tp = cells.Count("tp");
  row.pp = cells.Count("pp");
  row.dp = cells.Count("dp");
  row.ep = cells.Count("ep");
  row.cp = cells.Count("cp");
  row.vpp = cells.Count("vpp");
  row.zero_stage = cells.OneOf("zero_stage", {"", "0", "1", "2", "3", "per-op"});
  row.micro_batch = cells.Count("micro_batch");
  row.global_batch = cells.Count("global_batch");
  row.recompute = cells.OneOf("recompute", {"", "none", "selective", "full"});
  const std::string parallel = cells.OneOf("seq_parallel", {"", "0", "1"});
  if (!parallel.empty()) row.seq_parallel = parallel == "1";
  row.metric = cells.Text("measured_metric");
  row.value = cells.Number("measured_value").value_or(0);
  row.unit = cells.Text("unit");
  row.notes = cells.Text("notes");
  WEFT_RETURN_IF_ERROR(cells.Finish());
  return row;
}

}  // namespace

Result<std::vector<std::vector<std::string>>> ParseCsv(std::string_view text, std::string_view source) {
  std::vector<std::vector<std::string>> rows;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  int64_t line = 1;
  size_t fields = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    std::vector<std::string> row;
    for (;;) {
      WEFT_ASSIGN_OR_RETURN(std::string field, ReadField(text, at, line, source));
      row.push_back(std::move(field));
      if (++fields > kMostFields) {
        return Fail(Code::kInvalidArgument, fmt::format("{}:{}: more than {} fields", source, line, kMostFields));
      }
      if (at >= text.size() || text[at] == '\n') break;
      ++at;
    }
    ++line;
    rows.push_back(std::move(row));
  }
  return rows;
}

Result<std::vector<ValidationRow>> ParseValidationCsv(std::string_view text, std::string_view source) {
  WEFT_ASSIGN_OR_RETURN(const auto table, ParseCsv(text, source));
  if (table.empty()) return Fail(Code::kInvalidArgument, fmt::format("{}: empty, expected a header line", source));
  std::map<std::string, size_t, std::less<>> columns;
  for (size_t i = 0; i < table[0].size(); ++i) columns.emplace(table[0][i], i);
  for (const std::string_view column : kColumns) {
    if (!columns.contains(column)) {
      return Fail(Code::kInvalidArgument, fmt::format("{}:1: column {} is missing", source, column));
    }
  }
  std::vector<ValidationRow> rows;
  for (size_t i = 1; i < table.size(); ++i) {
    const auto line = static_cast<int64_t>(i + 1);
    if (table[i].size() == 1 && table[i][0].empty()) continue;
    if (table[i].size() != table[0].size()) {
      return Fail(Code::kInvalidArgument, fmt::format("{}:{}: {} fields, expected {} as in the header", source, line,
                                                      table[i].size(), table[0].size()));
    }
    WEFT_ASSIGN_OR_RETURN(ValidationRow row, MakeRow(Cells(columns, table[i], fmt::format("{}:{}", source, line)), line));
    rows.push_back(std::move(row));
  }
  return rows;
}

Result<std::vector<ValidationRow>> ReadValidationCsv(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseValidationCsv(text, path);
}

bool IsTrainingTable(std::string_view text) {
  const std::string_view header = text.substr(0, text.find('\n'));
  return header.find("measured_metric") != std::string_view::npos;
}

planner::NicKind NicKindOf(std::string_view notes) {
  if (notes.find("p3dn") != std::string_view::npos) return planner::NicKind::kEfaStaged;
  if (notes.find("EFA") != std::string_view::npos) return planner::NicKind::kEfa;
  return notes.find("Slingshot") != std::string_view::npos ? planner::NicKind::kSlingshot : planner::NicKind::kPlain;
}

std::string_view Note(std::string_view notes, std::string_view key) {
  for (size_t at = notes.find(key); at != std::string_view::npos; at = notes.find(key, at + 1)) {
    const bool starts = at == 0 || notes[at - 1] == ' ' || notes[at - 1] == ';';
    const size_t equals = at + key.size();
    if (!starts || equals >= notes.size() || notes[equals] != '=') continue;
    return notes.substr(equals + 1, std::min(notes.find(';', equals), notes.size()) - equals - 1);
  }
  return "";
}

}  // namespace weft::formats
