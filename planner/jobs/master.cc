#include "planner/jobs/master.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "planner/jobs/linear_program.h"

namespace weft::planner::inline jobs {
namespace {

constexpr double kTight = 1e-6;  // relative, of bound and optimum

/// A configuration of one job as the programme sees it: what full speed takes and is worth.
struct Column {
  size_t job;
  Configuration configuration;
  std::vector<RowEntry> rows;   // cuts and GPUs, as shares of them
  double speed;                 // what the objective counts, at full speed
};

class MasterSolver {
 public:
  explicit MasterSolver(const MasterProblem& problem) : problem_(problem), best_alone_(problem.jobs.size(), 0) {}

  Result<MasterAnswer> Run() {
    MasterAnswer answer;
    WEFT_RETURN_IF_ERROR(Start());
    WEFT_RETURN_IF_ERROR(Generate(&answer));
    WEFT_RETURN_IF_ERROR(Round(&answer));
    answer.columns = static_cast<int64_t>(columns_.size());
    return answer;
  }

 private:
  size_t cuts() const { return problem_.cuts.size(); }
  size_t jobs() const { return problem_.jobs.size(); }
  size_t GpuRow() const { return cuts(); }
  size_t JobRow(size_t j) const { return cuts() + 1 + j; }        // Σ_x z_jx ≤ 1
  size_t SpeedRow(size_t j) const { return JobRow(jobs()) + j; }  // speed that the objective counts ≤ speed of columns

  /// The column of `configuration`, checked.
  Result<Column> Make(size_t j, Configuration configuration) const {
    const MasterJob& job = problem_.jobs[j];
    const std::string who = fmt::format("job \"{}\", configuration \"{}\"", job.name, configuration.name);
    double time = configuration.iteration.count();
    if (!(time > 0) || !std::isfinite(time) || !(configuration.compute.count() >= 0) ||
        configuration.compute > configuration.iteration || configuration.gpus <= 0) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("{}: {} GPUs, compute {} s, iteration {} s, must be positive and compute ≤ iteration", who,
                              configuration.gpus, configuration.compute.count(), time));
    }
    for (const CutLoad& load : configuration.loads) {
      if (load.cut >= cuts()) {
        return Fail(Code::kInvalidArgument, fmt::format("{}: cut {}, must be below {}", who, load.cut, cuts()));
      }
      const double capacity = problem_.cuts[load.cut].bytes_per_second();
      if (!(load.bytes >= 0) || !std::isfinite(load.bytes) || (load.bytes > 0 && !(capacity > 0))) {
        return Fail(Code::kInvalidArgument, fmt::format("{}: {} bytes over cut {} of {} bytes/s, must be finite and fit",
                                                        who, load.bytes, load.cut, capacity));
      }
      if (load.bytes > 0) time = std::max(time, load.bytes / capacity);
    }
    configuration.iteration = Seconds(time);
    Column column{j, std::move(configuration), {}, 0};
    for (const CutLoad& load : column.configuration.loads) {
      if (load.bytes > 0) column.rows.push_back({load.cut, load.bytes / time / problem_.cuts[load.cut].bytes_per_second()});
    }
    if (problem_.gpus > 0) {
      const double share = static_cast<double>(column.configuration.gpus) / static_cast<double>(problem_.gpus);
      if (share > 1) {
        return Fail(Code::kInvalidArgument, fmt::format("{}: {} GPUs, must be at most the cluster's {}", who,
                                                        column.configuration.gpus, problem_.gpus));
      }
      column.rows.push_back({GpuRow(), share});
    }
    return column;
  }

  double Speed(const Column& column) const {
    const Configuration& c = column.configuration;
    switch (problem_.objective) {
      case MasterObjective::kGpuUse:
        return static_cast<double>(c.gpus) * c.compute.count() / c.iteration.count();
      case MasterObjective::kLeastSpeed: return best_alone_[column.job] / c.iteration.count();
      case MasterObjective::kDeadlines: return problem_.jobs[column.job].deadline.count() / c.iteration.count();
    }
    return 0;
  }

