#include "controller/journal.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <system_error>
#include <utility>
#include <variant>

#include "controller/run_learning.h"

namespace weft::controller {
namespace {

constexpr char kSchema[] =
    "CREATE TABLE jobs (sequence INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT UNIQUE NOT NULL, spec BLOB NOT NULL,"
    " plan BLOB NOT NULL, errors TEXT NOT NULL, started INTEGER NOT NULL DEFAULT 0);"
    "CREATE TABLE epochs (job_id TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE settings (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE runs (sequence INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE NOT NULL, run BLOB NOT NULL);";

// Version 1 did not know which jobs had started, version 2 had no runs to learn from.
constexpr char kFromVersion1[] = "ALTER TABLE jobs ADD COLUMN started INTEGER NOT NULL DEFAULT 0;";
constexpr char kFromVersion2[] =
    "CREATE TABLE runs (sequence INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE NOT NULL, run BLOB NOT NULL);";

using Value = std::variant<int64_t, std::string>;

std::string Lines(const std::vector<std::string>& lines) { return fmt::format("{}", fmt::join(lines, "\n")); }

std::vector<std::string> SplitLines(const std::string& text) {
  std::vector<std::string> lines;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

/// SQLite stops here: its codes become errors that name the file.
class Journal::Database {
 public:
  explicit Database(std::string path) : path_(std::move(path)) {}
  ~Database() { sqlite3_close_v2(handle_); }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  Status Open() {
    if (sqlite3_open_v2(path_.c_str(), &handle_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr) != SQLITE_OK) {
      return Error("open");
    }
    sqlite3_busy_timeout(handle_, 300);  // the last owner may still be on its way out
    // EXCLUSIVE: a second controller on the same state would give out the same epochs.
    WEFT_RETURN_IF_ERROR(Run("PRAGMA locking_mode=EXCLUSIVE"));
    WEFT_RETURN_IF_ERROR(Run("PRAGMA journal_mode=WAL"));
    WEFT_RETURN_IF_ERROR(Run("PRAGMA synchronous=NORMAL"));
    return Run("BEGIN IMMEDIATE; COMMIT");
  }

  Status Run(const char* sql) {
    return sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr) == SQLITE_OK ? Ok() : Error("open");
  }

  /// Runs one statement with `values` bound; `row` is called for each row of the answer.
  template <typename Row>
  Status Query(const char* sql, std::initializer_list<Value> values, Row row) {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(handle_, sql, -1, &statement, nullptr) != SQLITE_OK) return Error("read");
    int index = 0;
    for (const Value& value : values) {
      ++index;
      if (const auto* number = std::get_if<int64_t>(&value)) {
        sqlite3_bind_int64(statement, index, *number);
      } else {
        const std::string& text = std::get<std::string>(value);
        sqlite3_bind_blob64(statement, index, text.data(), text.size(), SQLITE_STATIC);
      }
    }
    int code = SQLITE_ROW;
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) row(statement);
    const Status status = code == SQLITE_DONE ? Ok() : Error("write");
    sqlite3_finalize(statement);
    return status;
  }
  Status Execute(const char* sql, std::initializer_list<Value> values) {
    return Query(sql, values, [](sqlite3_stmt*) {});
  }

  static std::string Bytes(sqlite3_stmt* statement, int column) {
    const void* data = sqlite3_column_blob(statement, column);
    return data == nullptr ? "" : std::string(static_cast<const char*>(data),
                                              static_cast<size_t>(sqlite3_column_bytes(statement, column)));
  }

  const std::string& path() const { return path_; }

 private:
  tl::unexpected<weft::Error> Error(const char* what) const {
    const int code = sqlite3_errcode(handle_);
    const char* hint = code == SQLITE_BUSY ? " (does another controller use this state directory?)" : "";
    return Fail(Code::kFailedPrecondition,
                fmt::format("{} journal \"{}\": {}{}", what, path_, sqlite3_errmsg(handle_), hint));
  }

  std::string path_;
  sqlite3* handle_ = nullptr;
};

Journal::Journal(std::unique_ptr<Database> database) : database_(std::move(database)) {}
Journal::~Journal() = default;

Result<std::unique_ptr<Journal>> Journal::Open(const std::string& state_dir) {
  std::error_code error;
  std::filesystem::create_directories(state_dir, error);
  if (error) {
    return Fail(Code::kFailedPrecondition, fmt::format("make state directory \"{}\": {}", state_dir, error.message()));
  }
  auto database = std::make_unique<Database>(state_dir + "/controller.db");
  WEFT_RETURN_IF_ERROR(database->Open());
  int64_t version = 0;
  int64_t tables = 0;
  WEFT_RETURN_IF_ERROR(database->Query(
      "PRAGMA user_version", {}, [&](sqlite3_stmt* row) { version = sqlite3_column_int64(row, 0); }));
  WEFT_RETURN_IF_ERROR(database->Query("SELECT count(*) FROM sqlite_master", {},
                                       [&](sqlite3_stmt* row) { tables = sqlite3_column_int64(row, 0); }));
  if (tables == 0 && version == 0) {
    const std::string sql = fmt::format("BEGIN;{}PRAGMA user_version={};COMMIT;", kSchema, kSchemaVersion);
    WEFT_RETURN_IF_ERROR(database->Run(sql.c_str()));
  } else if (version == 1 || version == 2) {
    const std::string sql = fmt::format("BEGIN;{}{}PRAGMA user_version={};COMMIT;", version == 1 ? kFromVersion1 : "", kFromVersion2, kSchemaVersion);
    WEFT_RETURN_IF_ERROR(database->Run(sql.c_str()));
  } else if (version != kSchemaVersion) {
    return Fail(
        Code::kFailedPrecondition,
        fmt::format("open journal \"{}\": schema version {}, expected {}; move the file away to start without it",
                    database->path(), version, kSchemaVersion));
  }
  return std::unique_ptr<Journal>(new Journal(std::move(database)));
}

