#include "runtime/trainer.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "common/check.h"
#include "runtime/cnn.h"
#include "runtime/gpt.h"
#include "runtime/guarded.h"
#include "runtime/text_data.h"

namespace weft::runtime {
namespace {

/// Calls back when a parameter's gradient has been added to its memory.
class ReadyHook final : public torch::autograd::FunctionPostHook {
 public:
  ReadyHook(size_t gradient, const std::function<void(size_t)>* ready) : gradient_(gradient), ready_(ready) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    (*ready_)(gradient_);
    return outputs;
  }

 private:
  size_t gradient_;
  const std::function<void(size_t)>* ready_;
};

Status CheckOptions(const TrainerOptions& options) {
  const planner::ModelSpec& model = options.model;
  const auto wrong = [&](const std::string& detail) {
    return Fail(Code::kInvalidArgument, "build model \"" + model.name + "\": " + detail);
  };
  if (model.IsCnn()) {
    const bool fits = options.batch >= 1 && options.threads >= 1 && options.sequence == 1;
    return fits ? Ok() : Status(wrong("batch and threads must be positive, and the sequence 1: a volume is one"));
  }
  const bool family = model.architecture == planner::Architecture::kGpt2 || model.architecture == planner::Architecture::kLlama ||
                      model.architecture == planner::Architecture::kMixtral;
  if (!family) return wrong("not of the gpt2, llama or mixtral family, the ones that are trained");
  if (model.vocab != 256) return wrong("vocabulary " + std::to_string(model.vocab) + ", must be 256 (bytes)");
  if (model.layers < 1 || model.hidden < 1 || model.heads < 1 || model.ffn_hidden < 1) {
    return wrong("layers, width, heads and MLP width must be positive");
  }
  if (model.architecture == planner::Architecture::kGpt2 && model.hidden % model.heads != 0) {
    return wrong("width " + std::to_string(model.hidden) + " cannot be cut into " + std::to_string(model.heads) +
                 " equal heads");
  }
  if (model.kv_heads < 1 || model.heads % model.kv_heads != 0 || model.head_dim < 1) {
    return wrong(std::to_string(model.heads) + " heads cannot share " + std::to_string(model.kv_heads) + " key/value heads");
  }
  if (options.sequence < 1 || options.sequence > model.max_positions) {
    return wrong("sequence " + std::to_string(options.sequence) + ", must be 1 to " +
                 std::to_string(model.max_positions) + " (the model's positions)");
  }
  if (options.batch < 1 || options.threads < 1) return wrong("batch and threads must be positive");
  return Ok();
}

}  // namespace

class Trainer::Impl {
 public:
  explicit Impl(const TrainerOptions& options) : options_(options) {
    at::set_num_threads(options.threads);
    if (options.model.IsCnn()) {
      cnn_ = Cnn(options.model, options.seed, options.double_precision ? torch::kFloat64 : torch::kFloat32);
      parameters_ = cnn_->parameters();
    } else {
      gpt_ = Gpt(options.model, CapacityGroups(options));
      if (options.double_precision) gpt_->to(torch::kFloat64);
      InitialiseGpt(*gpt_, options.model, options.seed);
      parameters_ = gpt_->parameters();
    }
    optimizer_ = std::make_unique<torch::optim::AdamW>(parameters_, torch::optim::AdamWOptions(options.learning_rate));
    std::reverse(parameters_.begin(), parameters_.end());
    for (const torch::Tensor& parameter : parameters_) elements_.push_back(parameter.numel());
  }

  const std::vector<int64_t>& elements() const { return elements_; }

  void Bind(std::span<const std::span<float>> memory, std::function<void(size_t)> ready) {
    WEFT_CHECK(!options_.double_precision && memory.size() == parameters_.size() && accumulators_.empty(),
               "gradients are bound once, all of them");
    ready_ = std::move(ready);
    for (size_t i = 0; i < parameters_.size(); ++i) {
      WEFT_CHECK(static_cast<int64_t>(memory[i].size()) == elements_[i], "gradient memory of another size");
      parameters_[i].mutable_grad() = torch::from_blob(memory[i].data(), parameters_[i].sizes(), torch::kFloat32);
      // Without the reference the accumulator, and the hook with it, would go after each backward.
      accumulators_.push_back(torch::autograd::impl::grad_accumulator(parameters_[i]));
      accumulators_.back()->add_post_hook(std::make_unique<ReadyHook>(i, &ready_));
    }
  }

