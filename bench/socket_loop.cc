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
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/net_plugin.h"
#include "netplugin/abi/nccl_net.h"

namespace weft::bench {
namespace {

constexpr size_t kSlice = 1 << 20;
constexpr size_t kInFlight = 4;
constexpr size_t kBatchBytes = 64 << 20;  // a batch moves about so much, but
constexpr size_t kMostMessages = 2000;    // never more messages than these

/// What both processes see.
struct Shared {
  std::atomic<uint32_t> arrived;
  std::atomic<uint32_t> generation;
  std::atomic<bool> failed;
  uint8_t handles[2][nccl::kHandleMaxBytes];
  uint16_t port;
  double seconds[2];
  double cpu_seconds[2];
};

[[noreturn]] void Die(Shared* shared, const std::string& what) {
  shared->failed.store(true);
  fmt::print(stderr, "socket_loop: {}\n", what);
  std::_Exit(1);
}

/// One of the two processes: side 0 sends in `stream`, and begins in `pingpong`.
struct Side {
  Shared* shared;
  int number;
  std::string address = "127.0.0.1";
  char* source = nullptr;
  char* target = nullptr;

  void Check(const Status& status) const {
    if (!status) Die(shared, status.error().message());
  }
  void Check(bool good, const char* what) const {
    if (!good) Die(shared, fmt::format("{}: {}", what, std::strerror(errno)));
  }
  void Barrier() const {
    const uint32_t generation = shared->generation.load();
    if (shared->arrived.fetch_add(1) == 1) {
      shared->arrived.store(0);
      shared->generation.fetch_add(1);
      return;
    }
    while (shared->generation.load() == generation) {
      if (shared->failed.load()) std::_Exit(1);
      sched_yield();
    }
  }
};

class Contender {
 public:
  explicit Contender(const Side& side) : side_(side) {}
  virtual ~Contender() = default;
  virtual void Stream(size_t bytes, size_t messages) = 0;
  virtual void PingPong(size_t bytes, size_t messages) = 0;

 protected:
  const Side& side_;
};

/// A TCP connection with Nagle off and nothing else set.
int OpenConnection(const Side& side) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  inet_pton(AF_INET, side.address.c_str(), &at.sin_addr);
  socklen_t length = sizeof at;
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (side.number == 0) {
    side.Check(bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0 && listen(fd, 1) == 0, "bind");
    getsockname(fd, reinterpret_cast<sockaddr*>(&at), &length);
    side.shared->port = ntohs(at.sin_port);
    side.Barrier();
    const int listening = std::exchange(fd, accept(fd, nullptr, nullptr));
    close(listening);
  } else {
    side.Barrier();
    at.sin_port = htons(side.shared->port);
    side.Check(connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0, "connect");
  }
  side.Barrier();
  const int on = 1;
  side.Check(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0, "setsockopt");
  return fd;
}

/// One connection for both directions or, as plugins must, one for each.
class BareSocket : public Contender {
 public:
  BareSocket(const Side& side, bool blocking, bool pair)
      : Contender(side), flags_(blocking ? 0 : MSG_DONTWAIT), fds_{OpenConnection(side), pair ? OpenConnection(side) : -1} {
    send_fd_ = pair ? fds_[side.number] : fds_[0];
    receive_fd_ = pair ? fds_[1 - side.number] : fds_[0];
  }
  ~BareSocket() override {
    for (const int fd : fds_) close(fd);
  }

  void Stream(size_t bytes, size_t messages) override {
    for (size_t i = 0; i < messages; ++i) side_.number == 0 ? Send(bytes) : Receive(bytes);
  }
  void PingPong(size_t bytes, size_t messages) override {
    for (size_t i = 0; i < messages; ++i) {
      if (side_.number == 0) Send(bytes);
      Receive(bytes);
      if (side_.number == 1) Send(bytes);
    }
  }

 private:
  void Moved(ssize_t moved, size_t* done) const {
    if (moved > 0) {
      *done += static_cast<size_t>(moved);
    } else if (moved < 0 && errno == EAGAIN) {
      sched_yield();
    } else {
      Die(side_.shared, fmt::format("bare socket: {}", moved == 0 ? "closed" : std::strerror(errno)));
    }
  }
  void Send(size_t bytes) const {
    for (size_t done = 0; done < bytes;) Moved(send(send_fd_, side_.source + done, bytes - done, flags_), &done);
  }
  void Receive(size_t bytes) const {
    for (size_t done = 0; done < bytes;) Moved(recv(receive_fd_, side_.target + done, bytes - done, flags_), &done);
  }

