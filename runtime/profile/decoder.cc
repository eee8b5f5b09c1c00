// Decoders: an embedding of tokens, layers of attention and MLP or experts, a head.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "planner/workload/model_spec.h"
#include "runtime/profile/layers.h"
#include "runtime/profile/recognise.h"

namespace weft::runtime {
namespace {

using planner::Activation;
using planner::Architecture;
using planner::ModelSpec;

using Operators = std::vector<const TracedOperator*>;

bool IsProduct(const TracedOperator* o) { return o->flops > 0; }
bool IsCore(const TracedOperator* o) { return o->flops > 0 && o->parameters.empty(); }
bool IsFused(const TracedOperator* o) { return o->kind.find("scaled_dot_product") != o->kind.npos; }

/// One layer, taken apart.
struct Parts {
  Operators inputs;              ///< products before the core of attention: queries, keys, values
  Operators core;
  Operators behind;              ///< products behind it: attention's output, the MLP, a router and experts
  const TracedOperator* choice = nullptr;  ///< topk of a router
  Operators others;              ///< without products
};

class Decoder {
 public:
  explicit Decoder(const TracedModel& traced) : traced_(traced), segments_(SegmentsOf(traced)) {}

  Result<Recognised> Read() {
    WEFT_RETURN_IF_ERROR(TakeApart());
    WEFT_RETURN_IF_ERROR(ReadHeads());
    WEFT_RETURN_IF_ERROR(ReadEdges());
    ReadNorms();
    WEFT_RETURN_IF_ERROR(parts_.choice != nullptr ? ReadExperts() : ReadMlp());
    WEFT_RETURN_IF_ERROR(ChooseFamily());
    ReadActivation();
    return std::move(found_);
  }

 private:
  ModelSpec& model() { return found_.model; }
  /// The first that it reads; null where it reads none, as an embedding over a buffer does.
  const TracedParameter* Weight(const TracedOperator* o) const {
    return o->parameters.empty() ? nullptr : &traced_.parameters[o->parameters.front()];
  }

  tl::unexpected<Error> Refuse(const std::string& why) const {
    return Fail(Code::kFailedPrecondition,
                fmt::format("{}: {}; expected a decoder of the GPT-2, Llama or Mixtral family", traced_.name, why));
  }

  bool HasBias(const TracedOperator* o) const {
    return std::ranges::any_of(o->parameters, [&](size_t p) { return traced_.parameters[p].shape.size() == 1; });
  }

  Status TakeApart() {
    const Segment* first = nullptr;
    for (const Segment& segment : segments_) {
      if (std::ranges::none_of(segment.operators, IsCore)) continue;
      if (first == nullptr) first = &segment;
      if (segment.stack != first->stack || segment.index < 0) {
        return Refuse(fmt::format("attention in {} and in {}", first->stack.empty() ? "no layer" : first->stack + "#",
                                                 segment.stack.empty() ? "no layer" : segment.stack + "#"));
      }
      model().layers += 1;
    }
    for (const TracedOperator& o : traced_.operators) {
      const bool measured = !o.inputs.empty() && HasElements(o.inputs.front()) && HasElements(o.output);
      if ((IsProduct(&o) || o.kind == "topk") && !measured) {
        return Refuse(o.kind + " of or to something without elements or dimensions");
      }
    }
    first_ = first->index;
    stack_ = first->stack;
    for (const TracedOperator* o : first->operators) {
      if (o->kind == "topk") parts_.choice = o;
      if (IsCore(o)) parts_.core.push_back(o);
      else if (!IsProduct(o)) parts_.others.push_back(o);
      else (parts_.core.empty() ? parts_.inputs : parts_.behind).push_back(o);
    }
    const size_t expected = IsFused(parts_.core.front()) ? 1 : 2;
    if (parts_.core.size() != expected || parts_.inputs.empty() || parts_.behind.size() < 2) {
      return Refuse(fmt::format("layer {}: {} products of results, {} before and {} behind them", first_, parts_.core.size(),
                                               parts_.inputs.size(), parts_.behind.size()));
    }
    return Ok();
  }

