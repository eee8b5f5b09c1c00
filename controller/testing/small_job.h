// A job of weft-train with ranks that listen, small enough to be planned in a test.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "controller/config.h"
#include "controller/events.h"
#include "controller/job_planner.h"

namespace weft::controller::testing {

/// Four hosts of one CPU rank under two leaves and one spine: what a leaf lets out is `uplink`.
inline PlacementView SmallView(double uplink) {
  PlacementView view;
  for (int i = 0; i < 4; ++i) {
    const std::string host = fmt::format("h{}", i + 1), under = fmt::format("leaf{}", i / 2 + 1);
    view.connected.insert(host);
    view.leaf[host] = under;
    view.rate[host] = BitsPerSecond(60e6);
    const NodeId leaf = view.topology.AddNode(under, planner::NodeKind::kSwitch);
    view.topology.AddCable(view.topology.AddNode(host, planner::NodeKind::kHost), leaf, BitsPerSecond(60e6));
    if (i % 2 == 0) view.topology.AddCable(leaf, view.topology.AddNode("spine1", planner::NodeKind::kSwitch), BitsPerSecond(uplink));
  }
  view.carried.assign(view.topology.links().size(), BitsPerSecond(0));
  return view;
}

inline JobPlannerOptions SmallOptions() {
  JobPlannerOptions options = DefaultConfig().planner;
  options.cluster.nic_rate = BitsPerSecond(60e6);
  return options;
}

/// A job of weft-train as it was planned on a whole fabric, looked at where the spine's cables give a tenth.
inline AdviseRestart Listening() {
  v1::JobSpec spec;
  spec.set_job_id("small");
  spec.set_model_config_json(R"({"model_type": "gpt2", "n_layer": 4, "n_embd": 64, "n_head": 8, "n_positions": 64, "vocab_size": 256,
                                 "n_inner": 256, "activation_function": "gelu_new"})");
  spec.set_global_batch(32);
  spec.set_sequence(64);
  spec.set_precision("fp32");
  spec.set_framework("weft-train");
  spec.set_reshard(true);
  for (int i = 0; i < 4; ++i) spec.add_hosts(fmt::format("h{}", i + 1));
  AdviseRestart question{.spec = spec, .plan = {}, .view = SmallView(6e6), .iteration_s = 0, .looked_at = {}, .left = std::nullopt, .listens = true};
  const auto planned = PlanJob(spec, SmallView(60e6), SmallOptions());
  EXPECT_TRUE(planned.has_value()) << planned.error().message();
  if (planned) question.plan = planned->plan;
  return question;
}

}  // namespace weft::controller::testing
