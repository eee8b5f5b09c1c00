#include "controller/testing/random_events.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cmath>
#include <limits>

namespace weft::controller {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kDeepest = 5;

bool Has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

Event RandomEvents::Make(double time) {
  const auto filled = [this]<typename T>(T message) {
    Fill(&message);
    return message;
  };
  const auto event = [time](auto body) { return Event{Seconds(time), std::move(body)}; };
  switch (Pick(15)) {
    case 0: return event(HostRegistered{filled(v1::Register()), Pick(4) == 0});
    case 1: return event(HostLost{Name("host")});
    case 2: return event(JobReleased{Name("job_id")});
    case 3: return event(EpochKnown{Name("job_id"), Whole("epoch")});
    case 4: return event(ModeSet{static_cast<v1::Mode>(Pick(5)), ""});
    case 5: return event(PathsReceived{Name("host"), filled(v1::PathReport())});
    case 6: return event(JobSubmitted{Spec(), filled(v1::JobPlan()), {}, Pick(4) == 0});
    case 7: return event(Advice());
    case 8: return event(StrategyAsked{Name("job_id"), filled(v1::StrategyChange())});
    case 9:
    case 10: return event(Tick{});
    case 11: return event(RunLearned{.job_id = Name("job_id"), .text = Name("strategy")});
    default: return event(SampleReceived{Name("host"), filled(v1::HostSample())});
  }
}

v1::JobSpec RandomEvents::Spec() {
  v1::JobSpec spec;
  Fill(&spec);
  if (spec.hosts().empty() && Pick(2) == 0) spec.add_hosts(Name("host"));
  return spec;
}

JobAdvised RandomEvents::Advice() {
  JobAdvised advised{.job_id = Name("job_id"), .fabric = Name("fabric"), .unchanged = Pick(4) == 0, .advice = {}, .change = {}};
  if (Pick(2) == 0) Fill(&advised.advice.emplace());
  if (Pick(2) == 0) Fill(&advised.change.emplace());
  return advised;
}

void RandomEvents::Fill(Message* message, int depth) {
  const google::protobuf::Descriptor& type = *message->GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    if (!field->is_repeated()) {
      if (Pick(5) > 0) FillField(message, field, depth);
      continue;
    }
    const int most = depth < 2 ? 4 : 3;
    for (int n = Pick(most); n > 0; --n) FillField(message, field, depth);
  }
}

void RandomEvents::FillField(Message* message, const FieldDescriptor* field, int depth) {
  const Reflection& of = *message->GetReflection();
  const std::string& name = field->name();
  const auto put = [&](auto value, auto set, auto add) {
    field->is_repeated() ? (of.*add)(message, field, value) : (of.*set)(message, field, value);
  };
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return put(static_cast<int32_t>(Whole(name)), &Reflection::SetInt32, &Reflection::AddInt32);
    case FieldDescriptor::CPPTYPE_INT64: return put(Whole(name), &Reflection::SetInt64, &Reflection::AddInt64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return put(static_cast<uint32_t>(Whole(name)), &Reflection::SetUInt32, &Reflection::AddUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return put(static_cast<uint64_t>(Whole(name)), &Reflection::SetUInt64, &Reflection::AddUInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE: return put(Real(name), &Reflection::SetDouble, &Reflection::AddDouble);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return put(static_cast<float>(Real(name)), &Reflection::SetFloat, &Reflection::AddFloat);
    case FieldDescriptor::CPPTYPE_BOOL: return put(Pick(2) == 0, &Reflection::SetBool, &Reflection::AddBool);
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int value = Pick(9) == 0 ? 99 : field->enum_type()->value(Pick(field->enum_type()->value_count()))->number();
      return put(value, &Reflection::SetEnumValue, &Reflection::AddEnumValue);
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string text = Name(name);
      return field->is_repeated() ? of.AddString(message, field, text) : of.SetString(message, field, text);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (depth >= kDeepest) return;
      Message* const inner = field->is_repeated() ? of.AddMessage(message, field) : of.MutableMessage(message, field);
      return Fill(inner, depth + 1);
  }
}

std::string RandomEvents::Name(const std::string& field) {
  switch (Pick(40)) {
    case 0: return "";
    case 1: return std::string(static_cast<size_t>(2000 * Pick(3) + 1), 'x');
    case 2: return "\"\n\\{}<script>\t";
    default: break;
  }
  if (Has(field, "host")) return fmt::format("h{}", Pick(4));
  if (Has(field, "job")) return Pick(3) == 0 ? fmt::format("job{}", Pick(3)) : Pick(2) == 0 ? "a" : "b";
  if (Has(field, "address")) return fmt::format("10.1.{}.2", Pick(5));
  if (Has(field, "hop") || Has(field, "switch") || Has(field, "fabric")) return Pick(2) == 0 ? fmt::format("spine{}", 1 + Pick(3)) : fmt::format("leaf{}", 1 + Pick(3));
  if (field == "state") return Pick(5) == 0 ? "failed" : "active";
  const char* const others[] = {"gpt2", "weft-train", "all-reduce", "ring", "dp=2", "1", "h1", "job1", "10.1.1.2", "s1", "{}", "enforce"};
  return others[Pick(12)];
}

int64_t RandomEvents::Whole(const std::string& field) {
  const int64_t awkward[] = {0, -1, 1, INT64_MAX, INT64_MIN, INT32_MAX, static_cast<int64_t>(random_()) << 20};
  if (Pick(12) == 0) return awkward[Pick(7)];
  if (field == "flow" || field == "flows" || field == "closed") return Pick(12);
  if (Has(field, "port")) return 41000 + Pick(6);
  if (Has(field, "bytes")) return bytes_ += Pick(1 << 20);
  if (Has(field, "epoch") || Has(field, "incarnation")) return 1 + Pick(8);
  return Pick(10);
}

double RandomEvents::Real(const std::string& field) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double awkward[] = {0, -1, 1e300, -1e300, std::nan(""), kInfinity, -kInfinity, 1e-300};
  if (Pick(12) == 0) return awkward[Pick(8)];
  if (field == "time_s") return host_time_ += 0.1;
  if (Has(field, "_bps")) return 1e6 * Pick(200);
  return 0.001 * Pick(2000);
}

}  // namespace weft::controller