  Status ReadHeads() {
    const Shape& query = parts_.core.front()->inputs.front();
    if (traced_.input.size() != 2 || query.size() < 3)
      return Refuse("attention without heads, or an input that is not batch and sequence");
    const int64_t batch = traced_.input[0];
    model().hidden = parts_.inputs.front()->inputs.front().back();
    model().head_dim = query.back();
    model().heads = query.size() == 4 ? query[1] : query[0] / batch;
    int64_t width = 0;
    for (const TracedOperator* o : parts_.inputs) width += o->output.back();
    const int64_t key_values = width - model().heads * model().head_dim;
    model().kv_heads = key_values / (2 * model().head_dim);
    const bool whole =
        model().kv_heads > 0 && model().kv_heads * 2 * model().head_dim == key_values && model().heads % model().kv_heads == 0;
    if (!whole) {
      return Refuse(
          fmt::format("layer {}: {} heads of {}, {} wide inputs of attention", first_, model().heads, model().head_dim, width));
    }
    if (model().kv_heads < model().heads) model().attention = planner::Attention::kGroupedQuery;
    model().attention_bias = HasBias(parts_.inputs.front());
    model().attention_output_bias = HasBias(parts_.behind.front());
    return Ok();
  }

  /// Embeddings, and the product behind the layers.
  Status ReadEdges() {
    const TracedParameter* tokens = nullptr;
    const TracedParameter* positions = nullptr;
    const TracedOperator* head = nullptr;
    for (const Segment& segment : segments_) {
      if (segment.stack == stack_) continue;
      for (const TracedOperator* o : segment.operators) {
        const TracedParameter* weight = Weight(o);
        if (o->kind == "embedding" && o->reads_model_input) tokens = weight;
        else if (!IsProduct(o) && weight != nullptr && weight->shape.size() >= 2) positions = weight;
        if (IsProduct(o)) head = o;
      }
    }
    if (tokens == nullptr || tokens->shape.size() != 2) return Refuse("no embedding of the input's tokens");
    model().vocab = tokens->shape[0];
    model().learned_positions = positions != nullptr;
    model().max_positions = positions != nullptr ? positions->Count() / model().hidden : traced_.input[1];
    model().tied_embeddings = head != nullptr && Weight(head) == tokens;
    if (head == nullptr) return Refuse("no product behind the layers that gives logits");
    if (head->output.back() != model().vocab) {
      return Refuse(fmt::format("a head of {} outputs for {} tokens", head->output.back(), model().vocab));
    }
    if (positions == nullptr) {
      found_.assumptions.push_back(
          fmt::format("rotary positions for {} tokens, those of the example: set max_position_embeddings", traced_.input[1]));
    }
    return Ok();
  }

  void ReadNorms() {
    const auto is_norm = [](const TracedOperator* o) { return o->kind.find("layer_norm") != o->kind.npos; };
    model().rms_norm = std::ranges::none_of(parts_.others, is_norm);
    for (const TracedOperator* o : parts_.others) {
      const bool of_head = Weight(o) != nullptr && Weight(o)->Count() == model().head_dim && model().head_dim != model().hidden;
      model().query_key_norm = model().query_key_norm || of_head;
    }
    if (std::ranges::any_of(parts_.core, IsFused)) model().flash_attention = true;
    model().dropout =
        std::ranges::any_of(parts_.others, [](const TracedOperator* o) { return o->kind.find("dropout") != o->kind.npos; });
  }

  Status ReadMlp() {
    const std::vector<const TracedOperator*> mlp(parts_.behind.begin() + 1, parts_.behind.end());
    const auto out = [&](size_t i) { return mlp[i]->output.back(); };
    const auto in = [&](size_t i) { return mlp[i]->inputs.front().back(); };
    const bool two = mlp.size() == 2, three = mlp.size() == 3;
    if (two && out(0) == in(1)) model().gated_mlp = false;
    else if ((two && out(0) == 2 * in(1)) || (three && out(0) == out(1) && in(2) == out(0))) model().gated_mlp = true;
    else return Refuse(fmt::format("layer {}: an MLP of {} products", first_, mlp.size()));
    model().ffn_hidden = in(mlp.size() - 1);
    model().mlp_bias = HasBias(mlp.front());
    return Ok();
  }

