#include <google/protobuf/message.h>
#include <linux/dcbnl.h>
#include <linux/rtnetlink.h>

#include "agent/probe/packet.h"
#include "agent/qos/dcb.h"
#include "agent/qos/sent_dscp.h"
#include "collectives/bootstrap_wire.h"
#include "controller/testing/random_events.h"
#include "planner/planner.h"
#include "proto/identity.h"
#include "proto/operation_codec.h"
#include "proto/operations.pb.h"
#include "proto/plan_codec.h"
#include "tests/fuzz/samples.h"
#include "tests/fuzz/target.h"

namespace weft::fuzz {
namespace {

std::span<const uint8_t> BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}
std::vector<uint8_t> Copied(const std::string& text) { return {text.begin(), text.end()}; }
std::string Text(std::span<const uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

constexpr agent::Probe kProbe{.source = 0x0A010001, .destination = 0x0A020003, .source_port = 41001, .destination_port = 29500, .ttl = 2,
                              .sequence = 0x89ABCDEF};

/// A router's answer to it.
std::string TimeExceededPacket() {
  std::vector<uint8_t> packet = {0x45, 0, 0, 56, 0, 0, 0, 0, 64, 1, 0, 0, 10, 255, 1, 2, 10, 1, 0, 1, 11, 0, 0, 0, 0, 0, 0, 0};
  const auto syn = agent::BuildSyn(kProbe);
  packet.insert(packet.end(), syn.begin(), syn.end());
  return Text(packet);
}

std::string TimeExceededOfDatagram() {
  agent::Probe probe = kProbe;
  probe.destination_port = abi::kRocePort;
  const std::vector<uint8_t> datagram = agent::BuildProbe(probe);
  return TimeExceededPacket().substr(0, 28) + Text(datagram);
}

/// The answer of an open port.
std::string SynAck() {
  auto packet = agent::BuildSyn(kProbe);
  packet[33] = 0x12;
  return Text(packet);
}

std::string OfTimeExceeded(const std::string& text) { return agent::ParseTimeExceeded(BytesOf(text)) ? "" : "no answer to a probe"; }
std::string OfTcpAnswer(const std::string& text) { return agent::ParseTcpAnswer(BytesOf(text)) ? "" : "no answer"; }

std::string OfSentPacket(const std::string& text) {
  const auto packet = agent::ParseSentPacket(BytesOf(text));
  Require(!packet || (packet->dscp >= 0 && packet->dscp < 64), "a DSCP of more than six bits");
  return packet ? "" : "no packet";
}

std::string DcbAnswer() {
  agent::DcbChange change;
  change.add = {{IEEE_8021QAZ_APP_SEL_DSCP, 3, 26}, {1, 5, 0x8906}};
  change.pfc = ieee_pfc{.pfc_cap = 8, .pfc_en = 0b1000};
  change.ets = ieee_ets{.ets_cap = 8};
  std::vector<char> message = agent::DcbSetMessage("eth0", change, 1);
  message[4] = RTM_GETDCB;
  return {message.begin(), message.end()};
}

std::string OfGathered(const std::string& text) {
  const auto blobs = collectives::wire::DecodeGathered(Copied(text), 4);
  if (blobs) {
    size_t sum = 0;
    for (const auto& blob : *blobs) sum += blob.size();
    Require(blobs->size() == 4 && sum <= text.size(), "more than the frame holds");
  }
  return Said(blobs);
}

/// A message of gRPC as it arrives, then what it becomes.
template <typename Message, typename Convert>
Target OfMessage(std::string name, std::string good, Convert convert) {
  std::vector<std::string> corpus = {std::move(good)};
  controller::RandomEvents random(7);
  for (int i = 0; i < 20; ++i) {
    Message message;
    random.Fill(&message);
    corpus.push_back(message.SerializeAsString());
  }
  return {std::move(name), std::move(corpus), [convert](const std::string& text) -> std::string {
            Message message;
            return message.ParseFromString(text) ? Said(convert(message)) : "no message";
          }};
}

/// Of one stage on one rank.
planner::OperationList SmallList() {
  planner::OperationList list{.schedule = planner::ScheduleKind::k1F1B, .stages = 1, .chunks = 1, .micro_batches = 4, .ranks_per_stage = 2};
  list.classes.emplace_back();
  list.classes[0].stages = {0};
  list.classes[0].operations.push_back({.what = "layers", .kind = planner::OperationKind::kCompute, .calls = 4, .seconds = 0.1, .flops = 1e9});
  return list;
}

}  // namespace

std::vector<Target> NetworkTargets() {
  const std::string hello = Text(collectives::wire::HelloFrame({1, 4}).body);
  const std::string gathered = Text(collectives::wire::GatheredFrame({{1, 2}, {}, {3}, {4, 5, 6}}).body);
  const planner::Strategy strategy{.dp = 2, .tp = 2};
  return {
      {"time-exceeded", {TimeExceededPacket(), TimeExceededOfDatagram()}, OfTimeExceeded},
      {"tcp-answer", {SynAck()}, OfTcpAnswer},
      {"sent-packet", {Text(agent::BuildSyn(kProbe))}, OfSentPacket},
      {"dcb", {DcbAnswer()}, [](const std::string& text) { return Said(agent::ParseDcbState(text)); }},
      {"hello", {hello}, [](const std::string& text) { return collectives::wire::DecodeHello(Copied(text)) ? "" : "no hello"; }},
      {"gathered", {gathered}, OfGathered},
      {"failure", {Text(collectives::wire::FailureFrame(Error(Code::kInternal, "gone")).body)},
       [](const std::string& text) {
         (void)collectives::wire::FailureOf({collectives::wire::FrameKind::kFailed, Copied(text)});  // a peer's words may be none
         return "";
       }},
      {"identity", {"weft://agent/h1", "weft://submitter/slurm"}, [](const std::string& text) { return Said(rpc::ParseIdentityUri(text)); }},
      OfMessage<v1::Strategy>("strategy-message", proto::ToProto(strategy).SerializeAsString(),
                              [](const v1::Strategy& message) { return proto::StrategyFromProto(message); }),
      OfMessage<v1::GivenStrategy>("given-strategy", "", [](const v1::GivenStrategy& message) { return proto::StrategyFromProto(message); }),
      OfMessage<v1::JobSpec>("job-message", "", [](const v1::JobSpec& message) { return proto::JobSpecFromProto(message, SmallJob().model); }),
      OfMessage<v1::OperationList>("operations", proto::ToProto(SmallList()).SerializeAsString(), [](const v1::OperationList& message) { return proto::OperationListFromProto(message); }),
  };
}

}  // namespace weft::fuzz
