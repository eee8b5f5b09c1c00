// Writes the TorchScript files that profile_test.py profiles: torchscript_models FOLDER. Sizes are that test's.
#include <fmt/format.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/frontend/sugared_value.h>
#include <torch/script.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace {

using torch::jit::Module;

class Maker {
 public:
  Module New(const std::string& name) { return Module(c10::QualifiedName("__torch__." + name), unit_, /*shouldMangle=*/true); }

  /// With a weight [out × in] and maybe a bias.
  Module Linear(int64_t in, int64_t out, bool bias) {
    Module m = New("Linear");
    m.register_parameter("weight", torch::randn({out, in}) * 0.02, false);
    if (bias) m.register_parameter("bias", torch::zeros({out}), false);
    m.define(bias ? "def forward(self, x):\n  return torch.linear(x, self.weight, self.bias)\n"
                  : "def forward(self, x):\n  return torch.linear(x, self.weight)\n");
    return m;
  }

  Module LayerNorm(int64_t width) {
    Module m = New("LayerNorm");
    m.register_parameter("weight", torch::ones({width}), false);
    m.register_parameter("bias", torch::zeros({width}), false);
    m.define(fmt::format("def forward(self, x):\n  return torch.layer_norm(x, [{}], self.weight, self.bias)\n", width));
    return m;
  }

  Module RmsNorm(int64_t width) {
    Module m = New("RmsNorm");
    m.register_parameter("weight", torch::ones({width}), false);
    m.define("def forward(self, x):\n  return x * torch.rsqrt(torch.mean(x * x, [-1], True) + 1e-06) * self.weight\n");
    return m;
  }

  Module Embedding(const torch::Tensor& weight) {
    Module m = New("Embedding");
    m.register_parameter("weight", weight, false);
    m.define("def forward(self, x):\n  return torch.embedding(self.weight, x)\n");
    return m;
  }

  /// Modules by number, without a forward() of their own.
  Module List(const std::vector<Module>& items) {
    Module m = New("List");
    for (size_t i = 0; i < items.size(); ++i) m.register_module(std::to_string(i), items[i]);
    return m;
  }

 private:
  std::shared_ptr<torch::jit::CompilationUnit> unit_ = std::make_shared<torch::jit::CompilationUnit>();
};

constexpr const char* kHeads = R"(
  b = x.size(0)
  s = x.size(1)
  q = q.view([b, s, {a}, {d}]).transpose(1, 2)
  k = k.view([b, s, {kv}, {d}]).transpose(1, 2)
  v = v.view([b, s, {kv}, {d}]).transpose(1, 2)
)";
constexpr const char* kAttention = R"(
  w = torch.matmul(q, k.transpose(-2, -1)) * {scale}
  w = torch.softmax(w + torch.triu(torch.full([s, s], -10000.0), 1), -1)
  y = torch.matmul(w, v).transpose(1, 2).reshape([b, s, {width}])
)";

std::string CallAll(int layers) {
  std::string text;
  for (int i = 0; i < layers; ++i) text += fmt::format("  x = getattr(self.h, \"{}\").forward(x)\n", i);
  return text;
}

Module Gpt(Maker& make) {
  constexpr int64_t kVocab = 512, kHidden = 128, kPositions = 256, kHeadCount = 4;
  std::vector<Module> layers;
  for (int i = 0; i < 3; ++i) {
    Module m = make.New("Block");
    m.register_module("ln_1", make.LayerNorm(kHidden));
    m.register_module("c_attn", make.Linear(kHidden, 3 * kHidden, true));
    m.register_module("c_proj", make.Linear(kHidden, kHidden, true));
    m.register_module("ln_2", make.LayerNorm(kHidden));
    m.register_module("c_fc", make.Linear(kHidden, 4 * kHidden, true));
    m.register_module("c_out", make.Linear(4 * kHidden, kHidden, true));
    using namespace fmt::literals;
    m.define("def forward(self, x):\n  n = self.c_attn.forward(self.ln_1.forward(x))\n" +
             fmt::format("  q = n.narrow(-1, 0, {0})\n  k = n.narrow(-1, {0}, {0})\n  v = n.narrow(-1, {1}, {0})\n", kHidden,
                         2 * kHidden) +
             fmt::format(fmt::runtime(kHeads), "a"_a = kHeadCount, "kv"_a = kHeadCount, "d"_a = kHidden / kHeadCount) +
             fmt::format(fmt::runtime(kAttention), "scale"_a = 0.17, "width"_a = kHidden) +
             "  x = x + torch.dropout(self.c_proj.forward(y), 0.1, False)\n"
             "  return x + self.c_out.forward(torch.gelu(self.c_fc.forward(self.ln_2.forward(x)), approximate=\"tanh\"))\n");
    layers.push_back(m);
  }
  const torch::Tensor tokens = torch::randn({kVocab, kHidden}) * 0.02;
  Module root = make.New("Gpt");
  root.register_module("wte", make.Embedding(tokens));
  root.register_module("wpe", make.Embedding(torch::randn({kPositions, kHidden}) * 0.02));
  root.register_module("h", make.List(layers));
  root.register_module("ln_f", make.LayerNorm(kHidden));
  root.define("def forward(self, tokens):\n  x = self.wte.forward(tokens) + self.wpe.forward(torch.arange(tokens.size(1)))\n" +
              CallAll(3) + "  return torch.matmul(self.ln_f.forward(x), self.wte.weight.t())\n");
  return root;
}