  /// What the layer has besides attention, norms and router is its experts, by their matrices' shapes: tokens may miss some.
  Status ReadExperts() {
    std::set<size_t> others;
    for (const Operators* operators : {&parts_.inputs, &parts_.others}) {
      for (const TracedOperator* o : *operators) others.insert(o->parameters.begin(), o->parameters.end());
    }
    others.insert(parts_.behind.front()->parameters.begin(), parts_.behind.front()->parameters.end());
    const TracedOperator* router = parts_.behind[1];
    others.insert(router->parameters.begin(), router->parameters.end());
    model().experts = router->output.back();
    model().experts_per_token = parts_.choice->output.back();
    const std::string layer = fmt::format("{}{}", stack_, first_);
    int64_t matrices = 0, all = 0, least = INT64_MAX;
    for (size_t i = 0; i < traced_.parameters.size(); ++i) {
      const TracedParameter& p = traced_.parameters[i];
      if (!p.name.starts_with(layer + ".") && !p.name.starts_with(layer + "_")) continue;
      if (others.contains(i) || p.shape.size() < 2) continue;
      const int64_t stacked = p.shape.size() == 3 ? p.shape[0] : 1;
      matrices += stacked;
      all += p.Count();
      least = std::min(least, p.Count() / stacked);
    }
    const int64_t each = model().experts > 0 ? matrices / model().experts : 0;
    const int64_t parts = each > 0 ? all / (model().experts * least) : 0;  // as many as the narrowest matrix goes into an expert
    if (each * model().experts != matrices || (parts != 2 && parts != 3)) {
      return Refuse(fmt::format("layer {}: {} matrices for {} experts", first_, matrices, model().experts));
    }
    model().gated_mlp = parts == 3;
    model().expert_ffn_hidden = model().ffn_hidden = least / model().hidden;
    model().mlp_bias = false;
    found_.assumptions.push_back(fmt::format("{} experts, of which a token takes {}, each as often as any other", model().experts,
                                             model().experts_per_token));
    return Ok();
  }

  Status ChooseFamily() {
    ModelSpec& m = model();
    const bool gpt =
        m.learned_positions && !m.rms_norm && !m.gated_mlp && m.experts == 0 && m.kv_heads == m.heads && m.tied_embeddings;
    if (gpt && m.attention_bias && m.mlp_bias) {
      m.architecture = Architecture::kGpt2;
      const std::string rates = m.dropout ? "0.1, gpt2's" : "0";
      m.numerics.attention_dropout = m.numerics.hidden_dropout = m.numerics.embedding_dropout = m.dropout ? 0.1 : 0;
      found_.assumptions.push_back(fmt::format("the family gpt2, trained with dropout {}", rates));
      return Ok();
    }
    if (m.learned_positions || !m.rms_norm || !m.gated_mlp) {
      return Refuse(fmt::format("{} positions, {}, {} MLP, {} head", m.learned_positions ? "learned" : "no learned",
                                               m.rms_norm ? "RMS norms" : "layer norms", m.gated_mlp ? "a gated" : "a plain",
                                               m.tied_embeddings ? "a tied" : "an untied"));
    }
    m.architecture = m.IsMoe() ? Architecture::kMixtral : Architecture::kLlama;
    m.flash_attention = true;  // every family but gpt2 has it
    m.dropout = false;
    m.numerics.activation = Activation::kSilu;
    found_.assumptions.push_back(
        fmt::format("the family {}, causal attention without a window, constants of norms and rotations as usual",
                    m.IsMoe() ? "mixtral" : "llama"));
    return Ok();
  }

  void ReadActivation() {
    for (const TracedOperator* o : parts_.others) {
      Activation& activation = model().numerics.activation;
      if (o->kind.starts_with("gelu")) activation = o->word == "tanh" ? Activation::kGeluTanh : Activation::kGelu;
      if (o->kind.starts_with("silu")) activation = Activation::kSilu;
      if (o->kind.starts_with("relu")) activation = Activation::kRelu;
    }
  }

  const TracedModel& traced_;
  std::vector<Segment> segments_;
  std::string stack_;
  int64_t first_ = 0;
  Parts parts_;
  Recognised found_;
};

}  // namespace

Result<Recognised> RecogniseDecoder(const TracedModel& traced) { return Decoder(traced).Read(); }

}  // namespace weft::runtime
