// What chosen ports sent over time, from the switches' own class counters, and what can be said about it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "testbed/class_counters.h"
#include "testbed/fabric.h"

namespace weft::real {

/// Bytes between two looks: `bytes[i][k]` is what port i sent in the interval that ends at `time_s[k]`, which began at
/// `time_s[k - 1]` (or at `begin_s`).
struct Trace {
  std::vector<std::string> names;
  double begin_s = 0;  ///< CLOCK_MONOTONIC
  std::vector<double> time_s;
  std::vector<std::vector<int64_t>> bytes;

  size_t samples() const { return time_s.size(); }
};

/// The samples whose intervals lie within [from, to].
Trace Between(const Trace& trace, double from_s, double to_s);

/// Share of all bytes that left while another port of the same group sent more: 0 where ports take turns, 1 - 1/n where n of
/// them always send alike. `groups`: indices of ports behind one wire.
double SharedBytes(const Trace& trace, const std::vector<std::vector<size_t>>& groups);

/// "time_s,name,…" and one line per sample with bits per second.
std::string Csv(const Trace& trace);

/// A row of `columns` characters per port: ' ' idle … '#' at or above `full`.
std::string Ascii(const Trace& trace, BitsPerSecond full, size_t columns);

struct Panel {
  std::string title;
  Trace trace;
};
/// One strip per port and panel, panels below each other, the same time scale in all.
std::string Svg(const std::vector<Panel>& panels, BitsPerSecond full);

/// Looks at the ports until it is destroyed. Threads: Read() any.
class TraceSampler {
 public:
  struct Port {
    std::string name;  ///< in the trace
    std::string from, to;
  };
  /// Errors: kNotFound for a port that the fabric does not have; those of ClassCounterReader.
  [[nodiscard]] static Result<std::unique_ptr<TraceSampler>> Start(const testbed::Fabric& fabric,
                                                                   const std::vector<Port>& ports, Seconds interval);
  ~TraceSampler();

  Trace Read() const;

 private:
  TraceSampler() = default;
  void Run(const std::stop_token& stop, Seconds interval);
  bool Look(std::vector<int64_t>* totals);

  std::vector<testbed::ClassCounterReader> readers_;
  mutable std::mutex mutex_;  // guards trace_
  Trace trace_;
  std::jthread thread_;
};

}  // namespace weft::real
