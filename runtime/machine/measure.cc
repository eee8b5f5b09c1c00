#include "runtime/machine/measure.h"

#include <fmt/format.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <limits>
#include <utility>

#include "runtime/guarded.h"
#include "runtime/quantile.h"

namespace weft::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLeastRuns = 5, kMostRuns = 400;

/// The median time of `work`, which runs for about `budget`, at least kLeastRuns times behind one that does not count.
Seconds MedianTime(Seconds budget, const std::function<void()>& work) {
  work();
  std::vector<double> seconds;
  const Clock::time_point begin = Clock::now();
  const auto since = [](Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); };
  while (static_cast<int>(seconds.size()) < kLeastRuns ||
         (since(begin) < budget.count() && static_cast<int>(seconds.size()) < kMostRuns)) {
    const Clock::time_point start = Clock::now();
    work();
    seconds.push_back(since(start));
  }
  return Seconds(Quantile(std::move(seconds), 0.5));
}

/// Shapes of layers from 256 to 1024 wide, and of heads.
std::vector<ProductTime> Products() {
  std::vector<ProductTime> all;
  for (const double tokens : {64.0, 256.0, 1024.0}) {
    for (const auto& [out, in] : {std::pair(256.0, 256.0), std::pair(768.0, 256.0), std::pair(1024.0, 256.0),
                                  std::pair(256.0, 1024.0), std::pair(1024.0, 1024.0)}) {
      all.push_back({.m = tokens, .n = out, .k = in});
      all.push_back({.m = in, .n = out, .k = tokens});  // a weight's gradient
    }
  }
  for (const double sequence : {64.0, 128.0, 256.0}) {
    for (const double width : {32.0, 64.0}) {
      all.push_back({.m = sequence, .n = sequence, .k = width, .count = 32});
      all.push_back({.m = sequence, .n = width, .k = sequence, .count = 32});
    }
  }
  return all;
}

int64_t Whole(double value) { return static_cast<int64_t>(value); }

Seconds TimeProduct(const ProductTime& p, Seconds budget) {
  if (p.count > 1) {
    const torch::Tensor a = torch::rand({Whole(p.count), Whole(p.m), Whole(p.k)}),
                        b = torch::rand({Whole(p.count), Whole(p.k), Whole(p.n)});
    return MedianTime(budget, [&] { torch::bmm(a, b); });
  }
  const torch::Tensor a = torch::rand({Whole(p.m), Whole(p.k)}), b = torch::rand({Whole(p.k), Whole(p.n)});
  return MedianTime(budget, [&] { torch::mm(a, b); });
}

Seconds TimeAttention(const AttentionTime& a, Seconds budget) {
  const int64_t s = Whole(a.sequence);
  const torch::Tensor q = torch::rand({Whole(a.batch * a.heads), s, Whole(a.width)});
  const torch::Tensor later = torch::ones({s, s}, torch::kBool).triu(1);
  return MedianTime(budget, [&] {
    const torch::Tensor scores =
        torch::bmm(q, q.transpose(1, 2)).mul_(0.125).masked_fill_(later, -std::numeric_limits<float>::infinity());
    torch::bmm(torch::softmax(scores, -1), q);
  });
}

/// Of `elements` in rows of 256.
std::vector<StreamTime> TimeStreams(int64_t elements, Seconds budget) {
  const torch::Tensor x = torch::rand({elements / 256, 256}), y = torch::rand({elements / 256, 256});
  torch::Tensor z = torch::empty_like(x);
  const double bytes = 4 * static_cast<double>(elements);
  std::vector<StreamTime> all;
  const auto add = [&](const char* name, double streams, const std::function<void()>& work) {
    all.push_back({fmt::format("{} of {} elements", name, elements), streams * bytes, MedianTime(budget, work)});
  };
  add("copy", 2, [&] { z.copy_(x); });
  add("sum", 3, [&] { torch::add(x, y); });
  add("product", 3, [&] { torch::mul(x, y); });
  add("layer norm", 2, [&] { torch::layer_norm(x, {256}); });
  add("softmax", 2, [&] { torch::softmax(x, -1); });
  add("gelu", 2, [&] { torch::gelu(x, "tanh"); });
  return all;
}

MachineTimes Measure(int threads, Seconds budget) {
  torch::set_num_threads(threads);
  const torch::NoGradGuard no_gradients;
  MachineTimes times{.products = Products(), .attention = {}, .streams = {}};
  for (const double sequence : {64.0, 128.0, 256.0, 512.0}) {
    for (const double width : {32.0, 64.0})
      times.attention.push_back({.batch = 2, .heads = 4, .sequence = sequence, .width = width});
  }
  constexpr double kStreams = 3 * 6 + 1;
  const Seconds each = budget * (1 / (kStreams + static_cast<double>(times.products.size() + times.attention.size())));
  const bool person = isatty(STDERR_FILENO) != 0;
  const auto report = [&](const char* what) {
    if (person) fmt::print(stderr, "weft calibrate: {}\n", what);
  };
  report("matrix products");
  for (ProductTime& product : times.products) product.time = TimeProduct(product, each);
  report("attention");
  for (AttentionTime& attention : times.attention) attention.time = TimeAttention(attention, each);
  report("element-wise operators and copies");
  for (const int64_t elements : {int64_t{1} << 16, int64_t{1} << 19, int64_t{1} << 22}) {
    for (StreamTime& stream : TimeStreams(elements, each)) times.streams.push_back(std::move(stream));
  }
  const torch::Tensor one = torch::rand({1});
  times.least = MedianTime(each, [&] { torch::add(one, one); });
  return times;
}

}  // namespace

Result<MachineTimes> MeasureMachine(int threads, Seconds budget) {
  return Guarded("measuring this machine", [&]() -> Result<MachineTimes> { return Measure(threads, budget); });
}

}  // namespace weft::runtime