  const int flags_;
  const int fds_[2];
  int send_fd_, receive_fd_;
};

/// A net plugin with one flow in each direction, driven by one thread that yields when nothing moved, as NCCL's does.
class PluginFlows : public Contender {
 public:
  PluginFlows(const Side& side, const std::string& path) : Contender(side) {
    auto plugin = collectives::NetPlugin::Load(path);
    if (!plugin) Die(side.shared, plugin.error().message());
    plugin_ = std::move(*plugin);
    void* listen = nullptr;
    side.Check(plugin_->Listen(0, side.shared->handles[side.number], &listen));
    side.Barrier();
    alignas(8) uint8_t handle[nccl::kHandleMaxBytes];
    std::memcpy(handle, side.shared->handles[1 - side.number], sizeof handle);
    // Some plugins' accept blocks: one direction after the other.
    for (const int sender : {0, 1}) {
      while (sender == side.number && !send_) side.Check(plugin_->Connect(0, handle, &send_));
      while (sender != side.number && !receive_) side.Check(plugin_->Accept(listen, &receive_));
    }
    side.Check(plugin_->CloseListen(listen));
    side.Check(plugin_->Register(send_, side.source, kBatchBytes, &send_handle_));
    side.Check(plugin_->Register(receive_, side.target, kBatchBytes, &receive_handle_));
  }

  void Stream(size_t bytes, size_t messages) override {
    const size_t slices = std::max<size_t>(1, (bytes + kSlice - 1) / kSlice);
    std::deque<void*> flying;
    for (size_t next = 0; next < slices * messages || !flying.empty();) {
      bool moved = false;
      while (next < slices * messages && flying.size() < kInFlight) {
        const size_t offset = next % slices * kSlice;
        void* request = Post(side_.number == 0, offset, std::min(kSlice, bytes - offset));
        if (!request) break;
        flying.push_back(request);
        ++next;
        moved = true;
      }
      while (!flying.empty() && Done(flying.front())) {
        flying.pop_front();
        moved = true;
      }
      if (!moved) sched_yield();
    }
  }

  void PingPong(size_t bytes, size_t messages) override {
    for (size_t i = 0; i < messages; ++i) {
      if (side_.number == 0) One(true, bytes);
      One(false, bytes);
      if (side_.number == 1) One(true, bytes);
    }
  }

 private:
  void* Post(bool send, size_t offset, size_t bytes) {
    void* request = nullptr;
    side_.Check(send ? plugin_->Send(send_, side_.source + offset, bytes, side_.number, send_handle_, &request)
                     : plugin_->Receive(receive_, side_.target + offset, bytes, 1 - side_.number, receive_handle_,
                                        &request));
    return request;
  }
  bool Done(void* request) {
    bool done = false;
    side_.Check(plugin_->Test(request, &done, nullptr));
    return done;
  }
  void One(bool send, size_t bytes) {
    std::deque<void*> flying;
    for (size_t offset = 0; offset < bytes || !flying.empty();) {
      void* request = offset < bytes && flying.size() < kInFlight
                          ? Post(send, offset, std::min(kSlice, bytes - offset)) : nullptr;
      if (request) {
        flying.push_back(request);
        offset += kSlice;
      }
      if (!flying.empty() && Done(flying.front())) {
        flying.pop_front();
      } else if (!request) {
        sched_yield();
      }
    }
  }

  std::unique_ptr<collectives::NetPlugin> plugin_;
  void *send_ = nullptr, *receive_ = nullptr;
  void *send_handle_ = nullptr, *receive_handle_ = nullptr;
};

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
  contenders.push_back(std::make_unique<BareSocket>(side, true, false));
  contenders.push_back(std::make_unique<BareSocket>(side, false, false));
  contenders.push_back(std::make_unique<BareSocket>(side, false, true));
  for (const auto& [label, path] : options.plugins) {
    names.push_back(label);
    contenders.push_back(std::make_unique<PluginFlows>(side, path));
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
  const pid_t child = fork();
  if (child == 0) {
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
