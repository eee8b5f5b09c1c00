#include "tests/real/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>

#include "tests/real/host.h"

namespace weft::real {

Trace Between(const Trace& trace, double from_s, double to_s) {
  Trace part{.names = trace.names, .begin_s = 0, .time_s = {}, .bytes = {}};
  part.bytes.resize(trace.names.size());
  for (size_t k = 0; k < trace.samples(); ++k) {
    const double begin = k == 0 ? trace.begin_s : trace.time_s[k - 1];
    if (begin < from_s || trace.time_s[k] > to_s) continue;
    if (part.time_s.empty()) part.begin_s = begin;
    part.time_s.push_back(trace.time_s[k]);
    for (size_t i = 0; i < trace.bytes.size(); ++i) part.bytes[i].push_back(trace.bytes[i][k]);
  }
  return part;
}

double SharedBytes(const Trace& trace, const std::vector<std::vector<size_t>>& groups) {
  double all = 0, largest = 0;
  for (const std::vector<size_t>& group : groups) {
    for (size_t k = 0; k < trace.samples(); ++k) {
      int64_t most = 0;
      for (const size_t i : group) {
        all += static_cast<double>(trace.bytes[i][k]);
        most = std::max(most, trace.bytes[i][k]);
      }
      largest += static_cast<double>(most);
    }
  }
  return all > 0 ? 1 - largest / all : 0;
}

namespace {

double RateOf(const Trace& trace, size_t port, size_t k) {
  const double begin = k == 0 ? trace.begin_s : trace.time_s[k - 1];
  return static_cast<double>(trace.bytes[port][k]) * 8 / (trace.time_s[k] - begin);
}

}  // namespace

std::string Csv(const Trace& trace) {
  std::string out = "time_s";
  for (const std::string& name : trace.names) out += fmt::format(",{}", name);
  out += '\n';
  for (size_t k = 0; k < trace.samples(); ++k) {
    out += fmt::format("{:.4f}", trace.time_s[k] - trace.begin_s);
    for (size_t i = 0; i < trace.bytes.size(); ++i) out += fmt::format(",{:.0f}", RateOf(trace, i, k));
    out += '\n';
  }
  return out;
}

std::string Ascii(const Trace& trace, BitsPerSecond full, size_t columns) {
  static constexpr std::string_view kShades = " .:=#";
  const double length = trace.samples() == 0 ? 0 : trace.time_s.back() - trace.begin_s;
  std::string out;
  for (size_t i = 0; i < trace.bytes.size(); ++i) {
    std::vector<double> bytes(columns, 0);
    for (size_t k = 0; k < trace.samples(); ++k) {
      const double middle = ((k == 0 ? trace.begin_s : trace.time_s[k - 1]) + trace.time_s[k]) / 2 - trace.begin_s;
      const auto column = static_cast<size_t>(middle / length * static_cast<double>(columns));
      bytes[std::min(column, columns - 1)] += static_cast<double>(trace.bytes[i][k]);
    }
    out += fmt::format("{:<6}|", trace.names[i]);
    for (const double amount : bytes) {
      const double share = amount * 8 / (full.value() * length / static_cast<double>(columns));
      const auto shade = static_cast<size_t>(share * static_cast<double>(kShades.size() - 1) + 0.5);
      out += kShades[std::min(shade, kShades.size() - 1)];
    }
    out += "|\n";
  }
  return out;
}

std::string Svg(const std::vector<Panel>& panels, BitsPerSecond full) {
  constexpr double kLeft = 60, kWidth = 900, kStrip = 36, kTitle = 22;
  static constexpr const char* kColours[] = {"#3366aa", "#cc6633", "#449944", "#884499"};
  double longest = 0, height = 10;
  for (const Panel& panel : panels) {
    if (panel.trace.samples() > 0) longest = std::max(longest, panel.trace.time_s.back() - panel.trace.begin_s);
    height += kTitle + kStrip * static_cast<double>(panel.trace.names.size()) + 10;
  }
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"white\"/>\n", kLeft + kWidth + 10, height);
  double y = 0;
  for (const Panel& panel : panels) {
    y += kTitle;
    out += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n", kLeft, y - 6, panel.title);
    for (size_t i = 0; i < panel.trace.names.size(); ++i, y += kStrip) {
      const double floor = y + kStrip - 4;
      out += fmt::format("<text x=\"4\" y=\"{:.0f}\">{}</text>\n<path fill=\"{}\" d=\"M{:.1f},{:.1f}", floor - 8,
                         panel.trace.names[i], kColours[i % std::size(kColours)], kLeft, floor);
      double x = kLeft;
      for (size_t k = 0; k < panel.trace.samples(); ++k) {
        const double share = std::min(1.0, RateOf(panel.trace, i, k) / full.value());
        const double next = kLeft + (panel.trace.time_s[k] - panel.trace.begin_s) / longest * kWidth;
        out += fmt::format("V{:.1f}H{:.1f}", floor - share * (kStrip - 8), next);
        x = next;
      }
      out += fmt::format("V{:.1f}Z\"/>\n<path stroke=\"#999\" d=\"M{:.0f},{:.1f}H{:.1f}\"/>\n", floor, kLeft, floor, x);
    }
    y += 10;
  }
  return out + "</svg>\n";
}