  /// First columns: each job's fastest configuration alone, which also sets what kLeastSpeed compares with.
  Status Start() {
    if (!problem_.source) return Fail(Code::kInvalidArgument, "master problem: no source of configurations");
    program_ = NewProgram(problem_.gpus > 0);
    for (size_t j = 0; j < jobs(); ++j) {
      const MasterJob& job = problem_.jobs[j];
      if (!(job.weight >= 0) || (problem_.objective == MasterObjective::kDeadlines && !(job.deadline.count() > 0))) {
        return Fail(Code::kInvalidArgument, fmt::format("job \"{}\": weight {}, deadline {} s, must be positive", job.name,
                                                        job.weight, job.deadline.count()));
      }
      WEFT_ASSIGN_OR_RETURN(Column column, Make(j, problem_.source(j, [&](const Configuration& c) {
        return -AloneTime(c);
      })));
      best_alone_[j] = column.configuration.iteration.count();
      column.speed = Speed(column);
      Add(std::move(column));
      if (problem_.gpus == 0) continue;
      // Rounding needs what is cheap in GPUs as well, which a programme in fractions of jobs never asks for.
      WEFT_ASSIGN_OR_RETURN(Column cheap, Make(j, problem_.source(j, [&](const Configuration& c) {
        const bool late = problem_.objective == MasterObjective::kDeadlines && AloneTime(c) > job.deadline.count();
        return late ? -1e15 * AloneTime(c) : -static_cast<double>(c.gpus) - 1e-6 * AloneTime(c);
      })));
      cheap.speed = Speed(cheap);
      Add(std::move(cheap));
    }
    return Ok();
  }

  double AloneTime(const Configuration& c) const {
    double time = c.iteration.count();
    for (const CutLoad& load : c.loads) {
      if (load.cut < cuts()) time = std::max(time, load.bytes / problem_.cuts[load.cut].bytes_per_second());
    }
    return time;
  }

  /// Rows, and the columns of what the objective counts: the one least speed, or each job's counted speed.
  std::unique_ptr<LinearProgram> NewProgram(bool with_gpus) const {
    std::vector<double> upper(cuts(), 1);
    upper.push_back(with_gpus ? 1 : 1e30);
    upper.resize(JobRow(jobs()), 1);
    upper.resize(SpeedRow(jobs()), 0);
    auto program = std::make_unique<LinearProgram>(upper);
    if (problem_.objective == MasterObjective::kLeastSpeed) {
      std::vector<RowEntry> all;
      for (size_t j = 0; j < jobs(); ++j) all.push_back({SpeedRow(j), 1});
      program->AddColumn(-1, all, 1);
    } else {
      const double most = problem_.objective == MasterObjective::kDeadlines ? 1 : 1e30;
      for (size_t j = 0; j < jobs(); ++j) program->AddColumn(-problem_.jobs[j].weight, {{SpeedRow(j), 1}}, most);
    }
    return program;
  }

  size_t Counters() const { return problem_.objective == MasterObjective::kLeastSpeed ? 1 : jobs(); }

  static void AddTo(LinearProgram* program, const Column& column, size_t job_row, size_t speed_row) {
    std::vector<RowEntry> rows = column.rows;
    rows.push_back({job_row, 1});
    rows.push_back({speed_row, -column.speed});
    program->AddColumn(0, rows);
  }

  void Add(Column column) {
    AddTo(program_.get(), column, JobRow(column.job), SpeedRow(column.job));
    columns_.push_back(std::move(column));
  }

  double Profit(const Column& column, const std::vector<double>& prices) const {
    double profit = prices[SpeedRow(column.job)] * column.speed;
    for (const RowEntry& row : column.rows) profit -= prices[row.row] * row.value;
    return profit;
  }

  /// The worth of a configuration to its job at these prices; one that cannot be a column is worth nothing at all.
  std::function<double(const Configuration&)> ProfitOf(size_t j, const std::vector<double>& prices) const {
    return [this, j, &prices](const Configuration& c) {
      Result<Column> column = Make(j, c);
      if (!column) return -std::numeric_limits<double>::infinity();
      column->speed = Speed(*column);
      return Profit(*column, prices);
    };
  }

