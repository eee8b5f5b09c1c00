#include <bit>

#include "planner/jobs/multi_job_plan.h"

namespace weft::planner::inline jobs {
namespace {

class Digest {
 public:
  void Add(uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) {
      hash_ ^= value >> shift & 0xFF;
      hash_ *= 0x100000001B3;
    }
  }
  void Add(double value) { Add(std::bit_cast<uint64_t>(value)); }
  void Add(const std::string& text) {
    Add(static_cast<uint64_t>(text.size()));
    for (const char c : text) Add(static_cast<uint64_t>(static_cast<unsigned char>(c)));
  }
  void Add(const MultiJobJob& job) {
    Add(job.name);
    for (const int64_t value : {job.gpus, int64_t{job.stable}, int64_t{job.placed}, int64_t{job.present_class}, int64_t{job.shifted}}) {
      Add(static_cast<uint64_t>(value));
    }
    for (const Seconds time : {job.compute, job.release, job.measured, job.present_shift}) Add(time.count());
    Add(job.efficiency);
    for (const BurstTimes& burst : job.bursts) Add(burst.release.count()), Add(burst.needed.count());
    for (const MultiJobFlow& flow : job.flows) {
      Add(static_cast<uint64_t>(flow.bytes.count()));
      Add(static_cast<uint64_t>(flow.burst));
      Add(static_cast<uint64_t>(flow.from.value()) << 32 | static_cast<uint32_t>(flow.to.value()));
      for (const CandidatePath& path : flow.paths) {
        Add(static_cast<uint64_t>(path.links.size()));
        for (const LinkId link : path.links) Add(static_cast<uint64_t>(link.value()));
      }
      for (const double share : flow.shares) Add(share);
    }
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xCBF29CE484222325;
};

}  // namespace

uint64_t DigestOf(const MultiJobProblem& problem) {
  Digest digest;
  for (const Node& node : problem.topology.nodes()) digest.Add(node.name);
  for (const Link& link : problem.topology.links()) {
    digest.Add(static_cast<uint64_t>(link.from.value()) << 32 | static_cast<uint32_t>(link.to.value()));
    digest.Add(link.capacity.value());
  }
  for (const BitsPerSecond taken : problem.background) digest.Add(taken.value());
  for (const MultiJobJob& job : problem.jobs) digest.Add(job);
  const MultiJobOptions& options = problem.options;
  digest.Add(static_cast<uint64_t>(options.classes) << 32 | static_cast<uint32_t>(options.hash_seeds));
  for (const int64_t value : {static_cast<int64_t>(options.objective), int64_t{options.paths}, options.evaluations, options.work}) {
    digest.Add(static_cast<uint64_t>(value));
  }
  for (const double value : {options.class_gain, options.shift_gain, options.profile_error}) digest.Add(value);
  return digest.value();
}

}  // namespace weft::planner::jobs
