#include "runtime/profile/trace.h"

#include <ATen/record_function.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/script.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "runtime/guarded.h"

namespace weft::runtime {
namespace {

using c10::IValue;

double Elements(c10::IntArrayRef sizes) {
  double count = 1;
  for (const int64_t size : sizes) count *= static_cast<double>(size);
  return count;
}

bool IsConvolution(std::string_view kind) { return kind.find("conv") != kind.npos && kind.find("backward") == kind.npos; }
bool IsFusedAttention(std::string_view kind) { return kind.find("scaled_dot_product") != kind.npos; }

/// The operator's tensors, in order; of lists too.
std::vector<at::Tensor> TensorsOf(c10::ArrayRef<IValue> values) {
  std::vector<at::Tensor> tensors;
  for (const IValue& value : values) {
    if (value.isTensor() && value.toTensor().defined()) tensors.push_back(value.toTensor());
    if (!value.isTensorList()) continue;
    for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(tensor);
  }
  return tensors;
}

/// Of a matrix product or a fused attention, by its operands; 0 for anything else.
double ProductFlops(std::string_view kind, const std::vector<at::Tensor>& in) {
  const auto last = [&](size_t i) { return static_cast<double>(in[i].size(-1)); };
  const bool adds = kind == "addmm" || kind == "baddbmm" || kind == "addmv" || kind == "addbmm";
  const size_t a = adds ? 1 : 0;
  if (kind == "mm" || kind == "bmm" || kind == "addmm" || kind == "baddbmm" || kind == "addbmm") {
    if (in.size() < a + 2) return 0;
    return 2 * Elements(in[a].sizes()) * last(a + 1);
  }
  if (kind == "mv" || kind == "addmv" || kind == "dot") return in.size() < a + 2 ? 0 : 2 * Elements(in[a].sizes());
  if (!IsFusedAttention(kind) || in.size() < 3) return 0;
  const double pairs = Elements(in[0].sizes()) / last(0) * static_cast<double>(in[1].size(-2));
  return 2 * pairs * (last(0) + last(2));
}

double ConvolutionFlops(const TracedOperator& o) {
  if (o.inputs.size() < 2 || o.inputs[0].size() < 3 || o.inputs[1].size() < 3) return 0;
  const bool transposed = o.kind.find("transpose") != std::string::npos || o.flag;
  const Shape& spread = transposed ? o.inputs[0] : o.output;  // what each of its elements meets is one filter
  return 2 * Elements(spread) * Elements(o.inputs[1]) / static_cast<double>(o.inputs[1][0]);
}

/// The first of each kind among the arguments that are no tensors.
void ReadArguments(c10::ArrayRef<IValue> values, TracedOperator* o) {
  bool flag = false, number = false;
  for (const IValue& value : values) {
    if (value.isBool() && !flag) o->flag = value.toBool(), flag = true;
    if (value.isInt() && !number) o->number = value.toInt(), number = true;
    if (value.isIntList() && o->numbers.empty()) o->numbers = value.toIntVector();
    if (value.isString() && o->word.empty()) o->word = value.toStringRef();
  }
}

/// LibTorch hands over its whole stack, on which the operator's own values are the last.
template <typename Stack>
c10::ArrayRef<IValue> Own(const Stack& stack, size_t count) {
  const size_t own = std::min(count, stack.size());
  return c10::ArrayRef<IValue>(stack.data() + (stack.size() - own), own);
}

/// What one forward pass does, put together from LibTorch's callbacks on this thread.
class Recorder {
 public:
  explicit Recorder(TracedModel* model) : model_(model), person_(isatty(STDERR_FILENO) != 0) {}

  void AddParameter(const std::string& name, const at::Tensor& tensor) {
    if (!seen_.insert({tensor.data_ptr(), tensor.numel()}).second) return;
    owners_[Storage(tensor)].push_back({tensor.data_ptr(), model_->parameters.size()});
    model_->parameters.push_back({name, tensor.sizes().vec(), static_cast<int64_t>(tensor.element_size())});
  }

  void SetInput(const at::Tensor& input) { input_ = Storage(input); }

