#include "tests/fire/run.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <new>

#include "tests/fire/rank.h"

namespace weft::net::fire {
namespace {

constexpr uint64_t kLookNs = 1'000'000;
/// A run with enough messages goes on until each kind of harm was done, but no longer than this.
constexpr uint64_t kLongestChaosNs = 60'000'000'000;

uint64_t NumberFrom(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// One byte through it says "go on".
struct Gate {
  int ends[2] = {-1, -1};
  Gate() { EXPECT_EQ(pipe(ends), 0); }
  ~Gate() {
    close(ends[0]);
    close(ends[1]);
  }
  void Open() const { EXPECT_EQ(write(ends[1], "x", 1), 1); }
  bool Wait() const {
    char byte;
    return read(ends[0], &byte, 1) == 1;
  }
};

class FireRun {
 public:
  explicit FireRun(const RunSettings& settings);
  ~FireRun();
  RunResult Go();

 private:
  void Fork(uint32_t rank);
  bool Prepare();
  void Watch();
  bool Reap();
  uint64_t Sum(std::atomic<uint64_t> Report::*field) const {
    return (control_->reports[0].*field).load() + (control_->reports[1].*field).load();
  }

  const RunSettings settings_;
  Control* control_;
  std::array<std::string, 2> run_dirs_;
  Cable cable_;
  Gate isolated_[2], laid_[2];
  std::array<pid_t, 2> processes_{};
  uint32_t running_ = 0;
  std::unique_ptr<Chaos> chaos_;
};

FireRun::FireRun(const RunSettings& settings) : settings_(settings) {
  void* memory = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(memory, MAP_FAILED);
  control_ = new (memory) Control;
  for (std::string& run_dir : run_dirs_) {
    char folder[] = "/tmp/weft-fire-XXXXXX";
    const char* made = mkdtemp(folder);
    if (!made) {
      ADD_FAILURE() << folder << ": " << std::strerror(errno);
      return;
    }
    run_dir = made;
  }
  chaos_ = std::make_unique<Chaos>(settings_.chaos, settings_.traffic.seed + 1, *control_, run_dirs_,
                                   settings_.cable ? &cable_ : nullptr);
  for (uint32_t rank = 0; rank < 2; ++rank) Fork(rank);
}

FireRun::~FireRun() {
  for (const pid_t process : processes_) {
    if (process <= 0) continue;
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
  }
  chaos_.reset();
  for (const std::string& run_dir : run_dirs_) {
    if (!run_dir.empty()) std::filesystem::remove_all(run_dir);
  }
  munmap(control_, sizeof *control_);
}

void FireRun::Fork(uint32_t rank) {
  std::fflush(nullptr);
  processes_[rank] = fork();
  if (processes_[rank] != 0) {
    running_ += processes_[rank] > 0 ? 1 : 0;
    return;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (settings_.cable) {
    if (!Cable::Isolate()) std::exit(2);
    isolated_[rank].Open();
    if (!laid_[rank].Wait()) std::exit(2);
  }
  const RankSettings own{rank, run_dirs_[rank], settings_.cable ? Cable::kInterface : "lo"};
  // Not _exit(): what the library leaves behind at the end of a process is looked for by the sanitizers too.
  std::exit(RunRank(own, settings_.traffic, *control_));
}

bool FireRun::Prepare() {
  if (!chaos_) return false;  // said already
  if (settings_.cable) {
    std::string why;
    for (const Gate& gate : isolated_) {
      if (!gate.Wait()) return false;
    }
    if (!cable_.Lay(processes_, &why)) {
      ADD_FAILURE() << "lay the cable: " << why;
      return false;
    }
    for (const Gate& gate : laid_) gate.Open();
  }
  if (chaos_->Begin(processes_)) return true;
  ADD_FAILURE() << "a process did not greet its agent";
  return false;
}

bool FireRun::Reap() {
  for (uint32_t rank = 0; rank < 2; ++rank) {
    int status = 0;
    if (processes_[rank] <= 0 || waitpid(processes_[rank], &status, WNOHANG) != processes_[rank]) continue;
    processes_[rank] = 0;
    --running_;
    EXPECT_EQ(status, 0) << "rank " << rank;
    const Report& report = control_->reports[rank];
    if (report.failed.load(std::memory_order_acquire)) ADD_FAILURE() << "rank " << rank << ": " << report.failure;
  }
  return running_ == 0;
}

void FireRun::Watch() {
  uint64_t progress = 0;
  const uint64_t begun = NowNs();
  uint64_t since = begun;
  bool calm = false;
  while (!Reap()) {
    const uint64_t now = NowNs();
    const uint64_t seen = Sum(&Report::progress);
    if (seen != progress) since = now;
    progress = seen;
    if (now > since + settings_.patience_s * uint64_t{1'000'000'000}) {
      ADD_FAILURE() << "no progress for " << settings_.patience_s << " s";
      chaos_->Calm();
      for (const pid_t process : processes_) {
        if (process > 0) kill(process, SIGUSR1);
      }
      since = now;
    }
    const bool complete = chaos_->Complete() || now > begun + kLongestChaosNs;
    if (complete && Sum(&Report::messages) >= settings_.traffic.messages) {
      control_->stop.store(true, std::memory_order_relaxed);
    }
    if (running_ == 2) chaos_->Step(now);
    if (running_ < 2 && !calm) {
      chaos_->Calm();
      calm = true;
    }
    const timespec nap{0, kLookNs};
    nanosleep(&nap, nullptr);
  }
}

RunResult FireRun::Go() {
  RunResult result;
  const uint64_t begun = NowNs();
  if (!Prepare()) return result;
  Watch();
  result.seconds = static_cast<double>(NowNs() - begun) * 1e-9;
  result.messages = Sum(&Report::messages);
  result.bytes = Sum(&Report::bytes);
  result.lives = Sum(&Report::lives);
  result.cut_short = Sum(&Report::cut_short);
  result.errors = Sum(&Report::errors);
  result.groups = Sum(&Report::groups);
  result.refused = chaos_->refused();
  result.chaos = chaos_->counts();
  return result;
}

}  // namespace

RunResult RunFire(const RunSettings& settings) {
  FireRun run(settings);
  const RunResult result = run.Go();
  const ChaosCounts& c = result.chaos;
  std::printf("fire: %" PRIu64 " messages, %" PRIu64 " bytes in %.1f s; %" PRIu64 " lives, %" PRIu64 " cut short, ",
              result.messages, result.bytes, result.seconds, result.lives, result.cut_short);
  std::printf("%" PRIu64 " errors that were due, %" PRIu64 " grouped receives; ", result.errors, result.groups);
  std::printf("%" PRIu64 " re-paths (%" PRIu64 " entries, %" PRIu64 " nonsense, %" PRIu64 " refused), ", c.repaths,
              c.entries, c.nonsense, result.refused);
  std::printf("%" PRIu64 " agents, %" PRIu64 " sockets shut, %" PRIu64 " stops, %" PRIu64 " pulls\n", c.agents,
              c.sockets_shut, c.stops, c.pulls);
  EXPECT_EQ(c.bad_greetings, 0u);
  return result;
}

uint64_t MessagesWanted(uint64_t usual) { return NumberFrom("WEFT_FIRE_MESSAGES", usual); }
uint64_t MeanLife(uint64_t messages) { return std::clamp<uint64_t>(messages / 200, 50, 5'000); }
uint64_t SeedWanted() { return NumberFrom("WEFT_FIRE_SEED", 1); }

}  // namespace weft::net::fire
