#include "cli/proto_json.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <map>
#include <nlohmann/json.hpp>

namespace weft::cli {
namespace {

using Json = nlohmann::ordered_json;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

Json ToJson(const Message& message);

Json Single(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: return reflection.GetInt32(message, &field);
    case FieldDescriptor::CPPTYPE_INT64: return reflection.GetInt64(message, &field);
    case FieldDescriptor::CPPTYPE_UINT32: return reflection.GetUInt32(message, &field);
    case FieldDescriptor::CPPTYPE_UINT64: return reflection.GetUInt64(message, &field);
    case FieldDescriptor::CPPTYPE_DOUBLE: return reflection.GetDouble(message, &field);
    case FieldDescriptor::CPPTYPE_FLOAT: return reflection.GetFloat(message, &field);
    case FieldDescriptor::CPPTYPE_BOOL: return reflection.GetBool(message, &field);
    case FieldDescriptor::CPPTYPE_STRING: return reflection.GetString(message, &field);
    case FieldDescriptor::CPPTYPE_ENUM: return reflection.GetEnum(message, &field)->name();
    case FieldDescriptor::CPPTYPE_MESSAGE: return ToJson(reflection.GetMessage(message, &field));
  }
  return nullptr;
}

Json Repeated(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: return reflection.GetRepeatedInt32(message, &field, index);
    case FieldDescriptor::CPPTYPE_INT64: return reflection.GetRepeatedInt64(message, &field, index);
    case FieldDescriptor::CPPTYPE_UINT32: return reflection.GetRepeatedUInt32(message, &field, index);
    case FieldDescriptor::CPPTYPE_UINT64: return reflection.GetRepeatedUInt64(message, &field, index);
    case FieldDescriptor::CPPTYPE_DOUBLE: return reflection.GetRepeatedDouble(message, &field, index);
    case FieldDescriptor::CPPTYPE_FLOAT: return reflection.GetRepeatedFloat(message, &field, index);
    case FieldDescriptor::CPPTYPE_BOOL: return reflection.GetRepeatedBool(message, &field, index);
    case FieldDescriptor::CPPTYPE_STRING: return reflection.GetRepeatedString(message, &field, index);
    case FieldDescriptor::CPPTYPE_ENUM: return reflection.GetRepeatedEnum(message, &field, index)->name();
    case FieldDescriptor::CPPTYPE_MESSAGE: return ToJson(reflection.GetRepeatedMessage(message, &field, index));
  }
  return nullptr;
}

/// A map's entries come in any order from protobuf; a sorted object is the same text every time.
Json MapObject(const Message& message, const FieldDescriptor& field) {
  std::map<std::string, Json> sorted;
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    const Message& entry = reflection.GetRepeatedMessage(message, &field, i);
    const Json key = Single(entry, *field.message_type()->map_key());
    sorted[key.is_string() ? key.get<std::string>() : key.dump()] = Single(entry, *field.message_type()->map_value());
  }
  Json object = Json::object();
  for (auto& [key, value] : sorted) object[key] = std::move(value);
  return object;
}

Json ToJson(const Message& message) {
  const Reflection& reflection = *message.GetReflection();
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  Json object = Json::object();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.is_map()) {
      object[field.name()] = MapObject(message, field);
    } else if (field.is_repeated()) {
      Json list = Json::array();
      for (int at = 0; at < reflection.FieldSize(message, &field); ++at) list.push_back(Repeated(message, field, at));
      object[field.name()] = std::move(list);
    } else if (!field.has_presence() || reflection.HasField(message, &field)) {
      object[field.name()] = Single(message, field);
    }
  }
  return object;
}

}  // namespace

std::string ToJsonText(const Message& message) {
  return ToJson(message).dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace weft::cli
