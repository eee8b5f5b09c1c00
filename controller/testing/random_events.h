// Events that no honest agent, hook or person sends: every field of every message, from a few names and awkward numbers, so that
// what is said fits together often enough to get further than the first check.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>

#include "controller/events.h"

namespace weft::controller {

class RandomEvents {
 public:
  explicit RandomEvents(uint32_t seed) : random_(seed) {}

  /// The next one; the same seed gives the same ones.
  Event Make(double time);
  /// All fields of a message, those that it has in others too.
  void Fill(google::protobuf::Message* message) { Fill(message, 0); }

 private:
  void Fill(google::protobuf::Message* message, int depth);
  void FillField(google::protobuf::Message* message, const google::protobuf::FieldDescriptor* field, int depth);
  int Pick(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  std::string Name(const std::string& field);
  int64_t Whole(const std::string& field);
  double Real(const std::string& field);
  v1::JobSpec Spec();
  JobAdvised Advice();

  std::mt19937 random_;
  double host_time_ = 100;
  int64_t bytes_ = 0;
};

}  // namespace weft::controller