/// Attention of Llama with rotations, grouped; and the layer's MLP or experts from `feed`, which calls them `self.mlp`.
Module LlamaLayer(Maker& make, int64_t hidden, int64_t heads, int64_t kv_heads, const Module& mlp) {
  const int64_t width = hidden / heads;
  Module m = make.New("Layer");
  m.register_module("input_layernorm", make.RmsNorm(hidden));
  m.register_module("q_proj", make.Linear(hidden, hidden, false));
  m.register_module("k_proj", make.Linear(hidden, kv_heads * width, false));
  m.register_module("v_proj", make.Linear(hidden, kv_heads * width, false));
  m.register_module("o_proj", make.Linear(hidden, hidden, false));
  m.register_module("post_attention_layernorm", make.RmsNorm(hidden));
  m.register_module("mlp", mlp);
  m.register_buffer("turns", torch::rand({256, width}));
  using namespace fmt::literals;
  m.define(
      "def forward(self, x):\n  n = self.input_layernorm.forward(x)\n"
      "  q = self.q_proj.forward(n)\n  k = self.k_proj.forward(n)\n  v = self.v_proj.forward(n)\n" +
      fmt::format(fmt::runtime(kHeads), "a"_a = heads, "kv"_a = kv_heads, "d"_a = width) +
      fmt::format(
          "  t = self.turns.narrow(0, 0, s)\n  q = q * t + torch.cat([q.narrow(-1, {0}, {0}), q.narrow(-1, 0, {0})], -1) * t\n"
          "  k = k * t + torch.cat([k.narrow(-1, {0}, {0}), k.narrow(-1, 0, {0})], -1) * t\n"
          "  k = torch.repeat_interleave(k, {1}, 1)\n  v = torch.repeat_interleave(v, {1}, 1)\n",
          width / 2, heads / kv_heads) +
      fmt::format(fmt::runtime(kAttention), "scale"_a = 0.17, "width"_a = hidden) +
      "  x = x + self.o_proj.forward(y)\n  return x + self.mlp.forward(self.post_attention_layernorm.forward(x))\n");
  return m;
}

Module GatedMlp(Maker& make, int64_t hidden, int64_t inner) {
  Module m = make.New("Mlp");
  m.register_module("gate_proj", make.Linear(hidden, inner, false));
  m.register_module("up_proj", make.Linear(hidden, inner, false));
  m.register_module("down_proj", make.Linear(inner, hidden, false));
  m.define(
      "def forward(self, x):\n  return self.down_proj.forward(torch.silu(self.gate_proj.forward(x)) * self.up_proj.forward(x))\n");
  return m;
}

Module Experts(Maker& make, int64_t hidden, int64_t inner, int experts, int chosen) {
  Module m = make.New("Experts");
  m.register_module("gate", make.Linear(hidden, experts, false));
  std::vector<Module> all;
  for (int i = 0; i < experts; ++i) all.push_back(GatedMlp(make, hidden, inner));
  m.register_module("experts", make.List(all));
  std::string text = fmt::format("def forward(self, x):\n  flat = x.reshape([-1, {}])\n"
                                 "  weights, which = torch.topk(torch.softmax(self.gate.forward(flat), -1), {}, -1)\n"
                                 "  out = torch.zeros_like(flat)\n", hidden, chosen);
  for (int i = 0; i < experts; ++i) {
    text += fmt::format(
        "  m{0} = torch.eq(which, {0})\n  r{0} = torch.nonzero(torch.sum(m{0}, -1)).select(1, 0)\n"
        "  w{0} = torch.sum(weights * m{0}, -1).index_select(0, r{0}).unsqueeze(-1)\n"
        "  out = torch.index_add(out, 0, r{0}, getattr(self.experts, \"{0}\").forward(flat.index_select(0, r{0})) * w{0})\n",
        i);
  }
  m.define(text + "  return out.reshape(x.size())\n");
  return m;
}