Result<std::unique_ptr<TraceSampler>> TraceSampler::Start(const testbed::Fabric& fabric,
                                                          const std::vector<Port>& ports, Seconds interval) {
  std::unique_ptr<TraceSampler> sampler(new TraceSampler);
  const std::vector<testbed::FabricLink> links = fabric.links();
  for (const Port& port : ports) {
    const auto found = std::find_if(links.begin(), links.end(), [&](const testbed::FabricLink& link) {
      return link.from == port.from && link.to == port.to;
    });
    if (found == links.end()) return Fail(Code::kNotFound, fmt::format("no port from {} to {}", port.from, port.to));
    WEFT_ASSIGN_OR_RETURN(auto reader, testbed::ClassCounterReader::Open(found->netns, found->device));
    sampler->readers_.push_back(std::move(reader));
    sampler->trace_.names.push_back(port.name);
  }
  sampler->trace_.bytes.resize(ports.size());
  TraceSampler* const raw = sampler.get();
  sampler->thread_ = std::jthread([raw, interval](const std::stop_token& stop) { raw->Run(stop, interval); });
  return sampler;
}

TraceSampler::~TraceSampler() = default;  // the thread stops and joins first: it is the last member

Trace TraceSampler::Read() const {
  const std::lock_guard lock(mutex_);
  return trace_;
}

/// Sum over each port's classes; false if one could not be read.
bool TraceSampler::Look(std::vector<int64_t>* totals) {
  totals->assign(readers_.size(), 0);
  for (size_t i = 0; i < readers_.size(); ++i) {
    const auto classes = readers_[i].Read();
    if (!classes) return false;
    for (const auto& one : *classes) {
      if (testbed::IsFabricClass(one.class_id)) (*totals)[i] += one.bytes;
    }
  }
  return true;
}

void TraceSampler::Run(const std::stop_token& stop, Seconds interval) {
  std::mutex idle_mutex;
  std::condition_variable_any idle;
  std::vector<int64_t> before, now;
  auto next = std::chrono::steady_clock::now();
  while (!stop.stop_requested()) {
    const double time = MonotonicSeconds();
    if (Look(&now)) {
      const std::lock_guard lock(mutex_);
      if (before.empty()) {
        trace_.begin_s = time;
      } else {
        trace_.time_s.push_back(time);
        for (size_t i = 0; i < now.size(); ++i) trace_.bytes[i].push_back(now[i] - before[i]);
      }
      before = now;
    }
    next += std::chrono::duration_cast<std::chrono::steady_clock::duration>(interval);
    std::unique_lock lock(idle_mutex);
    idle.wait_until(lock, stop, next, [] { return false; });
  }
}

}  // namespace weft::real