  double Forward(std::span<const uint8_t> samples) {
    const int64_t length = SampleBytes(options_.model, options_.sequence) + 1;
    WEFT_CHECK(static_cast<int64_t>(samples.size()) == options_.batch * length, "samples of another shape");
    const torch::Tensor bytes = torch::from_blob(const_cast<uint8_t*>(samples.data()), {options_.batch, length}, torch::kUInt8);
    if (cnn_) {
      loss_ = cnn_->Loss(bytes);
      return loss_.item<double>();
    }
    const torch::Tensor tokens = bytes.to(torch::kInt64);
    const torch::Tensor loss = gpt_->Loss(tokens.slice(1, 0, options_.sequence), tokens.slice(1, 1, length));
    loss_ = options_.model.IsMoe() ? loss + gpt_->BalanceLoss() : loss;
    return loss.item<double>();
  }

  void Backward() {
    loss_.backward();
    loss_ = torch::Tensor();  // frees the graph
  }

  std::vector<double> Flat(bool gradients) const {
    std::vector<double> flat;
    for (const torch::Tensor& parameter : parameters_) {
      const torch::Tensor values = (gradients ? parameter.grad() : parameter.detach()).to(torch::kFloat64).contiguous();
      flat.insert(flat.end(), values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
    }
    return flat;
  }

  void SetFlat(std::span<const double> flat, bool gradients) {
    const torch::NoGradGuard no_grad;
    int64_t at = 0;
    for (torch::Tensor& parameter : parameters_) {
      torch::Tensor target = gradients ? parameter.mutable_grad() : parameter;
      WEFT_CHECK(at + target.numel() <= static_cast<int64_t>(flat.size()), "fewer values than parameters");
      target.copy_(torch::from_blob(const_cast<double*>(flat.data()) + at, target.sizes(), torch::kFloat64));
      at += target.numel();
    }
  }

  void Update(double learning_rate) {
    if (options_.clip > 0) torch::nn::utils::clip_grad_norm_(parameters_, options_.clip);
    for (auto& group : optimizer_->param_groups()) group.options().set_lr(learning_rate);
    optimizer_->step();
    if (accumulators_.empty()) optimizer_->zero_grad();
  }

 private:
  static std::vector<std::vector<int64_t>> CapacityGroups(const TrainerOptions& options) {
    if (!options.model.IsMoe() || !options.capacity_groups.empty()) return options.capacity_groups;
    std::vector<int64_t> all(static_cast<size_t>(options.batch * options.sequence));
    std::iota(all.begin(), all.end(), int64_t{0});
    return {std::move(all)};
  }

  TrainerOptions options_;
  Gpt gpt_{nullptr};  // one of the two
  Cnn cnn_{nullptr};
  std::vector<torch::Tensor> parameters_;  // in the order of gradients
  std::vector<int64_t> elements_;
  std::unique_ptr<torch::optim::AdamW> optimizer_;
  std::function<void(size_t)> ready_;
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  torch::Tensor loss_;
};

Trainer::Trainer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Trainer::~Trainer() = default;

Result<std::unique_ptr<Trainer>> Trainer::Create(const TrainerOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckOptions(options));
  std::unique_ptr<Impl> impl;
  WEFT_RETURN_IF_ERROR(Guarded("build model", [&]() -> Status {
    impl = std::make_unique<Impl>(options);
    return Ok();
  }));
  return std::unique_ptr<Trainer>(new Trainer(std::move(impl)));
}

std::vector<double> Trainer::Parameters() const { return impl_->Flat(/*gradients=*/false); }
std::vector<double> Trainer::Gradients() const { return impl_->Flat(/*gradients=*/true); }
void Trainer::SetParameters(std::span<const double> values) { impl_->SetFlat(values, /*gradients=*/false); }
void Trainer::SetGradients(std::span<const double> values) { impl_->SetFlat(values, /*gradients=*/true); }

const std::vector<int64_t>& Trainer::gradient_elements() const { return impl_->elements(); }

void Trainer::BindGradients(std::span<const std::span<float>> memory, std::function<void(size_t)> ready) {
  impl_->Bind(memory, std::move(ready));
}

Result<double> Trainer::Forward(std::span<const uint8_t> samples) {
  double loss = 0;
  WEFT_RETURN_IF_ERROR(Guarded("forward", [&]() -> Status {
    loss = impl_->Forward(samples);
    return Ok();
  }));
  return loss;
}

Status Trainer::Backward() {
  return Guarded("backward", [&]() -> Status {
    impl_->Backward();
    return Ok();
  });
}

Status Trainer::Update(double learning_rate) {
  return Guarded("optimizer step", [&]() -> Status {
    impl_->Update(learning_rate);
    return Ok();
  });
}

}  // namespace weft::runtime
