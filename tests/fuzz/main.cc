// weft-fuzz: everything that takes input from outside, with input that nobody meant. What is refused with words that were not heard
// before is kept and spoiled further. An input that brings the process down is left in a file.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>

#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <set>
#include <unistd.h>

#include "common/clock.h"
#include "formats/read_file.h"
#include "formats/testing/config_corpus.h"
#include "tests/fuzz/target.h"

namespace weft::fuzz {
namespace {

using formats::testing::Noise;

constexpr size_t kMostKept = 400, kMostBytes = 64 << 10;

// What runs now: all that a signal handler can say.
std::string now_input, now_place, crash_file;

void Put(int fd, std::string_view text) {
  if (::write(fd, text.data(), text.size()) < 0) ::_exit(2);
}

void OnCrash(int signal) {
  Put(STDERR_FILENO, "weft-fuzz: down in " + now_place + "; its input is in " + crash_file + "\n");
  const int fd = ::open(crash_file.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  if (fd >= 0) Put(fd, now_input);
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

/// Words without numbers and what is quoted: what an error is about.
std::string Gist(const std::string& said) {
  std::string gist;
  bool quoted = false;
  for (const char c : said) {
    if (c == '"') quoted = !quoted;
    if (!quoted && (c < '0' || c > '9')) gist += c;
  }
  return gist;
}

struct Tally {
  int64_t runs = 0, taken = 0;
  size_t refusals = 0;
  Seconds time{0};
};

class Fuzzer {
 public:
  Fuzzer(const Target& target, uint64_t seed) : target_(target), noise_(seed), pool_(target.corpus) {}

  Tally Run(int64_t executions) {
    const SystemClock clock;
    const Seconds begin = clock.Now();
    for (const std::string& good : target_.corpus) Execute(good);
    Require(tally_.taken > 0, "no sample of the target is taken: " + target_.name);
    while (tally_.runs < executions) Execute(Next());
    tally_.time = clock.Now() - begin;
    tally_.refusals = heard_.size();
    return tally_;
  }

 private:
  std::string Next() {
    // Every other one is made of what is taken, however many refusals were kept.
    const size_t from = noise_.Below(2) == 0 ? target_.corpus.size() : pool_.size();
    std::string text = formats::testing::Mutated(pool_[noise_.Below(from)], noise_);
    if (noise_.Below(8) == 0) {  // a piece of another one
      const std::string& other = pool_[noise_.Below(pool_.size())];
      const size_t from_byte = noise_.Below(other.size() + 1), bytes = 1 + noise_.Below(200);
      text.insert(noise_.Below(text.size() + 1), other, from_byte, bytes);
    }
    if (text.size() > kMostBytes) text.resize(kMostBytes);
    return text;
  }

  void Execute(std::string input) {
    now_input = std::move(input);
    now_place = fmt::format("target {}, execution {} of this seed", target_.name, tally_.runs);
    ++tally_.runs;
    const std::string said = target_.run(now_input);
    if (said.empty()) ++tally_.taken;
    if (!said.empty() && heard_.size() < kMostKept && heard_.insert(Gist(said)).second) pool_.push_back(now_input);
  }

  const Target& target_;
  Noise noise_;
  std::vector<std::string> pool_;
  std::set<std::string> heard_;
  Tally tally_;
};

std::vector<Target> AllTargets() {
  std::vector<Target> all;
  for (const auto& make : {FileTargets, SettingTargets, NetworkTargets, SegmentTargets, CoreTargets}) {
    for (Target& target : make()) all.push_back(std::move(target));
  }
  return all;
}

int Main(int argc, char** argv) {
  CLI::App app("Runs all parsers and the controller's core on spoiled input.", "weft-fuzz");
  int64_t executions = 200'000;
  uint64_t seed = 1;
  std::string only, folder = ".", input;
  app.add_option("--executions", executions, "over all targets; the core has a tenth of them")->check(CLI::Range(int64_t{100}, int64_t{1} << 40));
  app.add_option("--seed", seed, "of what is drawn");
  app.add_option("--target", only, "one target alone");
  app.add_option("--folder", folder, "where an input that brings the process down is left")->check(CLI::ExistingDirectory);
  app.add_option("--input", input, "this file alone, with --target; core and segment need all runs before it, so --seed")
      ->check(CLI::ExistingFile)
      ->needs("--target");
  CLI11_PARSE(app, argc, argv);
  google::protobuf::SetLogHandler(nullptr);  // it says of each text that it is no UTF-8
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::signal(signal, OnCrash);
  std::vector<Target> targets = AllTargets();
  if (!only.empty()) std::erase_if(targets, [&](const Target& target) { return target.name != only; });
  if (targets.empty()) {
    fmt::print(stderr, "weft-fuzz: no target \"{}\"; without --target all are named\n", only);
    return 2;
  }
  const int64_t each = std::max<int64_t>(1, executions / static_cast<int64_t>(targets.size()));
  if (!input.empty()) {
    const Result<std::string> text = formats::ReadFile(input);
    const std::string said = text ? targets.front().run(*text) : text.error().message();
    fmt::print("{}\n", said.empty() ? "taken" : said);
    return text ? 0 : 2;
  }
  int64_t runs = 0;
  for (const Target& target : targets) {
    crash_file = fmt::format("{}/fuzz-{}.input", folder, target.name);
    const Tally tally = Fuzzer(target, seed).Run(target.name == "core" ? std::max(each, executions / 10) : each);
    runs += tally.runs;
    fmt::print("{:<18} {:>9} runs, {:>9} taken, {:>4} kinds of refusals, {:.1f} us each{}\n", target.name, tally.runs, tally.taken,
               tally.refusals, 1e6 * tally.time.count() / static_cast<double>(tally.runs), target.summary ? target.summary() : "");
    std::fflush(stdout);
  }
  fmt::print("{} targets, {} runs, nothing came down\n", targets.size(), runs);
  return 0;
}

}  // namespace

void Require(bool holds, std::string_view what) {
  if (holds) return;
  Put(STDERR_FILENO, fmt::format("weft-fuzz: {}\n", what));
  std::abort();
}

}  // namespace weft::fuzz

int main(int argc, char** argv) { return weft::fuzz::Main(argc, argv); }
