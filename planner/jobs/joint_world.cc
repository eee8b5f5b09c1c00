#include "planner/jobs/joint_world.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace weft::planner::inline jobs {
namespace {

constexpr double kShortest = 1e-3;     // of the slowest iteration of a group
constexpr size_t kManyJobs = 48;       // from which simulations are fewer and shorter

uint64_t Mix(uint64_t x) {  // splitmix64, Steele 2014
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

/// What the flow sends, as bytes at the links' full rates.
double BytesAtRate(const JointJob& job, const JointFlow& flow) {
  return static_cast<double>(flow.bytes.count()) / job.efficiency;
}

PeriodicJob Bare(const JointJob& job) {
  return {.gpus = static_cast<double>(std::max<int64_t>(1, job.gpus)), .compute = job.compute, .release = job.release,
          .loads = {}};
}

/// Bytes and flows per link, to LinkLoads.
class Loads {
 public:
  void Add(const CandidatePath& path, double bytes) {
    for (const LinkId link : path.links) {
      auto& [sum, flows] = by_link_[link];
      sum += bytes;
      flows += 1;
    }
  }
  std::vector<LinkLoad> Take() const {
    std::vector<LinkLoad> loads;
    for (const auto& [link, load] : by_link_) loads.push_back({link, Bytes(static_cast<int64_t>(load.first)), load.second});
    return loads;
  }

 private:
  std::map<LinkId, std::pair<double, double>> by_link_;
};

double IterationOnPaths(const JointProblem& problem, const JointJob& job) {
  double longest = 0;
  Loads loads;
  for (const JointFlow& flow : job.flows) {
    for (size_t p = 0; p < flow.paths.size(); ++p) {
      if (flow.shares[p] > 0) loads.Add(flow.paths[p], flow.shares[p] * BytesAtRate(job, flow));
    }
  }
  for (const LinkLoad& load : loads.Take()) {
    if (load.bytes.count() == 0) continue;
    const double rate = problem.topology.link(load.link).capacity.bytes_per_second();
    if (!(rate > 0)) return 0;  // over a dead link: it comes to no end
    longest = std::max(longest, static_cast<double>(load.bytes.count()) / rate);
  }
  return std::max(job.compute.count(), job.release.count() + longest);
}

}  // namespace

std::vector<std::vector<size_t>> JointGroups(const JointProblem& problem) {
  std::vector<size_t> parent(problem.jobs.size());
  std::iota(parent.begin(), parent.end(), size_t{0});
  const auto root = [&](size_t j) {
    while (parent[j] != j) j = parent[j] = parent[parent[j]];
    return j;
  };
  std::vector<int64_t> user(problem.topology.links().size(), -1);
  std::vector<double> iteration(problem.jobs.size());
  for (size_t j = 0; j < problem.jobs.size(); ++j) {
    iteration[j] = IterationOnPaths(problem, problem.jobs[j]);
    if (!(iteration[j] > 0)) continue;
    for (const JointFlow& flow : problem.jobs[j].flows) {
      if (flow.bytes.count() <= 0) continue;
      for (const CandidatePath& path : flow.paths) {
        for (const LinkId link : path.links) {
          int64_t& first = user[link.index()];
          if (first < 0) first = static_cast<int64_t>(j);
          const size_t a = root(static_cast<size_t>(first)), b = root(j);
          parent[std::max(a, b)] = std::min(a, b);
        }
      }
    }
  }
  std::map<size_t, std::vector<size_t>> by_root;
  for (size_t j = 0; j < problem.jobs.size(); ++j) {
    if (iteration[j] > 0) by_root[root(j)].push_back(j);
  }
  std::vector<std::vector<size_t>> groups;
  for (auto& [first, members] : by_root) {
    double slowest = 0;
    for (const size_t j : members) slowest = std::max(slowest, iteration[j]);
    std::vector<size_t> kept;
    for (const size_t j : members) {
      if (iteration[j] >= kShortest * slowest) kept.push_back(j);
      else groups.push_back({j});
    }
    groups.push_back(std::move(kept));
  }
  std::sort(groups.begin(), groups.end());
  return groups;
}

JointWorld::JointWorld(const JointProblem& problem, std::vector<size_t> members)
    : problem_(problem), members_(std::move(members)) {
  const bool many = members_.size() > kManyJobs;
  if (many) simulation_ = {.warmup = 2, .measured = 6};
  hash_seeds_ = std::max<int32_t>(1, many ? std::min(problem.options.hash_seeds, 4) : problem.options.hash_seeds);
  if (members_.size() == 1) hash_seeds_ = std::min(hash_seeds_, 8);  // it collides with nobody but itself
  for (const Link& link : problem.topology.links()) capacity_.push_back(link.capacity);
  for (const size_t j : members_) {
    jobs_.push_back(OnShares(problem.jobs[j]));
    gpus_ += jobs_.back().gpus;
  }
  for (int32_t seed = 0; seed < hash_seeds_; ++seed) {
    std::vector<PeriodicJob>& jobs = hashed_.emplace_back();
    for (const size_t j : members_) jobs.push_back(OnHash(problem.jobs[j], Mix(Mix(static_cast<uint64_t>(seed)) ^ j)));
  }
}

PeriodicJob JointWorld::OnShares(const JointJob& job) const {
  PeriodicJob made = Bare(job);
  Loads loads;
  for (const JointFlow& flow : job.flows) {
    for (size_t p = 0; p < flow.paths.size(); ++p) {
      if (flow.shares[p] > 0) loads.Add(flow.paths[p], flow.shares[p] * BytesAtRate(job, flow));
    }
  }
  made.loads = loads.Take();
  return made;
}

PeriodicJob JointWorld::OnHash(const JointJob& job, uint64_t seed) const {
  PeriodicJob made = Bare(job);
  Loads loads;
  for (size_t f = 0; f < job.flows.size(); ++f) {
    const JointFlow& flow = job.flows[f];
    loads.Add(flow.paths[Mix(seed + f) % flow.paths.size()], BytesAtRate(job, flow));
  }
  made.loads = loads.Take();
  return made;
}

namespace {

void Scale(const std::vector<double>& factor, std::vector<PeriodicJob>* jobs) {
  for (size_t i = 0; i < factor.size(); ++i) {
    (*jobs)[i].compute *= factor[i];
    (*jobs)[i].release = std::min((*jobs)[i].release * factor[i], (*jobs)[i].compute);
  }
}

}  // namespace

SteadyState JointWorld::Run(const JointChoice& choice, const std::vector<double>& factor) const {
  std::vector<PeriodicJob> jobs = jobs_;
  Scale(factor, &jobs);
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (!choice.shifted[i]) continue;
    jobs[i].start = choice.shift[i];
    jobs[i].compute += choice.stretch[i];  // the window holds the bursts, and with them what follows
    jobs[i].release += choice.stretch[i];
  }
  return PeriodicSimulator(capacity_, jobs, simulation_).Run(choice.classes);
}

double JointWorld::Ecmp(const std::vector<double>& factor) const {
  const std::vector<int32_t> one(members_.size(), 0);
  double sum = 0;
  for (std::vector<PeriodicJob> jobs : hashed_) {
    Scale(factor, &jobs);
    sum += PeriodicSimulator(capacity_, jobs, simulation_).Run(one).gpu_use;
  }
  return sum / static_cast<double>(hashed_.size());
}

double JointWorld::MeasuredUse() const {
  double sum = 0;
  for (size_t i = 0; i < members_.size(); ++i) {
    const JointJob& job = problem_.jobs[members_[i]];
    if (!(job.measured.count() > 0)) return 0;
    sum += jobs_[i].gpus * std::min(1.0, job.compute / job.measured);
  }
  return sum / gpus_;
}

}  // namespace weft::planner::jobs
