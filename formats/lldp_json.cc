#include "formats/lldp_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "formats/json_fields.h"
#include "formats/one_line.h"

namespace weft::formats {
namespace {

using nlohmann::json;

class Reader {
 public:
  explicit Reader(std::string_view source) : source_(source) {}

  Status ReadInterfaces(const json& document) {
    const auto lldp = document.find("lldp");
    if (lldp == document.end() || !lldp->is_object()) return Wrong("lldp", "missing or no object");
    const auto interfaces = lldp->find("interface");
    if (interfaces == lldp->end()) return Ok();  // nobody is announcing
    if (interfaces->is_object()) return ReadGroup(*interfaces);
    if (!interfaces->is_array()) return Wrong("lldp.interface", "expected an object or a list of objects");
    for (const json& group : *interfaces) {
      if (!group.is_object()) return Wrong("lldp.interface", "a list entry that is no object");
      WEFT_RETURN_IF_ERROR(ReadGroup(group));
    }
    return Ok();
  }

  std::vector<LldpNeighbour> Take() {
    const auto key = [](const LldpNeighbour& n) { return std::tie(n.interface, n.chassis, n.port); };
    std::sort(found_.begin(), found_.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
    return std::move(found_);
  }

 private:
  tl::unexpected<Error> Wrong(std::string_view place, std::string_view what) const {
    return Fail(Code::kInvalidArgument, fmt::format("{}: {}: {}", source_, OneLine(place, 120), what));
  }

  Status ReadGroup(const json& group) {
    for (const auto& [name, neighbour] : group.items()) {
      const std::string place = "interface " + name;
      if (!neighbour.is_object()) return Wrong(place, "expected an object");
      LldpNeighbour found{.interface = name};
      WEFT_ASSIGN_OR_RETURN(found.chassis, Chassis(neighbour, place));
      WEFT_ASSIGN_OR_RETURN(found.port, Port(neighbour, place));
      found_.push_back(std::move(found));
    }
    return Ok();
  }

  /// {"leaf0": {"id": {"value": ...}}}, or without a name the inner object alone.
  Result<std::string> Chassis(const json& neighbour, const std::string& place) const {
    const auto chassis = neighbour.find("chassis");
    if (chassis == neighbour.end() || !chassis->is_object() || chassis->empty()) {
      return Wrong(place, "chassis is missing or no object");
    }
    if (chassis->contains("id")) return Value(*chassis, place + ": chassis");
    if (!chassis->begin()->is_object() || chassis->begin().key().empty()) return Wrong(place, "chassis without a name or id");
    return chassis->begin().key();
  }

  Result<std::string> Port(const json& neighbour, const std::string& place) const {
    const auto port = neighbour.find("port");
    if (port == neighbour.end() || !port->is_object()) return Wrong(place, "port is missing or no object");
    const auto description = port->find("descr");
    if (description != port->end()) {
      if (!description->is_string()) return Wrong(place, "port.descr is no text");
      return description->get<std::string>();
    }
    return Value(*port, place + ": port");
  }

  Result<std::string> Value(const json& object, const std::string& place) const {
    const auto id = object.find("id");
    if (id == object.end() || !id->is_object()) return Wrong(place, "id is missing or no object");
    const auto value = id->find("value");
    if (value == id->end() || !value->is_string() || value->get_ref<const std::string&>().empty()) {
      return Wrong(place, "id.value is missing, empty or no text");
    }
    return value->get<std::string>();
  }

  std::string_view source_;
  std::vector<LldpNeighbour> found_;
};

}  // namespace

Result<std::vector<LldpNeighbour>> ParseLldpJson(std::string_view text, std::string_view source) {
  WEFT_ASSIGN_OR_RETURN(const json document, ParseJsonObject(text, source));
  Reader reader(source);
  WEFT_RETURN_IF_ERROR(reader.ReadInterfaces(document));
  return reader.Take();
}

}  // namespace weft::formats