Module Llama(Maker& make, int64_t hidden, int layer_count, int experts) {
  constexpr int64_t kVocab = 640;
  std::vector<Module> layers;
  for (int i = 0; i < layer_count; ++i) {
    const Module mlp = experts > 0 ? Experts(make, hidden, 192, experts, 2) : GatedMlp(make, hidden, 320);
    layers.push_back(LlamaLayer(make, hidden, 8, 2, mlp));
  }
  Module root = make.New("Llama");
  root.register_module("embed_tokens", make.Embedding(torch::randn({kVocab, hidden})));
  root.register_module("h", make.List(layers));
  root.register_module("norm", make.RmsNorm(hidden));
  root.register_module("lm_head", make.Linear(hidden, kVocab, false));
  root.define("def forward(self, tokens):\n  x = self.embed_tokens.forward(tokens)\n" + CallAll(layer_count) +
              "  return self.lm_head.forward(self.norm.forward(x))\n");
  return root;
}

Module Convolution(Maker& make, int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding, int64_t groups) {
  Module m = make.New("Convolution");
  m.register_parameter("weight", torch::randn({out, in / groups, kernel, kernel}), false);
  m.register_parameter("norm_weight", torch::ones({out}), false);
  m.register_parameter("norm_bias", torch::zeros({out}), false);
  m.register_buffer("mean", torch::zeros({out}));
  m.register_buffer("variance", torch::ones({out}));
  m.define(fmt::format(
      "def forward(self, x):\n  y = torch.conv2d(x, self.weight, None, [{0}, {0}], [{1}, {1}], [1, 1], {2})\n"
      "  return torch.batch_norm(y, self.norm_weight, self.norm_bias, self.mean, self.variance, False, 0.1, 1e-05, True)\n",
      stride, padding, groups));
  return m;
}

/// Two residual blocks: one with a branch, one with a depthwise convolution; and a convolution without padding.
Module Cnn(Maker& make) {
  Module root = make.New("Cnn");
  root.register_module("stem", Convolution(make, 3, 16, 5, 1, 0, 1));
  root.register_module("conv1", Convolution(make, 16, 32, 3, 2, 1, 1));
  root.register_module("conv2", Convolution(make, 32, 32, 3, 1, 1, 1));
  root.register_module("shortcut", Convolution(make, 16, 32, 1, 2, 0, 1));
  root.register_module("depthwise", Convolution(make, 32, 32, 3, 1, 1, 32));
  root.register_module("pointwise", Convolution(make, 32, 48, 1, 1, 0, 1));
  root.register_module("fc", make.Linear(48, 10, true));
  root.define("def forward(self, x):\n  x = torch.relu(self.stem.forward(x))\n"
              "  x = torch.max_pool2d(x, [2, 2], [2, 2])\n"
              "  x = torch.relu(self.conv2.forward(torch.relu(self.conv1.forward(x))) + self.shortcut.forward(x))\n"
              "  x = torch.relu(self.pointwise.forward(torch.relu(self.depthwise.forward(x))))\n"
              "  return self.fc.forward(torch.adaptive_avg_pool2d(x, [1, 1]).flatten(1))\n");
  return root;
}

/// Serialised code calls fork() by this name, which code given to define() does not know.
class ForkResolver : public torch::jit::NativeResolver {
 public:
  std::shared_ptr<torch::jit::SugaredValue> resolveValue(const std::string& name, torch::jit::GraphFunction& function,
                                                         const torch::jit::SourceRange& place) override {
    if (name == "fork") return torch::jit::SpecialFormValue::create(torch::jit::prim::fork);
    return NativeResolver::resolveValue(name, function, place);
  }
};

/// Two dense layers, the second in a thread of its own.
Module Forked(Maker& make) {
  Module root = make.New("Forked");
  root.register_module("first", make.Linear(16, 32, true));
  root.register_module("second", make.Linear(32, 8, true));
  root.define("def forward(self, x):\n  later = fork(self.second.forward, torch.relu(self.first.forward(x)))\n"
              "  return torch.wait(later)\n", std::make_shared<ForkResolver>());
  return root;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: torchscript_models FOLDER\n");
    return 2;
  }
  const std::filesystem::path folder(argv[1]);
  torch::manual_seed(1);
  Maker make;
  Gpt(make).save((folder / "gpt.pt").string());
  Llama(make, 128, 4, 0).save((folder / "llama.pt").string());
  Llama(make, 128, 2, 4).save((folder / "moe.pt").string());
  Cnn(make).save((folder / "cnn.pt").string());
  Forked(make).save((folder / "forked.pt").string());
  return 0;
}
