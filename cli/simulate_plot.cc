#include "cli/simulate_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "cli/simulate_report.h"
#include "common/parse_units.h"

namespace weft::cli {
namespace {

// Pixels.
constexpr int kLeft = 190, kRight = 16, kTop = 40, kColumns = 720, kStrip = 34, kGap = 14, kJobStrip = 10, kBottom = 46;

/// Mean and peak of one quantity per column of the plot: of a link's rate, or of whether a job communicates.
struct Strip {
  LinkId link;
  std::vector<double> mean = std::vector<double>(kColumns), peak = mean;

  double Mean() const { return std::accumulate(mean.begin(), mean.end(), 0.0) / kColumns; }
};

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

class Columns {
 public:
  explicit Columns(const PlotOptions& options)
      : begin_(options.begin.count()), width_((options.end - options.begin).count() / kColumns) {}

  /// Adds a constant rate from `from` to `to`, in seconds.
  void Add(double from, double to, double rate, Strip* strip) const {
    const double first = std::max(0.0, (from - begin_) / width_),
                 last = std::min<double>(kColumns, (to - begin_) / width_);
    for (double at = first; at < last;) {
      const auto column = static_cast<size_t>(at);
      const double next = std::min(last, std::floor(at) + 1);
      strip->mean[column] += rate * (next - at);
      strip->peak[column] = std::max(strip->peak[column], rate);
      at = next;
    }
  }

 private:
  double begin_, width_;
};

std::vector<Strip> LinkStrips(const planner::Scenario& scenario, const planner::SimulationReport& report, size_t most) {
  std::vector<Strip> strips;
  for (const planner::SimulatedLink& link : BusiestLinks(scenario, report, most)) strips.push_back({.link = link.link});
  return strips;
}

std::vector<Strip> JobStrips(const planner::SimulationReport& report, const PlotOptions& options) {
  std::vector<Strip> strips(std::min(report.jobs.size(), options.most_jobs));
  const Columns columns(options);
  for (const planner::JobPhase& phase : report.phases) {
    if (phase.kind != planner::PhaseKind::kSending || phase.job >= strips.size()) continue;
    columns.Add(phase.begin.count(), phase.end.count(), 1, &strips[phase.job]);
  }
  return strips;
}

void Fill(const planner::Scenario& scenario, const planner::SimulationReport& report, const PlotOptions& options,
          std::vector<Strip>* strips) {
  struct Level {
    double since = 0, rate = 0;
  };
  std::map<LinkId, size_t> strip_of;
  for (size_t i = 0; i < strips->size(); ++i) strip_of.emplace((*strips)[i].link, i);
  std::vector<Level> levels(strips->size());
  const Columns columns(options);
  for (const planner::LinkSample& sample : report.link_samples) {
    const auto found = strip_of.find(sample.link);
    if (found == strip_of.end()) continue;
    Level& level = levels[found->second];
    columns.Add(level.since, sample.at.count(), level.rate, &(*strips)[found->second]);
    level = {sample.at.count(), sample.rate.value()};
  }
  for (size_t i = 0; i < levels.size(); ++i) {
    columns.Add(levels[i].since, scenario.duration.count(), levels[i].rate, &(*strips)[i]);
  }
}

/// A step curve from the left to the right edge, closed along the bottom. `y` is the bottom.
std::string StepPath(const std::vector<double>& values, double full, int y, int tall) {
  std::string path = fmt::format("M{} {}", kLeft, y);
  double last = -1;
  for (size_t i = 0; i < values.size(); ++i) {
    const double height = std::min(1.0, values[i] / full) * tall;
    if (height == last) continue;
    path += fmt::format("H{}V{:.4f}", kLeft + static_cast<int>(i), y - height);
    last = height;
  }
  return path + fmt::format("H{}V{}Z", kLeft + kColumns, y);
}

std::string StripText(const planner::Scenario& scenario, const Strip& strip, int y) {
  const double full = scenario.topology.link(strip.link).line_rate.value();
  const double mean = strip.Mean();
  const std::string name = Escaped(scenario.topology.LinkName(strip.link));
  std::string text =
      fmt::format(R"(<g data-link="{}" data-rate="{:.17g}" data-mean="{:.17g}">)", name, full, mean) + "\n";
  text += fmt::format(R"(<text x="{}" y="{}" text-anchor="end">{}</text>)", kLeft - 8, y - kStrip / 2, name) + "\n";
  text += fmt::format(R"(<text x="{}" y="{}" text-anchor="end" class="small">0 to {}, mean {:.0f} %</text>)", kLeft - 8,
                      y - kStrip / 2 + 13, FormatRate(BitsPerSecond(full)), 100 * mean / full) + "\n";
  text += fmt::format(R"(<path class="peak" d="{}"/>)", StepPath(strip.peak, full, y, kStrip)) + "\n";
  text += fmt::format(R"(<path class="mean" d="{}"/>)", StepPath(strip.mean, full, y, kStrip)) + "\n";
  text += fmt::format(R"(<path class="axis" d="M{} {}V{}H{}"/>)", kLeft, y - kStrip, y, kLeft + kColumns) + "\n</g>\n";
  return text;
}

std::string JobText(const std::string& job, const Strip& strip, int y) {
  const std::string name = Escaped(job);
  std::string text = fmt::format(R"(<g data-job="{}" data-share="{:.17g}">)", name, strip.Mean()) + "\n";
  text +=
      fmt::format(R"(<text x="{}" y="{}" text-anchor="end" class="small">{} communicates</text>)", kLeft - 8, y, name) +
      "\n";
  text += fmt::format(R"(<path class="job" d="{}"/>)", StepPath(strip.mean, 1, y, kJobStrip)) + "\n";
  return text + fmt::format(R"(<path class="axis" d="M{} {}H{}"/>)", kLeft, y, kLeft + kColumns) + "\n</g>\n";
}

constexpr int kMostTicks = 20;

/// 1, 2 or 5 times a power of ten, so that there are about eight ticks.
double TickStep(double range) {
  const double raw = range / 8, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return factor * power;
  }
  return 10 * power;
}

double Place(Seconds at, const PlotOptions& options) {
  return kLeft + kColumns * ((at - options.begin) / (options.end - options.begin));
}

std::string TimeAxis(const PlotOptions& options, int y) {
  std::string text;
  const double range = (options.end - options.begin).count(), step = TickStep(range);
  const bool milliseconds = range < 2;
  const double first = std::max(0.0, std::ceil(options.begin.count() / step - 1e-9));  // no "-0"
  // Counted apart from `first`, which in a narrow window far from 0 is so large that adding 1 would not change it.
  for (int tick = 0; tick < kMostTicks; ++tick) {
    const double at = (first + tick) * step;
    if (at > options.end.count() + 1e-9 * range) break;
    const double x = Place(Seconds(at), options);
    text +=
        fmt::format(
            R"(<path class="axis" d="M{0:.2f} {1}v5"/><text x="{0:.2f}" y="{2}" text-anchor="middle">{3:.6g}</text>)",
            x, y, y + 18, at * (milliseconds ? 1e3 : 1)) +
        "\n";
  }
  return text +
         fmt::format(R"(<text x="{}" y="{}" text-anchor="middle">simulated time in {}</text>)", kLeft + kColumns / 2,
                     y + 36, milliseconds ? "ms" : "s") +
         "\n";
}

std::string FaultLines(const planner::Scenario& scenario, const PlotOptions& options, int bottom) {
  std::string text;
  for (const planner::ScenarioFault& fault : scenario.faults) {
    if (fault.at < options.begin || fault.at > options.end) continue;
    const std::string what = fault.capacity.value() > 0 ? FormatRate(fault.capacity) : "down";
    text +=
        fmt::format(R"(<path class="fault" d="M{:.2f} {}V{}"><title>{} {}</title></path>)", Place(fault.at, options),
                    kTop - 8, bottom, Escaped(scenario.topology.LinkName(fault.link)), what) +
        "\n";
  }
  return text;
}

// Mid tones on no background: contrast of at least 3 against white and against black.
constexpr const char* kStyle =
    "<style>text{font:12px sans-serif;fill:#7a7a7a}.small{font-size:10px}.title{font-size:14px}"
    ".mean{fill:#3b82c4}.job{fill:#2f9e6e}.peak{fill:#3b82c4;fill-opacity:.3}.axis{stroke:#7a7a7a;fill:none}"
    ".fault{stroke:#d9541e;fill:none;stroke-dasharray:4 3}</style>\n";

}  // namespace

