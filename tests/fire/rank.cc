#include "tests/fire/rank.h"

#include <sched.h>

#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "netplugin/tcp/socket.h"

namespace weft::net::fire {
namespace {

constexpr int kOldestTable = 8;
constexpr int kNewestTable = 12;
constexpr size_t kLinesKept = 40;

std::mutex g_lines_mutex;
std::deque<std::string> g_lines;
volatile std::sig_atomic_t g_describe = 0;

void KeepLine(int, unsigned long, const char*, int, const char* format, ...) {
  char text[400];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const std::lock_guard lock(g_lines_mutex);
  g_lines.emplace_back(text);
  if (g_lines.size() > kLinesKept) g_lines.pop_front();
}

void SetEnvironment(const RankSettings& rank) {
  setenv("NCCL_SOCKET_IFNAME", rank.interface.c_str(), 1);
  setenv("WEFT_RUN_DIR", rank.run_dir.c_str(), 1);
  setenv("WEFT_JOB_ID", "fire", 1);
  setenv("WEFT_RANK", std::to_string(rank.rank).c_str(), 1);
  setenv("WEFT_WORLD", "2", 1);
  setenv("WEFT_CHUNK_BYTES", "16384", 1);
  setenv("WEFT_TRANSPORT", "tcp", 0);
}

void Describe(const std::vector<std::unique_ptr<EndBase>>& ends) {
  for (const auto& end : ends) std::fprintf(stderr, "%s%s\n", end->Describe().c_str(), end->finished() ? " (over)" : "");
  const std::lock_guard lock(g_lines_mutex);
  for (const std::string& line : g_lines) std::fprintf(stderr, "  log: %s\n", line.c_str());
}

/// Told, or the other rank would wait for this one.
int GiveUp(Report& report, const char* call, int code) {
  const std::string text = std::string(call) + ": code " + std::to_string(code);
  text.copy(report.failure, sizeof report.failure - 1);
  report.failed.store(true, std::memory_order_release);
  Describe({});
  return 1;
}

/// True if all ends came to their end without a failure.
bool Drive(std::vector<std::unique_ptr<EndBase>>& ends, Control& control, Report& report) {
  uint64_t rounds = 0;
  while (true) {
    bool moved = false, all = true;
    const uint64_t now = NowNs();
    for (const auto& end : ends) {
      moved = end->Step(now) || moved;
      all = all && end->finished();
    }
    if (moved) report.progress.store(++rounds, std::memory_order_relaxed);
    if (all) return true;
    const bool failed = control.reports[0].failed.load(std::memory_order_relaxed) ||
                        control.reports[1].failed.load(std::memory_order_relaxed);
    if (failed || g_describe) {
      Describe(ends);
      return false;
    }
    if (!moved) sched_yield();
  }
}

}  // namespace

int RunRank(const RankSettings& rank, Settings settings, Control& control) {
  SetEnvironment(rank);
  Report& report = control.reports[rank.rank];
  std::signal(SIGUSR1, [](int) { g_describe = 1; });
  std::vector<std::unique_ptr<testing::Plugin>> plugins;
  for (int version = kOldestTable; version <= kNewestTable; ++version) {
    plugins.push_back(std::make_unique<testing::Plugin>(version));
    const int code = (**plugins.back()).Init(&KeepLine);
    if (code != nccl::kSuccess) return GiveUp(report, "init", code);
  }
  std::string name;
  int kinds = 0, most_grouped = 1;
  const int code = (**plugins.back()).Properties(0, &name, &kinds, &most_grouped);
  if (code != nccl::kSuccess) return GiveUp(report, "getProperties", code);
  settings.most_grouped = static_cast<uint32_t>(most_grouped);
  bool good = false;
  {
    std::vector<std::unique_ptr<EndBase>> ends;
    for (uint32_t i = 0; i < settings.connections; ++i) {
      testing::Table& table = **plugins[(i + rank.rank) % plugins.size()];
      if (i % 2 == rank.rank) {
        ends.push_back(std::make_unique<SendEnd>(table, settings, control, rank.rank, i));
      } else {
        ends.push_back(std::make_unique<RecvEnd>(table, settings, control, rank.rank, i));
      }
    }
    good = Drive(ends, control, report);
  }
  for (auto& plugin : plugins) (*plugin)->Finalize();
  return good ? 0 : 1;
}

}  // namespace weft::net::fire
