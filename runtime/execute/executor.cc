#include "runtime/execute/executor.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/utils.h>

#include <cmath>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "runtime/execute/liveness.h"
#include "runtime/execute/program_shape.h"
#include "runtime/execute/streams.h"
#include "runtime/execute/stretch.h"
#include "runtime/execute/units.h"
#include "runtime/guarded.h"
#include "runtime/model/grid.h"
#include "runtime/model/parts.h"

namespace weft::runtime {
namespace {

using planner::Instruction;
using planner::ModelPart;
using planner::StepAction;

/// Shorter ones are those of a lock.
constexpr Seconds kAWait{20e-6};

std::string Describe(size_t index, const Instruction& i) {
  std::string text = fmt::format("instruction {}: {}", index, planner::ActionName(i.action));
  if (planner::OfPart(i.action)) text += fmt::format(" of {}", planner::PartName(i.part));
  if (i.layer >= 0) text += fmt::format(", layer {}", i.layer);
  if (i.micro_batch >= 0) text += fmt::format(", micro-batch {}", i.micro_batch);
  return text;
}

}  // namespace

class Executor::Impl {
 public:
  Impl(const planner::StepProgram& program, const ExecutorOptions& options, ProgramGroups& groups)
      : list_(program.classes[static_cast<size_t>(program.ranks[static_cast<size_t>(options.rank)].rank_class)]),
        options_(options),
        groups_(groups),
        shape_(ShapeOf(program, options.model, options.rank)),
        liveness_(LivenessOf(list_)),
        loss_share_(program.replicas_differ ? static_cast<double>(program.replicas) : 1),
        streams_(Joined(groups)) {
    at::set_num_threads(options.threads);
    if (!options.least.empty()) Stretch::SetExactTimers();
  }

  Status Start() {
    WEFT_ASSIGN_OR_RETURN(units_, Units::Create(list_, shape_, groups_, options_.seed));
    return Ok();
  }

  RankState State() { return units_->State(); }
  void SetSteps(int64_t done) { step_ = done; }
  const StepRecord& record() const { return record_; }

  Result<StepResult> Step(const Samples& samples, double learning_rate) {
    const torch::NoGradGuard no_grad;
    samples_ = &samples;
    adam_.learning_rate = learning_rate;
    ++step_;
    loss_ = 0;
    result_ = {};
    tokens_.clear();
    states_.clear();
    values_.assign(list_.values.size(), {});
    last_on_unit_.assign(list_.units.size(), -1);
    last_gather_on_unit_.assign(list_.units.size(), -1);
    last_mix_on_unit_.assign(list_.units.size(), -1);
    record_ = StepRecord::Of(list_.instructions.size(), clock_.Now());
    waited_ = true;
    streams_.Begin(list_.instructions.size());
    for (at_ = 0; at_ < list_.instructions.size(); ++at_) {
      const Instruction& i = list_.instructions[at_];
      if (step_ % i.every != 0) continue;
      if (Status status = Execute(i); !status) return Fail(status.error().WithContext(Describe(at_, i)));
      for (const int32_t value : liveness_.free_after[at_]) values_[static_cast<size_t>(value)] = torch::Tensor();
    }
    WEFT_RETURN_IF_ERROR(WaitForTheRest());
    result_.loss = values_[static_cast<size_t>(liveness_.loss)].item<double>() / loss_share_;
    if (!std::isfinite(result_.loss)) return Fail(Code::kDataLoss, fmt::format("the loss is {}, expected a number", result_.loss));
    return result_;
  }

 private:
  using StateKey = std::tuple<ModelPart, int32_t, int32_t, int32_t>;

  /// By communicator: whether this rank is a member.
  static std::vector<bool> Joined(const ProgramGroups& groups) {
    std::vector<bool> joined;
    for (size_t i = 0; i < groups.count(); ++i) joined.push_back(groups.PlaceOf(static_cast<int32_t>(i)).index >= 0);
    return joined;
  }

  /// [1 × 1] values are double precision, whatever the program's type.
  torch::ScalarType TypeOf(int64_t elements) const { return elements == 1 ? torch::kFloat64 : shape_.type; }

  /// Waits for a communication of the list. What ends a wait says what it counts as.
  Status WaitFor(int32_t instruction) {
    const Seconds begin = clock_.Now();
    const Status status = streams_.Wait(instruction);
    const Seconds waited = clock_.Now() - begin;
    result_.waited += waited;
    const planner::CommunicatorKind kind = groups_.KindOf(list_.instructions[static_cast<size_t>(instruction)].communicator);
    (planner::WaitsForStages(kind) ? record_.parts.bubble : record_.parts.exposed) += waited;
    if (waited > kAWait) waited_ = true;
    return status;
  }