  /// Prices as the bound needs them: of the speed rows any w ≥ 0 will do where the counter is bounded, for kLeastSpeed they
  /// must sum to 1 at least, and where it is unbounded w ≥ weight. The solver's are so up to its tolerance.
  void Repair(std::vector<double>* prices) const {
    double sum = 0;
    for (size_t j = 0; j < jobs(); ++j) {
      double& price = (*prices)[SpeedRow(j)];
      if (problem_.objective == MasterObjective::kGpuUse) price = std::max(price, problem_.jobs[j].weight);
      sum += price;
    }
    if (problem_.objective != MasterObjective::kLeastSpeed || sum >= 1) return;
    for (size_t j = 0; j < jobs(); ++j) {
      double& price = (*prices)[SpeedRow(j)];
      price = sum > 0 ? price / sum * (1 + 1e-12) : 1.0 / static_cast<double>(jobs());
    }
  }

  /// Σ of what rows and counters are worth at these prices; the jobs' own profits come on top.
  double PriceOfRows(const std::vector<double>& prices) const {
    double sum = problem_.gpus > 0 ? prices[GpuRow()] : 0;
    for (size_t s = 0; s < cuts(); ++s) sum += prices[s];
    if (problem_.objective == MasterObjective::kDeadlines) {
      for (size_t j = 0; j < jobs(); ++j) sum += std::max(0.0, problem_.jobs[j].weight - prices[SpeedRow(j)]);
    }
    return sum;
  }

  Status Generate(MasterAnswer* answer) {
    answer->bound = std::numeric_limits<double>::infinity();
    answer->complete = false;
    for (answer->rounds = 1; answer->rounds <= problem_.rounds; ++answer->rounds) {
      solution_ = program_->Solve();
      if (!solution_.optimal) return Fail(Code::kInternal, "master problem: the solver found no optimum");
      answer->relaxed = -solution_.objective;
      std::vector<double> prices = solution_.prices;
      Repair(&prices);
      double bound = PriceOfRows(prices);
      bool added = false;
      for (size_t j = 0; j < jobs(); ++j) {
        WEFT_ASSIGN_OR_RETURN(Column column, Make(j, problem_.source(j, ProfitOf(j, prices))));
        column.speed = Speed(column);
        const double profit = Profit(column, prices);
        bound += std::max(0.0, profit);
        if (profit <= prices[JobRow(j)] + kTight * kTight * (1 + std::abs(profit))) continue;
        added = true;
        Add(std::move(column));
      }
      answer->bound = std::min(answer->bound, bound);
      answer->complete = answer->bound - answer->relaxed <= kTight * std::max(1e-9, std::abs(answer->bound));
      if (answer->complete || !added) break;
    }
    answer->gpu_price = problem_.gpus > 0 ? solution_.prices[GpuRow()] / static_cast<double>(problem_.gpus) : 0;
    for (size_t s = 0; s < cuts(); ++s) {
      const double capacity = problem_.cuts[s].bytes_per_second();
      answer->cut_price.push_back(capacity > 0 ? solution_.prices[s] / capacity : 0);
    }
    return Ok();
  }

  /// The programme with at most one column per job; GPUs are checked as whole numbers instead.
  double Evaluate(const std::vector<int64_t>& chosen, std::vector<double>* share) {
    --moves_left_;
    const std::unique_ptr<LinearProgram> program = NewProgram(false);
    std::vector<size_t> of_column;
    for (size_t j = 0; j < jobs(); ++j) {
      if (chosen[j] < 0) continue;
      AddTo(program.get(), columns_[static_cast<size_t>(chosen[j])], JobRow(j), SpeedRow(j));
      of_column.push_back(j);
    }
    const LinearSolution solution = program->Solve();
    share->assign(jobs(), 0);
    for (size_t i = 0; i < of_column.size(); ++i) (*share)[of_column[i]] = solution.x[Counters() + i];
    return solution.optimal ? -solution.objective : -1;
  }