std::string LinkUsePlot(const planner::Scenario& scenario, const planner::SimulationReport& report,
                        const PlotOptions& options) {
  std::vector<Strip> strips = LinkStrips(scenario, report, options.most_links);
  Fill(scenario, report, options, &strips);
  const std::vector<Strip> jobs = JobStrips(report, options);
  const int links_end = kTop + static_cast<int>(strips.size()) * (kStrip + kGap);
  const int bottom = links_end + static_cast<int>(jobs.size()) * (kJobStrip + kGap / 2);
  const int width = kLeft + kColumns + kRight, height = bottom + kBottom;
  std::string text =
      fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\">\n",
                  width, height);
  text += kStyle;
  text += fmt::format("<text x=\"{}\" y=\"18\" class=\"title\">{}</text>\n", kLeft, Escaped(options.title));
  for (size_t i = 0; i < strips.size(); ++i) {
    text += StripText(scenario, strips[i], kTop + static_cast<int>(i + 1) * (kStrip + kGap) - kGap);
  }
  for (size_t j = 0; j < jobs.size(); ++j) {
    text += JobText(scenario.jobs[j].name, jobs[j],
                    links_end + static_cast<int>(j + 1) * (kJobStrip + kGap / 2) - kGap / 2);
  }
  text += FaultLines(scenario, options, bottom);
  text += TimeAxis(options, bottom);
  return text + "</svg>\n";
}

}  // namespace weft::cli