  /// Each stream's last communication ends its others.
  Status WaitForTheRest() {
    std::map<int32_t, int32_t> last;
    for (size_t k = 0; k < list_.instructions.size(); ++k) {
      const Instruction& i = list_.instructions[k];
      if (planner::Communicates(i.action) && step_ % i.every == 0) last[i.communicator] = static_cast<int32_t>(k);
    }
    for (const auto& [communicator, instruction] : last) WEFT_RETURN_IF_ERROR(WaitFor(instruction));
    return streams_.WaitForAll();
  }

  /// Waits for the communications that made what the instruction reads.
  Status WaitForInputs(const Instruction& i) {
    for (const int32_t value : i.inputs) {
      const int32_t writer = liveness_.writer[static_cast<size_t>(value)];
      if (planner::Communicates(list_.instructions[static_cast<size_t>(writer)].action)) {
        WEFT_RETURN_IF_ERROR(WaitFor(writer));
      }
    }
    return Ok();
  }

  Status WaitForUnit(int32_t unit) {
    const int32_t last = last_on_unit_[static_cast<size_t>(unit)];
    return last < 0 ? Ok() : WaitFor(last);
  }

  Status Execute(const Instruction& i) {
    if (planner::Communicates(i.action)) return i.unit >= 0 ? ExchangeUnit(i) : Exchange(i);
    WEFT_RETURN_IF_ERROR(WaitBefore(i));
    const Seconds begin = clock_.Now(), processor = ThreadProcessorTime();
    WEFT_RETURN_IF_ERROR(Run(i));
    record_.processor[at_] = ThreadProcessorTime() - processor;
    if (!options_.least.empty()) Last(begin, options_.least[at_]);
    const Seconds end = clock_.Now();
    record_.instructions[at_] = {begin - record_.begin, end - record_.begin};
    record_.parts.compute += end - begin;
    return Ok();
  }

  /// For all communications that a computation needs.
  Status WaitBefore(const Instruction& i) {
    WEFT_RETURN_IF_ERROR(WaitForInputs(i));
    for (const int32_t need : i.needs) WEFT_RETURN_IF_ERROR(WaitFor(need));
    const auto wait = [&](int32_t last) { return last < 0 ? Ok() : WaitFor(last); };
    if (i.action == StepAction::kUpdate) {
      WEFT_RETURN_IF_ERROR(WaitForUnit(i.unit));
      return wait(last_mix_on_unit_[static_cast<size_t>(i.unit)]);
    }
    // Its gather alone has to be over: a scatter of its gradients touches no parameters.
    if (i.action == StepAction::kRelease) return wait(last_gather_on_unit_[static_cast<size_t>(i.unit)]);
    if (!planner::OfPart(i.action)) return Ok();
    for (const int32_t unit : units_->UnitsOf(i.part, i.layer, i.slice)) WEFT_RETURN_IF_ERROR(WaitForUnit(unit));
    return Ok();
  }

  Status Run(const Instruction& i) {
    switch (i.action) {
      case StepAction::kLossSum: return Write(i, 0, Scalar(shape_.tensor == 0 ? loss_ : 0));
      case StepAction::kSquares: return Write(i, 0, Scalar(units_->Squares()));
      case StepAction::kUpdate: Update(i); return Ok();
      case StepAction::kRelease: units_->Release(i.unit); return Ok();
      default: return Compute(i);
    }
  }

  /// Sleeps until the computation that began at `begin` has lasted `least`.
  void Last(Seconds begin, Seconds least) {
    if (least <= Seconds(0)) return;
    const Seconds over = clock_.Now();
    ++record_.stretched;
    if (over - begin > least) ++record_.overruns;
    stretch_.Last(begin, over, least, waited_);
    waited_ = false;
  }

  static torch::Tensor Scalar(double value) { return torch::full({1, 1}, value, torch::kFloat64); }
  void Update(const Instruction& i) {
    const double norm = std::sqrt(values_[static_cast<size_t>(i.inputs[0])].item<double>());
    result_.gradient_norm = norm;
    // As LibTorch's clip_grad_norm_.
    const double factor = options_.clip > 0 ? std::min(1.0, options_.clip / (norm + 1e-6)) : 1;
    units_->Update(i.unit, adam_, factor, step_);
  }