  void Begin(const at::RecordFunction& function) {
    const std::string_view name = function.name();
    const size_t colons = name.rfind(':');
    const std::string kind(colons == name.npos ? name : name.substr(colons + 1));
    const c10::ArrayRef<IValue> inputs = Own(function.inputs(), function.num_inputs());
    if (depth_++ == 0) BeginOuter(kind, inputs);
    if (counted_at_ != 0) return;
    const bool whole = IsConvolution(kind) || IsFusedAttention(kind);
    const double flops = IsConvolution(kind) ? 0 : ProductFlops(kind, TensorsOf(inputs));
    current_.flops += flops;
    if (whole || flops > 0) counted_at_ = depth_;
  }

  void End(const at::RecordFunction& function) {
    if (counted_at_ == depth_) counted_at_ = 0;
    if (--depth_ == 0) EndOuter(Own(function.outputs(), function.num_outputs()));
  }

 private:
  using StorageAddress = const void*;
  static StorageAddress Storage(const at::Tensor& tensor) {
    return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
  }

  /// Whether it is a parameter, or a view of one.
  bool AddOwner(const at::Tensor& tensor) {
    const auto found = owners_.find(Storage(tensor));
    if (found == owners_.end()) return false;
    size_t owner = found->second.front().second;
    for (const auto& [address, index] : found->second) {
      if (address == tensor.data_ptr()) owner = index;
    }
    if (std::find(current_.parameters.begin(), current_.parameters.end(), owner) == current_.parameters.end()) {
      current_.parameters.push_back(owner);
    }
    return true;
  }

  void BeginOuter(const std::string& kind, c10::ArrayRef<IValue> values) {
    current_ = {.kind = kind};
    read_.clear();
    std::vector<Shape> weights;
    for (const at::Tensor& tensor : TensorsOf(values)) {
      (AddOwner(tensor) ? weights : current_.inputs).push_back(tensor.sizes().vec());
      read_.insert(Storage(tensor));
      current_.reads_model_input = current_.reads_model_input || Storage(tensor) == input_;
    }
    current_.inputs.insert(current_.inputs.end(), weights.begin(), weights.end());
    std::ranges::stable_sort(current_.parameters, std::greater(), [&](size_t p) { return model_->parameters[p].shape.size(); });
    ReadArguments(values, &current_);
  }

  void EndOuter(c10::ArrayRef<IValue> values) {
    const std::vector<at::Tensor> outputs = TensorsOf(values);
    Report();
    bool fresh = false;
    for (const at::Tensor& output : outputs) {
      if (read_.contains(Storage(output))) continue;
      fresh = true;
      current_.output_bytes += static_cast<int64_t>(output.nbytes());
    }
    // In evaluation dropout hands on what it was given.
    if (!fresh && (outputs.empty() || current_.kind.find("dropout") == std::string::npos)) return;
    current_.output = outputs.front().sizes().vec();
    if (IsConvolution(current_.kind)) current_.flops = ConvolutionFlops(current_);
    if (StandsFor(outputs.front())) {
      owners_[Storage(outputs.front())] = {{outputs.front().data_ptr(), current_.parameters.front()}};
      kept_.push_back(outputs.front());
      return;
    }
    if (current_.reads_model_input && current_.inputs.size() == 1 && current_.flops == 0 && current_.parameters.empty() &&
        Elements(current_.output) == Elements(model_->input)) {
      input_ = Storage(outputs.front());  // the input in another type or order
      kept_.push_back(outputs.front());
    }
    model_->operators.push_back(current_);
  }

  /// Whether `output` is a parameter in another form: cast, laid out anew, one added.
  bool StandsFor(const at::Tensor& output) const {
    return current_.flops == 0 && current_.parameters.size() == 1 && current_.inputs.size() == 1 &&
           output.numel() == model_->parameters[current_.parameters.front()].Count();
  }

  void Report() {
    const auto now = std::chrono::steady_clock::now();
    if (!person_ || now - reported_ < std::chrono::seconds(1)) return;
    reported_ = now;
    fmt::print(stderr, "weft profile: {} operators\n", model_->operators.size());
  }

