// What the net plugin's TCP transport is measured against: the same bytes from the same buffers over one bare TCP
// socket, blocking and not, and over other plugins, all in one run, in turns.
//
//   socket_loop [--peer-netns NAME --address IPV4] stream|pingpong ROUNDS SIZE[,SIZE...] [LABEL=PLUGIN.so ...]
//
// Two processes. `stream`: one sends messages of SIZE bytes, cut into slices of at most 1 MiB with up to four in flight
// (as NCCL's ring does), the other receives them; time is from the common start until both have finished. `pingpong`:
// a message goes and one of the same size comes back; time is half of a round trip. Every round runs every contender
// once, in an order that rotates; printed are medians over rounds, the median of each round's ratio to the better bare
// loop, and CPU seconds of both processes per 10^9 bytes. The threads that call are bound to one core each, threads of
// plugins are not: on one core, where the scheduler puts both processes now and then, the same loop is up to three times
// as fast or slow, since nothing leaves the caches and nothing overlaps. With --peer-netns the second process lives in that network
// namespace and --address is the address that the first one's side of the bare loop listens on; what plugins use is
// told by NCCL_SOCKET_IFNAME.
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/socket_contenders.h"

namespace weft::bench {
namespace {

constexpr size_t kMostMessages = 2000;  // of a batch that moves kBatchBytes otherwise

struct Options {
  bool stream = true;
  size_t rounds = 0;
  std::vector<size_t> sizes;
  std::vector<std::pair<std::string, std::string>> plugins;
  std::string netns;
  std::string address = "127.0.0.1";
};

struct Sample {
  double seconds = 0;      ///< per message
  double cpu_per_gb = 0;
};

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * time.tv_usec; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Sample RunBatch(const Side& side, Contender& contender, const Options& options, size_t bytes) {
  const size_t messages = std::clamp<size_t>(kBatchBytes / std::max<size_t>(bytes, 1), 1, kMostMessages);
  side.Barrier();
  const double cpu = CpuSeconds();
  const auto start = std::chrono::steady_clock::now();
  options.stream ? contender.Stream(bytes, messages) : contender.PingPong(bytes, messages);
  side.shared->seconds[side.number] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  side.shared->cpu_seconds[side.number] = CpuSeconds() - cpu;
  side.Barrier();
  const int ways = options.stream ? 1 : 2;
  const double count = static_cast<double>(messages) * ways;
  const Sample sample{std::max(side.shared->seconds[0], side.shared->seconds[1]) / count,
                      (side.shared->cpu_seconds[0] + side.shared->cpu_seconds[1]) * 1e9 /
                          (count * static_cast<double>(bytes))};
  side.Barrier();  // both have read
  return sample;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::vector<double> Seconds(const std::vector<Sample>& samples) {
  std::vector<double> seconds;
  for (const Sample& sample : samples) seconds.push_back(sample.seconds);
  return seconds;
}

/// `samples`: [contender][round]; the first two contenders are the bare loops over one socket.
void Print(const Options& options, const std::vector<std::string>& names, size_t bytes,
           const std::vector<std::vector<Sample>>& samples) {
  const std::vector<Sample>& base = samples[Median(Seconds(samples[0])) < Median(Seconds(samples[1])) ? 0 : 1];
  for (size_t i = 0; i < names.size(); ++i) {
    std::vector<double> cpu, ratios;
    for (size_t round = 0; round < options.rounds; ++round) {
      cpu.push_back(samples[i][round].cpu_per_gb);
      ratios.push_back(base[round].seconds / samples[i][round].seconds);
    }
    const double median = Median(Seconds(samples[i]));
    fmt::print("{:>10} {:>18} {:>12.2f} {:>10.3f} {:>10.3f} {:>10.3f}\n", bytes, names[i], median * 1e6,
               static_cast<double>(bytes) / median / 1e9, Median(ratios), Median(cpu));
  }
  std::fflush(stdout);
}

/// Best effort: the figures of a machine with one core are what they are.
void BindToCore(int side) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<size_t>(side), &cores);
  sched_setaffinity(0, sizeof cores, &cores);
}

int RunSide(Side side, const Options& options) {
  for (char** buffer : {&side.source, &side.target}) {
    *buffer = static_cast<char*>(std::aligned_alloc(4096, kBatchBytes));
    side.Check(*buffer != nullptr, "memory");
    std::memset(*buffer, side.number + 1, kBatchBytes);
  }
  std::vector<std::string> names{"bare blocking", "bare polling", "bare, two sockets"};
  std::vector<std::unique_ptr<Contender>> contenders;
  contenders.push_back(OpenBareSocket(side, true, false));
  contenders.push_back(OpenBareSocket(side, false, false));
  contenders.push_back(OpenBareSocket(side, false, true));
  for (const auto& [label, path] : options.plugins) {
    names.push_back(label);
    contenders.push_back(OpenPluginFlows(side, path));
  }
  BindToCore(side.number);  // after the plugins have started what threads they have
  if (side.number == 0) {
    fmt::print("{:>10} {:>18} {:>12} {:>10} {:>10} {:>10}\n", "bytes", "contender", "median us", "GB/s", "vs bare",
               "CPU s/GB");
  }
  for (const size_t bytes : options.sizes) {
    std::vector<std::vector<Sample>> samples(names.size(), std::vector<Sample>(options.rounds));
    for (size_t round = 0; round <= options.rounds; ++round) {  // the first warms up
      for (size_t i = 0; i < names.size(); ++i) {
        const size_t at = (i + round) % names.size();
        const Sample sample = RunBatch(side, *contenders[at], options, bytes);
        if (round > 0) samples[at][round - 1] = sample;
      }
    }
    if (side.number == 0) Print(options, names, bytes, samples);
  }
  return 0;
}

bool Parse(int argc, char** argv, Options* options) {
  int at = 1;
  for (; at + 1 < argc && std::string_view(argv[at]).starts_with("--"); at += 2) {
    const std::string_view name = argv[at];
    if (name != "--peer-netns" && name != "--address") return false;
    (name == "--address" ? options->address : options->netns) = argv[at + 1];
  }
  if (argc - at < 3) return false;
  const std::string_view pattern = argv[at];
  options->stream = pattern == "stream";
  options->rounds = std::strtoul(argv[at + 1], nullptr, 10);
  const std::string sizes = argv[at + 2];
  for (size_t from = 0; from <= sizes.size();) {
    const size_t comma = std::min(sizes.find(',', from), sizes.size());
    options->sizes.push_back(std::strtoul(sizes.substr(from, comma - from).c_str(), nullptr, 10));
    if (options->sizes.back() < 1 || options->sizes.back() > kBatchBytes) return false;
    from = comma + 1;
  }
  for (at += 3; at < argc; ++at) {
    const std::string_view plugin = argv[at];
    const size_t equals = plugin.find('=');
    if (equals == std::string_view::npos) return false;
    options->plugins.emplace_back(plugin.substr(0, equals), plugin.substr(equals + 1));
  }
  return (options->stream || pattern == "pingpong") && options->rounds > 0;
}

/// The first process ends with the second: a signal also reaches it where it blocks, in accept() or in a plugin.
void EndWithChild(int, siginfo_t* info, void*) {
  if (info->si_code == CLD_EXITED && info->si_status == 0) return;
  constexpr std::string_view kKilled = "socket_loop: the second process was killed\n";
  if (info->si_code != CLD_EXITED) {  // one that exits by itself has said why
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kKilled.data(), kKilled.size());
  }
  _exit(1);
}

int Main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, &options)) {
    fmt::print(stderr, "usage: {} [--peer-netns NAME --address IPV4] stream|pingpong ROUNDS SIZE[,SIZE...] "
               "[LABEL=PLUGIN.so ...]\n", argv[0]);
    return 2;
  }
  setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  auto* shared = static_cast<Shared*>(memory);
  struct sigaction ends {};
  ends.sa_sigaction = EndWithChild;
  ends.sa_flags = SA_SIGINFO | SA_RESTART | SA_NOCLDSTOP;
  sigaction(SIGCHLD, &ends, nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return 1;
  if (child == 0) {
    signal(SIGCHLD, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) return 1;  // gone before it could say so
    if (!options.netns.empty()) {
      const int fd = open(("/var/run/netns/" + options.netns).c_str(), O_RDONLY | O_CLOEXEC);
      if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) Die(shared, "enter network namespace " + options.netns);
    }
    std::_Exit(RunSide({.shared = shared, .number = 1, .address = options.address}, options));
  }
  const int result = RunSide({.shared = shared, .number = 0, .address = options.address}, options);
  int status = 0;
  waitpid(child, &status, 0);
  return result != 0 || status != 0 ? 1 : 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) { return weft::bench::Main(argc, argv); }