Result<std::vector<Event>> Journal::Replay() {
  std::vector<Event> events;
  bool intact = true;
  WEFT_RETURN_IF_ERROR(database_->Query("SELECT value FROM settings WHERE name = CAST('mode' AS BLOB)", {},
                                        [&](sqlite3_stmt* row) {
                                          const auto mode = static_cast<v1::Mode>(sqlite3_column_int(row, 0));
                                          events.push_back({.body = ModeSet{mode}});
                                        }));
  WEFT_RETURN_IF_ERROR(database_->Query("SELECT job_id, epoch FROM epochs ORDER BY job_id", {}, [&](sqlite3_stmt* row) {
    events.push_back({.body = EpochKnown{Database::Bytes(row, 0), sqlite3_column_int64(row, 1)}});
  }));
  WEFT_RETURN_IF_ERROR(
      database_->Query("SELECT spec, plan, errors, started FROM jobs ORDER BY sequence", {}, [&](sqlite3_stmt* row) {
        JobSubmitted job;
        intact &=
            job.spec.ParseFromString(Database::Bytes(row, 0)) && job.plan.ParseFromString(Database::Bytes(row, 1));
        job.planning_errors = SplitLines(Database::Bytes(row, 2));
        job.started = sqlite3_column_int(row, 3) != 0;
        events.push_back({.body = std::move(job)});
      }));
  if (!intact) {
    return Fail(Code::kDataLoss, fmt::format("read journal \"{}\": a job is not readable", database_->path()));
  }
  return events;
}

Result<std::vector<v1::MeasuredRun>> Journal::Runs() {
  std::vector<v1::MeasuredRun> runs;
  WEFT_RETURN_IF_ERROR(database_->Query("SELECT run FROM runs ORDER BY sequence", {}, [&](sqlite3_stmt* row) {
    v1::MeasuredRun run;
    if (run.ParseFromString(Database::Bytes(row, 0))) runs.push_back(std::move(run));
  }));
  return runs;
}

Result<int64_t> Journal::NextIncarnation(int64_t wanted) {
  int64_t last = 0;
  WEFT_RETURN_IF_ERROR(database_->Query("SELECT value FROM settings WHERE name = CAST('incarnation' AS BLOB)", {},
                                        [&](sqlite3_stmt* row) { last = sqlite3_column_int64(row, 0); }));
  const int64_t next = std::max(wanted, last + 1);
  static_cast<void>(database_->Execute("INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)", {std::string("incarnation"), next}));
  return next;
}

Status Journal::Keep(const JobSubmitted& job) {
  return database_->Execute("INSERT OR REPLACE INTO jobs (job_id, spec, plan, errors) VALUES (?, ?, ?, ?)",
                            {job.spec.job_id(), job.spec.SerializeAsString(), job.plan.SerializeAsString(),
                             Lines(job.planning_errors)});
}

Status Journal::Keep(const JobReleased& job) {
  return database_->Execute("DELETE FROM jobs WHERE job_id = ?", {job.job_id});
}

Status Journal::Keep(const ModeSet& mode) {
  return database_->Execute("INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)",
                            {std::string("mode"), static_cast<int64_t>(mode.mode)});
}

Status Journal::Keep(const KeepEpoch& epoch) {
  return database_->Execute("INSERT OR REPLACE INTO epochs (job_id, epoch) VALUES (?, ?)", {epoch.job_id, epoch.epoch});
}

Status Journal::Keep(const ForgetEpoch& epoch) {
  return database_->Execute("DELETE FROM epochs WHERE job_id = ?", {epoch.job_id});
}

Status Journal::Keep(const KeepStarted& job) {
  return database_->Execute("UPDATE jobs SET started = 1 WHERE job_id = ?", {job.job_id});
}

Status Journal::Keep(const KeepPlan& job) {
  return database_->Execute("UPDATE jobs SET plan = ? WHERE job_id = ?", {job.plan.SerializeAsString(), job.job_id});
}

Status Journal::Keep(const KeepRun& kept) {
  for (const std::string& key : kept.gone) WEFT_RETURN_IF_ERROR(database_->Execute("DELETE FROM runs WHERE key = ?", {key}));
  return database_->Execute("INSERT OR REPLACE INTO runs (key, run) VALUES (?, ?)", {RunBook::KeyOf(kept.run), kept.run.SerializeAsString()});
}

Status Journal::Keep(const KeepReleased& job) { return Keep(JobReleased{job.job_id}); }

}  // namespace weft::controller