  int64_t Gpus(const std::vector<int64_t>& chosen) const {
    int64_t sum = 0;
    for (const int64_t c : chosen) sum += c < 0 ? 0 : columns_[static_cast<size_t>(c)].configuration.gpus;
    return sum;
  }

  bool Fits(const std::vector<int64_t>& chosen) const { return problem_.gpus == 0 || Gpus(chosen) <= problem_.gpus; }

  /// Each job's most used column where GPUs are left for it, most used first; then one job at a time is changed.
  Status Round(MasterAnswer* answer) {
    moves_left_ = problem_.moves;
    std::vector<size_t> order(columns_.size());
    for (size_t c = 0; c < order.size(); ++c) order[c] = c;
    const auto use = [&](size_t c) { return Counters() + c < solution_.x.size() ? solution_.x[Counters() + c] : 0; };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return use(a) > use(b); });
    std::vector<int64_t> chosen(jobs(), -1);
    for (const size_t c : order) {
      const size_t j = columns_[c].job;
      if (chosen[j] >= 0) continue;
      chosen[j] = static_cast<int64_t>(c);
      if (!Fits(chosen)) chosen[j] = -1;
    }
    std::vector<double> share;
    answer->rounded = Evaluate(chosen, &share);
    for (bool improved = true; improved && moves_left_ > 0;) improved = Move(&chosen, &share, &answer->rounded);
    for (size_t j = 0; j < jobs(); ++j) {
      MasterChoice choice{.runs = chosen[j] >= 0, .share = share[j]};
      if (choice.runs) choice.configuration = columns_[static_cast<size_t>(chosen[j])].configuration;
      answer->jobs.push_back(std::move(choice));
    }
    if (answer->rounded < 0) return Fail(Code::kInternal, "master problem: the solver found no optimum while rounding");
    return Ok();
  }

  bool Move(std::vector<int64_t>* chosen, std::vector<double>* share, double* value) {
    if (Reached(*value)) return false;
    bool improved = false;
    for (size_t c = 0; c < columns_.size() && moves_left_ > 0; ++c) {
      const size_t j = columns_[c].job;
      if ((*chosen)[j] == static_cast<int64_t>(c)) continue;
      std::vector<int64_t> trial = *chosen;
      trial[j] = static_cast<int64_t>(c);
      // Where it does not fit, one other job may give its place.
      for (size_t k = 0; k < jobs() && !Fits(trial); ++k) {
        if (k == j || trial[k] < 0) continue;
        const int64_t old = trial[k];
        trial[k] = -1;
        if (!Fits(trial)) trial[k] = old;
      }
      if (!Fits(trial)) continue;
      std::vector<double> trial_share;
      const double trial_value = Evaluate(trial, &trial_share);
      // As good with fewer GPUs makes room for others.
      const bool better = trial_value > *value * (1 + kTight) + 1e-12;
      if (!better && (problem_.gpus == 0 || trial_value < *value * (1 - 1e-9) || Gpus(trial) >= Gpus(*chosen))) continue;
      *chosen = std::move(trial);
      *share = std::move(trial_share);
      *value = trial_value;
      improved = true;
    }
    return improved;
  }

  bool Reached(double value) const { return value >= -solution_.objective * (1 - kTight); }

  const MasterProblem& problem_;
  std::vector<double> best_alone_;
  std::unique_ptr<LinearProgram> program_;
  std::vector<Column> columns_;
  LinearSolution solution_;
  int32_t moves_left_ = 0;
};

}  // namespace

Result<MasterAnswer> SolveMaster(const MasterProblem& problem) { return MasterSolver(problem).Run(); }

ConfigurationSource FromPools(std::vector<std::vector<Configuration>> pools) {
  return [pools = std::move(pools)](size_t job, const std::function<double(const Configuration&)>& profit) {
    const Configuration* best = nullptr;
    double most = 0;
    if (job >= pools.size()) return Configuration{};
    for (const Configuration& c : pools[job]) {
      const double value = profit(c);
      if (best == nullptr || value > most) best = &c, most = value;
    }
    return best == nullptr ? Configuration{} : *best;
  };
}

}  // namespace weft::planner::jobs
