#include "agent/probe/prober.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <random>

#include "agent/probe/candidate_ports.h"
#include "common/clock.h"
#include "common/log.h"

namespace weft::agent {
namespace {

constexpr int kRetryMs = 1000;  // after a turn that failed

PortRange EphemeralPorts() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  return ParsePortRange({std::istreambuf_iterator<char>(file), {}});
}

}  // namespace

Status ProbeTurn(PathTracer& tracer, ProbeSockets& sockets, int wake, Seconds longest) {
  const SystemClock clock;
  Seconds now = clock.Now();
  PathTracer::Step step = tracer.Next(now);
  while (step.probe) {
    // Lost like any other: the tracer asks again.
    if (const Status sent = sockets.Send(*step.probe); !sent) {
      LogDebug("agent", "probe not sent", {{"error", sent.error().message()}});
    }
    now = clock.Now();
    step = tracer.Next(now);
  }
  const Seconds timeout = std::min(longest, step.wake - now);
  WEFT_ASSIGN_OR_RETURN(const ProbeSockets::Answers answers, sockets.Wait(timeout, wake, tracer.AwaitsArrival()));
  now = clock.Now();
  for (const TimeExceeded& answer : answers.exceeded) tracer.OnTimeExceeded(answer, now);
  for (const TcpAnswer& answer : answers.arrived) tracer.OnTcpAnswer(answer);
  return Ok();
}

bool PortIsFree(Ipv4 address, uint16_t port) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // as the plugin binds
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(address);
  at.sin_port = htons(port);
  return fd && ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
}

Result<std::unique_ptr<PathProber>> PathProber::Start(const TracerOptions& options, OnReport on_report) {
  WEFT_ASSIGN_OR_RETURN(ProbeSockets sockets, ProbeSockets::Open());
  UniqueFd wake(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake) return Fail(ErrnoError("make eventfd", errno));
  return std::unique_ptr<PathProber>(
      new PathProber(options, std::move(on_report), std::move(sockets), std::move(wake)));
}

PathProber::PathProber(const TracerOptions& options, OnReport on_report, ProbeSockets sockets, UniqueFd wake)
    : options_(options),
      on_report_(std::move(on_report)),
      sockets_(std::move(sockets)),
      wake_(std::move(wake)),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

PathProber::~PathProber() {
  thread_.request_stop();
  ::eventfd_write(wake_.get(), 1);
}

void PathProber::Track(TraceTarget target) { Post(std::move(target)); }
void PathProber::Forget(uint64_t flow) { Post(Forgotten{flow}); }

void PathProber::ProbeAgain(uint64_t flow) { Post(Again{flow}); }
void PathProber::SetRate(double per_s) {
  if (rate_.exchange(per_s, std::memory_order_relaxed) != per_s) Post(Rate{per_s});
}

void PathProber::SetCarrying(std::set<uint64_t> flows) { Post(Carrying{std::move(flows)}); }

void PathProber::SetClasses(std::vector<uint8_t> dscp) { Post(Classes{std::move(dscp)}); }

std::vector<DscpRewrite> PathProber::rewrites() const {
  const std::lock_guard lock(mutex_);
  return rewrites_;
}

void PathProber::Post(Message message) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(message));
  }
  ::eventfd_write(wake_.get(), 1);
}

TracerCounters PathProber::counters() const {
  return {sent_.load(std::memory_order_relaxed), answered_.load(std::memory_order_relaxed),
          silent_.load(std::memory_order_relaxed)};
}

void PathProber::ReadInbox(PathTracer& tracer) {
  eventfd_t ignored = 0;
  ::eventfd_read(wake_.get(), &ignored);
  std::vector<Message> messages;
  {
    const std::lock_guard lock(mutex_);
    messages.swap(inbox_);
  }
  const SystemClock clock;
  const PortRange ephemeral = EphemeralPorts();
  for (Message& message : messages) {
    if (const auto* forgotten = std::get_if<Forgotten>(&message)) {
      tracer.Forget(forgotten->flow);
      continue;
    }
    if (auto* carrying = std::get_if<Carrying>(&message)) {
      tracer.SetCarrying(std::move(carrying->flows));
      continue;
    }
    if (const auto* again = std::get_if<Again>(&message)) {
      tracer.ProbeAgain(again->flow, clock.Now());
      continue;
    }
    if (const auto* rate = std::get_if<Rate>(&message)) {
      tracer.SetRate(rate->per_s);
      continue;
    }
    if (auto* classes = std::get_if<Classes>(&message)) {
      tracer.SetClasses(std::move(classes->dscp));
      continue;
    }
    auto& target = std::get<TraceTarget>(message);
    if (target.destination_port == abi::kRocePort) {  // nobody holds a queue pair's port for itself
      target.candidates = CandidatePorts(target.flow, options_.max_candidates, [](uint16_t) { return true; },
                                         {kFirstRoceCandidate, kLastRoceCandidate});
      tracer.Track(std::move(target), clock.Now());
      continue;
    }
    // Ports that are the flow's own lanes by now keep their place in the list: they are known to be usable.
    target.candidates = CandidatePorts(target.flow, options_.max_candidates, [&](uint16_t port) {
      const bool own = std::find(target.lanes.begin(), target.lanes.end(), port) != target.lanes.end();
      return own || (!ephemeral.Contains(port) && PortIsFree(target.source, port));
    });
    tracer.Track(std::move(target), clock.Now());
  }
}

void PathProber::Run(const std::stop_token& stop) {
  PathTracer tracer(options_, std::random_device{}());
  const SystemClock clock;
  while (!stop.stop_requested()) {
    ReadInbox(tracer);
    if (const Status turn = ProbeTurn(tracer, sockets_, wake_.get(), Seconds(3600)); !turn) {
      // Want of descriptors or of buffers passes.
      if (failures_.fetch_add(1, std::memory_order_relaxed) == 0) {
        LogError("agent", "path probing failed; trying again every second", {{"error", turn.error().message()}});
      }
      pollfd wake{wake_.get(), POLLIN, 0};
      ::poll(&wake, 1, kRetryMs);
      continue;
    }
    failures_.store(0, std::memory_order_relaxed);
    for (const TraceReport& report : tracer.TakeReports(clock.Now())) on_report_(report);
    {
      const std::lock_guard lock(mutex_);
      rewrites_ = tracer.rewrites();
    }
    const TracerCounters& counters = tracer.counters();
    // Once: the metric tells how it goes on.
    if (counters.silent_destinations > 0 && silent_.load(std::memory_order_relaxed) == 0) {
      LogWarn("agent", "a destination does not answer probes; its flows have no known paths",
              {{"silent_destinations", counters.silent_destinations}});
    }
    sent_.store(counters.sent, std::memory_order_relaxed);
    answered_.store(counters.answered, std::memory_order_relaxed);
    silent_.store(counters.silent_destinations, std::memory_order_relaxed);
  }
}

}  // namespace weft::agent
