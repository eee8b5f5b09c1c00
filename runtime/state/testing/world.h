// Ranks of a program as threads with plain memory, for tests of what saves, reads and moves the state.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/bootstrap.h"
#include "planner/planner.h"
#include "planner/tasks/program_state.h"
#include "runtime/state/unit_state.h"

namespace weft::runtime::testing {

inline planner::ModelSpec SmallGpt() {
  return {.name = "gpt",
          .architecture = planner::Architecture::kGpt2,
          .layers = 4,
          .hidden = 8,
          .heads = 4,
          .kv_heads = 4,
          .head_dim = 2,
          .ffn_hidden = 12,
          .vocab = 256,
          .max_positions = 6};
}

inline planner::ModelSpec SmallLlama() {
  return {.name = "llama",
          .architecture = planner::Architecture::kLlama,
          .layers = 4,
          .hidden = 8,
          .heads = 8,
          .kv_heads = 4,
          .head_dim = 2,
          .ffn_hidden = 12,
          .vocab = 256,
          .max_positions = 6,
          .gated_mlp = true,
          .tied_embeddings = false,
          .attention_bias = false,
          .mlp_bias = false,
          .learned_positions = false,
          .rms_norm = true,
          .numerics = {.activation = planner::Activation::kSilu}};
}

inline planner::StepProgram ProgramOf(const planner::ModelSpec& model, planner::Strategy strategy,
                                      planner::ElementType type = planner::ElementType::kFloat64) {
  const planner::JobSpec job{.name = "job",
                             .model = model,
                             .global_batch = 12,
                             .sequence = 4,
                             .precision = planner::Precision::kFp32,
                             .gpus = planner::GpuCount(strategy)};
  strategy.bucket_bytes = Bytes(512);
  Result<planner::StepProgram> program = planner::ExpandProgram(job, strategy, type);
  EXPECT_TRUE(program) << program.error().message();
  return program.value_or(planner::StepProgram{});
}

/// What element (row, column) of a tensor is in a part of the state: no two alike.
inline double ValueAt(const planner::TensorBox& box, size_t part, int64_t row, int64_t column) {
  return (box.tensor + 1) * 1e6 + static_cast<double>(part) * 3e5 + static_cast<double>(row) * 300 + static_cast<double>(column) +
         0.5;
}

/// The memory of one rank, in double precision or single.
class Memory {
 public:
  Memory(const planner::ProgramState& state, size_t place, planner::ElementType type) : boxes_(state.ranks[place]) {
    view_.type = type;
    std::vector<int64_t> elements;
    for (const planner::HeldBox& held : boxes_) {
      elements.resize(std::max(elements.size(), static_cast<size_t>(held.unit) + 1), 0);
      int64_t& most = elements[static_cast<size_t>(held.unit)];
      most = std::max(most, held.offset + (held.box.rows - 1) * held.stride + held.box.columns);
    }
    for (const int64_t n : elements) {
      UnitState unit{.elements = n};
      for (void*& part : unit.parts) {
        bytes_.push_back(std::make_unique<std::vector<std::byte>>(static_cast<size_t>(n * planner::BytesOf(type))));
        part = bytes_.back()->data();
      }
      view_.units.push_back(unit);
    }
  }

  RankState& view() { return view_; }

  void Fill() {
    ForAll([](double* value, double expected) { *value = expected; });
  }
  /// Elements that are not what Fill() makes them, in the first `parts` parts.
  int64_t Wrong(size_t parts = kStateParts) {
    int64_t wrong = 0;
    ForAll([&](const double* value, double expected) { wrong += *value != expected ? 1 : 0; }, parts);
    return wrong;
  }

 private:
  template <typename Body>
  void ForAll(Body body, size_t parts = kStateParts) {
    for (const planner::HeldBox& held : boxes_) {
      for (size_t part = 0; part < parts; ++part) {
        for (int64_t r = 0; r < held.box.rows; ++r) {
          for (int64_t c = 0; c < held.box.columns; ++c) {
            void* const memory = view_.units[static_cast<size_t>(held.unit)].parts[part];
            const int64_t at = held.offset + r * held.stride + c;
            const double expected = ValueAt(held.box, part, held.box.row + r, held.box.column + c);
            if (view_.type == planner::ElementType::kFloat64) {
              body(static_cast<double*>(memory) + at, expected);
            } else {
              auto* single = static_cast<float*>(memory) + at;
              double value = *single;
              body(&value, static_cast<double>(static_cast<float>(expected)));
              *single = static_cast<float>(value);
            }
          }
        }
      }
    }
  }

  std::vector<planner::HeldBox> boxes_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> bytes_;
  RankState view_;
};

/// Calls body(rank, bootstrap) on a thread per rank, all joined; the bootstrap is null for one rank.
inline void OnRanks(int world, const std::function<void(int, collectives::Bootstrap*)>& body) {
  if (world == 1) return body(0, nullptr);
  Result<collectives::Rendezvous> rendezvous = collectives::OpenRendezvous("127.0.0.1:0");
  ASSERT_TRUE(rendezvous) << rendezvous.error().message();
  const std::string address = rendezvous->address;
  const int listener = rendezvous->listener.release();
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      auto joined = collectives::Bootstrap::Join({.rank = RankId(rank),
                                                  .world = world,
                                                  .address = address,
                                                  .timeout = Seconds(30),
                                                  .listener = rank == 0 ? listener : -1});
      ASSERT_TRUE(joined) << joined.error().message();
      body(rank, joined->get());
    });
  }
}

}  // namespace weft::runtime::testing