  Status Write(const Instruction& i, size_t output, torch::Tensor tensor) {
    const int32_t value = i.outputs[output];
    const planner::ValueShape& shape = list_.values[static_cast<size_t>(value)];
    if (tensor.dim() != 2 || tensor.size(0) != shape.rows || tensor.size(1) != shape.columns) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("made {} elements, expected the program's {} x {}", tensor.numel(), shape.rows, shape.columns));
    }
    if (tensor.scalar_type() != TypeOf(shape.elements())) {
      return Fail(Code::kInvalidArgument, fmt::format("made a value of another type than {} elements have", shape.elements()));
    }
    values_[static_cast<size_t>(value)] = tensor.contiguous();
    return Ok();
  }

  const MicroBatchTokens* Tokens(int32_t micro_batch) {
    auto known = tokens_.find(micro_batch);
    if (known == tokens_.end()) known = tokens_.emplace(micro_batch, TokensOf(shape_, (*samples_)(micro_batch))).first;
    return &known->second;
  }

  /// A part's parameters as a value, or a value to their gradients.
  Status MovePanel(const Instruction& i) {
    WEFT_ASSIGN_OR_RETURN(const torch::Tensor panel, units_->PanelOf(i.part, i.layer, planner::AddsToGradients(i)));
    if (i.action == StepAction::kParameters) return Write(i, 0, panel);
    panel.add_(values_[static_cast<size_t>(i.inputs[0])]);
    return Ok();
  }

  Status Compute(const Instruction& i) {
    const bool forward = i.action == StepAction::kForward;
    if (i.action == StepAction::kParameters || i.action == StepAction::kGradient) return MovePanel(i);
    WEFT_ASSIGN_OR_RETURN(PartParameters parameters, units_->Of(i.part, i.layer, i.slice, planner::AddsToGradients(i)));
    if (i.action != StepAction::kWeight && !units_->UnitsOf(i.part, i.layer, i.slice).empty() && parameters.values.empty()) {
      return Fail(Code::kFailedPrecondition, "its unit is not gathered");
    }
    std::vector<torch::Tensor> inputs;
    for (const int32_t value : i.inputs) inputs.push_back(values_[static_cast<size_t>(value)]);
    torch::Tensor before;  // what the slices before this one add up to
    if (planner::AddsToSlices(i)) before = inputs.back(), inputs.pop_back();
    const bool whole = i.part == ModelPart::kHead || i.part == ModelPart::kProduct;
    const ModelShape shape = whole ? shape_ : ShapeOfSlice(shape_, i.slice, i.slices);
    const PartCall call{.shape = shape,
                        .part = i.part,
                        .inputs = inputs,
                        .parameters = parameters,
                        .tokens = planner::ReadsText(i.part) ? Tokens(i.micro_batch) : nullptr,
                        .slice = i.slice,
                        .slices = i.slices,
                        .layer = i.layer,
                        .step = i.tag,
                        .output = i.outputs.empty() ? planner::ValueShape() : list_.values[static_cast<size_t>(i.outputs[0])]};
    const StateKey key(i.part, i.layer, i.micro_batch, i.slice);
    Tensors outputs;
    if (forward) {
      outputs = ForwardOf(call, i.keeps ? &states_[key] : nullptr);
      if (i.part == ModelPart::kLoss || i.part == ModelPart::kClassLoss) loss_ += outputs[0].item<double>();
    } else if (i.action == StepAction::kData) {
      PartState& state = states_[key];
      outputs = DataGradientOf(call, state);
      if (state.gradients.empty()) states_.erase(key);  // no weight gradient follows
    } else if (i.part == ModelPart::kProduct) {
      outputs = ProductWeight(call);
    } else {
      AddWeightGradient(call, states_[key]);
      states_.erase(key);
    }
    if (before.defined()) outputs[0] = outputs[0] + before;
    for (size_t k = 0; k < outputs.size(); ++k) WEFT_RETURN_IF_ERROR(Write(i, k, std::move(outputs[k])));
    return Ok();
  }

  /// Earlier communications that one has to wait for: those named, and those that made what it reads.
  std::vector<int32_t> After(const Instruction& i) const {
    std::vector<int32_t> after = i.needs;
    for (const int32_t value : i.inputs) {
      const int32_t writer = liveness_.writer[static_cast<size_t>(value)];
      if (planner::Communicates(list_.instructions[static_cast<size_t>(writer)].action)) after.push_back(writer);
    }
    return after;
  }

  Status Exchange(const Instruction& i) {
    torch::Tensor input, output;
    const torch::ScalarType type = TypeOf(i.elements);
    const auto wrong_type = [&](int64_t elements) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("exchanges {} elements with a value of {} that has another type", i.elements, elements));
    };
    std::vector<int32_t> after = After(i);
    if (!i.outputs.empty()) {
      const planner::ValueShape& shape = list_.values[static_cast<size_t>(i.outputs[0])];
      if (TypeOf(shape.elements()) != type) return wrong_type(shape.elements());
      // Sums of kReduce go one after the other to the ranks that they are for, into the same memory.
      output = i.inputs.size() > 1 ? values_[static_cast<size_t>(i.inputs[1])] : torch::empty({shape.rows, shape.columns}, type);
      values_[static_cast<size_t>(i.outputs[0])] = output;
    }
    if (!i.inputs.empty()) {
      input = values_[static_cast<size_t>(i.inputs[0])];
      // One that is still to come has the type that its own exchange gave it.
      if (input.scalar_type() != type) return wrong_type(input.numel());
    }
    Transfer transfer{.action = i.action,
                      .type = type == torch::kFloat64 ? collectives::DataType::kFloat64 : collectives::DataType::kFloat32,
                      .elements = i.elements,
                      .root = i.tag,
                      .input = input.defined() ? input.data_ptr() : nullptr,
                      .output = output.defined() ? output.data_ptr() : nullptr};
    // Both tensors are held until it is over.
    streams_.Enqueue(static_cast<size_t>(i.communicator), static_cast<int32_t>(at_), std::move(after),
                     [this, index = at_, transfer, input, output]() -> Status {
                       return Guarded("exchange", [&]() -> Status { return RunTransfer(index, transfer); });
                     });
    return Ok();
  }

  Status ExchangeUnit(const Instruction& i) {
    // Computations read the parameters meanwhile.
    int32_t& last = (i.action == StepAction::kMix ? last_mix_on_unit_ : last_on_unit_)[static_cast<size_t>(i.unit)];
    std::vector<int32_t> after = i.needs;
    if (last >= 0) {
      after.push_back(last);
      // All but a sum in place may give the unit other memory.
      const bool in_place = i.of_shard || list_.instructions[static_cast<size_t>(last)].action == StepAction::kAllReduce;
      const bool arrives =
          !i.of_shard && i.action == StepAction::kReduceScatter && list_.instructions[static_cast<size_t>(last)].of_shard;
      if (!in_place || arrives) WEFT_RETURN_IF_ERROR(WaitFor(last));
    }
    last = static_cast<int32_t>(at_);
    if (i.action == StepAction::kAllGather) last_gather_on_unit_[static_cast<size_t>(i.unit)] = last;
    const Transfer transfer = units_->Prepare(i);
    streams_.Enqueue(static_cast<size_t>(i.communicator), static_cast<int32_t>(at_), std::move(after),
                     [this, index = at_, transfer]() -> Status {
                       return Guarded("exchange", [&]() -> Status {
                         WEFT_RETURN_IF_ERROR(RunTransfer(index, transfer));
                         units_->Finish(list_.instructions[index], groups_.SizeOf(list_.instructions[index].communicator));
                         return Ok();
                       });
                     });
    return Ok();
  }

  Status RunTransfer(size_t index, const Transfer& transfer) {
    const Instruction& i = list_.instructions[index];
    const Seconds begin = clock_.Now();
    Status status = groups_.Run(i.communicator, transfer);
    record_.instructions[index] = {begin - record_.begin, clock_.Now() - record_.begin};
    return status ? Ok() : Status(Fail(status.error().WithContext(Describe(index, i))));
  }

  const planner::RankClass list_;
  const ExecutorOptions options_;
  ProgramGroups& groups_;
  const ModelShape shape_;
  const Liveness liveness_;
  std::unique_ptr<Units> units_;
  AdamOptions adam_;
  SystemClock clock_;
  // Of the step under way.
  const Samples* samples_ = nullptr;
  int64_t step_ = 0;
  size_t at_ = 0;
  double loss_ = 0;
  StepResult result_;
  StepRecord record_;
  Stretch stretch_;
  bool waited_ = false;  // since the last computation
  std::vector<torch::Tensor> values_;
  std::vector<int32_t> last_on_unit_, last_gather_on_unit_, last_mix_on_unit_;
  std::map<StateKey, PartState> states_;
  std::map<int32_t, MicroBatchTokens> tokens_;
  const double loss_share_;  // replicas that differ have each the mean of their own
  Streams streams_;  // last: its threads use the rest
};

Executor::Executor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executor::~Executor() = default;

Result<std::unique_ptr<Executor>> Executor::Create(const planner::StepProgram& program, const ExecutorOptions& options,
                                                   ProgramGroups& groups) {
  WEFT_RETURN_IF_ERROR(CheckModel(program, options.model, options.rank));
  std::unique_ptr<Impl> impl;
  WEFT_RETURN_IF_ERROR(Guarded("build model", [&]() -> Status {
    impl = std::make_unique<Impl>(program, options, groups);
    return impl->Start();
  }));
  return std::unique_ptr<Executor>(new Executor(std::move(impl)));
}

const StepRecord& Executor::record() const { return impl_->record(); }
RankState Executor::State() { return impl_->State(); }
void Executor::SetSteps(int64_t done) { impl_->SetSteps(done); }

Result<StepResult> Executor::Step(const Samples& samples, double learning_rate) {
  return Guarded("step", [&] { return impl_->Step(samples, learning_rate); });
}

}  // namespace weft::runtime