  TracedModel* model_;
  bool person_;
  std::chrono::steady_clock::time_point reported_ = std::chrono::steady_clock::now();
  std::set<std::pair<const void*, int64_t>> seen_;
  std::map<StorageAddress, std::vector<std::pair<const void*, size_t>>> owners_;
  std::vector<at::Tensor> kept_;  ///< so that their storages are not used again
  StorageAddress input_ = nullptr;
  std::set<StorageAddress> read_;
  TracedOperator current_;
  int depth_ = 0, counted_at_ = 0;
};

/// LibTorch carries the callbacks, but not this, into the threads of torch.jit.fork.
thread_local Recorder* t_recorder = nullptr;
std::atomic<bool> g_elsewhere = false;  ///< an operator ran in such a thread

std::unique_ptr<at::ObserverContext> OnBegin(const at::RecordFunction& function) {
  if (t_recorder != nullptr) t_recorder->Begin(function);
  else g_elsewhere = true;
  return nullptr;
}
void OnEnd(const at::RecordFunction& function, at::ObserverContext*) {
  if (t_recorder != nullptr) t_recorder->End(function);
}

/// While it lives, this thread's operators go to `recorder`.
class Recording {
 public:
  explicit Recording(Recorder* recorder) {
    t_recorder = recorder;
    g_elsewhere = false;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(OnBegin, OnEnd).needsInputs(true).needsOutputs(true).scopes({at::RecordScope::FUNCTION}));
  }
  ~Recording() {
    at::removeCallback(handle_);
    t_recorder = nullptr;
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  at::CallbackHandle handle_;
};

/// Tokens that every embedding has.
at::Tensor Example(const TraceOptions& options, const TracedModel& model) {
  if (!options.tokens) return torch::rand(options.input);
  int64_t rows = int64_t{1} << 30;
  for (const TracedParameter& parameter : model.parameters) {
    if (parameter.shape.size() == 2) rows = std::min(rows, parameter.shape[0]);
  }
  int64_t count = 1;
  for (const int64_t size : options.input) count *= size;
  return torch::arange(count).remainder(std::max<int64_t>(1, rows)).reshape(options.input);
}

std::string FirstLine(const char* text) {
  const std::string_view all(text);
  const size_t begin = all.find_first_not_of(" \n\t");
  if (begin == all.npos) return "an error without a message";
  return std::string(all.substr(begin, std::min(all.find('\n', begin), begin + 300) - begin));
}

/// The last line of an error of the interpreter, which names the cause behind the stack.
std::string Cause(const std::exception& error) {
  std::string text = error.what();
  const size_t cause = text.rfind("Error: ");
  return FirstLine(cause == std::string::npos ? text.c_str() : text.c_str() + cause + 7);
}

Result<TracedModel> Trace(const TraceOptions& options) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(options.path, error)) {
    return Fail(Code::kNotFound, fmt::format("{}: no such file, expected a TorchScript file (.pt)", options.path));
  }
  TracedModel model{
      .name = std::filesystem::path(options.path).stem().string(), .input = options.input, .parameters = {}, .operators = {}};
  Recorder recorder(&model);
  torch::jit::Module module;
  try {
    module = torch::jit::load(options.path, torch::kCPU);
    module.eval();
    for (const auto& parameter : module.named_parameters(/*recurse=*/true)) recorder.AddParameter(parameter.name, parameter.value);
  } catch (const std::exception& failure) {
    return Fail(Code::kInvalidArgument, fmt::format("{}: LibTorch does not load it: {}", options.path, FirstLine(failure.what())));
  }
  if (model.parameters.empty())
    return Fail(Code::kInvalidArgument, fmt::format("{}: no parameters, expected a model", options.path));
  try {
    const torch::NoGradGuard no_gradients;
    torch::jit::setGraphExecutorOptimize(false);  // operators as they are written, none fused
    const at::Tensor example = Example(options, model);
    recorder.SetInput(example);
    const Recording recording(&recorder);
    module.forward({example});
  } catch (const std::exception& failure) {
    if (SaysNoMemory(failure.what())) {
      return Fail(Code::kResourceExhausted, fmt::format("{}: out of memory in forward() of shape {}: {}; give a smaller shape",
                                                        options.path, fmt::join(options.input, "x"), Cause(failure)));
    }
    return Fail(
        Code::kInvalidArgument,
        fmt::format("{}: forward() does not take {} of shape {}: {}; give --seq and --batch for tokens, --input for anything else",
                    options.path, options.tokens ? "tokens" : "numbers", fmt::join(options.input, "x"), Cause(failure)));
  }
  if (g_elsewhere) {
    return Fail(Code::kFailedPrecondition,
                fmt::format("{}: forward() runs operators in other threads (torch.jit.fork), which a trace does not see; expected "
                            "all of them one after another",
                            options.path));
  }
  return model;
}

}  // namespace

Result<TracedModel> TraceTorchScript(const TraceOptions& options) {
  return Guarded(options.path.c_str(), [&] { return Trace(options); });
}

}  // namespace weft::runtime
