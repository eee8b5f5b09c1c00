#include "tests/real/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>

namespace weft::real {
namespace {

// Of what entered at the first hosts; the rest was dropped at full ports and sent again.
constexpr double kLeastArrived = 0.97;
constexpr double kMostlyMarked = 0.9;  // what stood in sockets and queues when the class changed has the old one
constexpr double kPictureSeconds = 5;

std::string Joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, "+"));
}

/// The last few seconds: what a reader can take in.
Trace Picture(const Trace& trace) {
  if (trace.samples() == 0) return trace;
  return Between(trace, trace.time_s.back() - kPictureSeconds, trace.time_s.back());
}

Status Write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (file.fail()) return Fail(Code::kFailedPrecondition, fmt::format("write \"{}\"", path));
  return Ok();
}

}  // namespace

std::string Table(const std::vector<Outcome>& outcomes) {
  std::string out = fmt::format("{:<18} {:<4} {:<14} {:>5} {:>8} {:>9} {:>10} {:>7} {:>5} {:>6} {:>8}\n", "policy", "job",
                                "paths", "class", "alone", "measured", "simulated", "error", "iter", "holds", "held");
  for (const Outcome& outcome : outcomes) {
    for (const JobOutcome& job : outcome.jobs) {
      out += fmt::format("{:<18} {:<4} {:<14} {:>5} {:>6.3f} s {:>7.3f} s {:>8.3f} s {:>+6.1f}% ",
                         outcome.policy, job.name, Joined(job.spines), job.traffic_class, job.alone.count(),
                         job.measured.count(), job.simulated.count(), 100 * job.error());
      out += fmt::format("{:>5} {:>6} {:>6.2f} s\n", job.iterations, job.holds, job.held.count());
    }
  }
  return out;
}

std::string Bursts(const std::vector<Outcome>& outcomes, BitsPerSecond full, size_t columns) {
  std::string out;
  for (const Outcome& outcome : outcomes) {
    out += fmt::format("{}: {:.1f} % of the bytes left while another job sent more", outcome.policy,
                       100 * outcome.shared_bytes);
    if (outcome.window_period.count() > 0) {
      out += fmt::format("; windows every {:.3f} s", outcome.window_period.count());
    }
    out += fmt::format("\n{}", Ascii(Picture(outcome.trace), full, columns));
  }
  return out;
}

std::string Errors(const std::vector<Outcome>& outcomes, double promise) {
  int cases = 0, kept = 0;
  double sum = 0, worst = 0;
  for (const Outcome& outcome : outcomes) {
    for (const JobOutcome& job : outcome.jobs) {
      const double error = std::abs(job.error());
      ++cases;
      kept += error <= promise ? 1 : 0;
      sum += error;
      worst = std::max(worst, error);
    }
  }
  return fmt::format("measured against simulated: {} of {} within {:.0f} %, mean {:.1f} %, worst {:.1f} %\n", kept, cases,
                     100 * promise, 100 * sum / std::max(cases, 1), 100 * worst);
}

namespace {

void CheckBytes(const Ending& ending, std::vector<std::string>* broken) {
  int64_t payload = 0;
  for (const JobEnd& job : ending.jobs) payload += job.bytes_sent;
  if (ending.sent_bytes < payload) {
    broken->push_back(fmt::format("ports counted {} bytes, less than the {} that the jobs sent", ending.sent_bytes,
                                  payload));
  }
  const double arrived = static_cast<double>(ending.arrived_bytes) / static_cast<double>(ending.sent_bytes);
  if (arrived < kLeastArrived || arrived > 1.001) {
    broken->push_back(fmt::format("{} of {} bytes reached the ports behind the spines, expected {} to 1 of them",
                                  ending.arrived_bytes, ending.sent_bytes, kLeastArrived));
  }
}

/// A job's packets are in the fabric's priority class if and only if it was given the better class.
void CheckMarks(const Outcome& outcome, std::vector<std::string>* broken) {
  for (const JobOutcome& job : outcome.jobs) {
    const bool wanted = job.traffic_class == 0;
    if (wanted ? job.marked > kMostlyMarked : job.marked < 1 - kMostlyMarked) continue;
    broken->push_back(fmt::format("{}: {:.1f} % of the bytes of job {} left in the priority class, which it was {}",
                                  outcome.policy, 100 * job.marked, job.name, wanted ? "given" : "not given"));
  }
}

void CheckGates(const Outcome& apart, std::vector<std::string>* broken) {
  int64_t holds = 0;
  for (const JobOutcome& job : apart.jobs) {
    holds += job.holds;
    if (job.held > apart.window_period * static_cast<double>(job.holds)) {
      broken->push_back(fmt::format("job {}: {} holds of {:.3f} s in all, expected none above the period of {:.3f} s",
                                    job.name, job.holds, job.held.count(), apart.window_period.count()));
    }
  }
  if (holds == 0) broken->push_back("no gate held anything while windows were in force");
}

}  // namespace

std::vector<std::string> BrokenFacts(const std::vector<Outcome>& outcomes, size_t together, size_t apart,
                                     const Ending& ending, bool one_burst) {
  std::vector<std::string> broken;
  for (size_t j = 0; j < ending.jobs.size(); ++j) {
    if (ending.jobs[j].steps == 0) broken.push_back(fmt::format("job {} made no step", outcomes[apart].jobs[j].name));
  }
  if (ending.rejected > 0) broken.push_back(fmt::format("{} policy entries were refused by plugins", ending.rejected));
  CheckBytes(ending, &broken);
  for (const Outcome& outcome : outcomes) CheckMarks(outcome, &broken);
  const double before = outcomes[together].shared_bytes, after = outcomes[apart].shared_bytes;
  if (one_burst && !(after < before / 2)) {
    broken.push_back(fmt::format("bursts do not interleave: {:.1f} % of the bytes shared the wire without shifts, "
                                 "{:.1f} % with them, expected less than half", 100 * before, 100 * after));
  }
  CheckGates(outcomes[apart], &broken);
  return broken;
}

Status WriteTraces(const std::string& folder, const std::vector<Outcome>& outcomes, BitsPerSecond full) {
  std::vector<Panel> panels;
  for (const Outcome& outcome : outcomes) {
    WEFT_RETURN_IF_ERROR(Write(fmt::format("{}/trace-{}.csv", folder, outcome.policy), Csv(outcome.trace)));
    panels.push_back({fmt::format("{}: {:.0f} % of the bytes shared the wire", outcome.policy,
                                  100 * outcome.shared_bytes), Picture(outcome.trace)});
  }
  return Write(folder + "/bursts.svg", Svg(panels, full));
}

}  // namespace weft::real
