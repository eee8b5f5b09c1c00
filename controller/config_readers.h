// How the controller's configuration file is read, value by value: each reader takes one key's text and puts it where it belongs.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "proto/qos.pb.h"

namespace YAML {
class Node;
}

namespace weft::controller {

/// Reads one value; the error is the detail only, the caller says where.
using Reader = std::function<Status(const std::string& value)>;

/// Where in which file a value stands.
std::string At(const std::string& source, const YAML::Node& node);

Reader Text(std::string& out);
Reader Switch(bool& out);
/// A time above zero.
Reader Duration(Seconds& out);
/// A time above zero and up to `most`.
Reader DurationUpTo(Seconds& out, Seconds most);

template <typename T>
Reader Parsed(T& out, Result<T> (*parse)(std::string_view)) {
  return [&out, parse](const std::string& value) -> Status {
    WEFT_ASSIGN_OR_RETURN(out, parse(value));
    return Ok();
  };
}

/// A plain number in [least, most].
template <typename T>
Reader Number(T& out, T least, T most) {
  return [&out, least, most](const std::string& value) -> Status {
    T number{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || !(number >= least && number <= most)) {
      return Fail(Code::kInvalidArgument, fmt::format("expected a number from {} to {}", least, most));
    }
    out = number;
    return Ok();
  };
}

/// Visits the entries of a map; each key once and none that is not in `readers` or `blocks`.
Status ReadMap(const std::string& source, const YAML::Node& node, const std::string& prefix,
               const std::map<std::string, Reader>& readers,
               const std::map<std::string, std::function<Status(const YAML::Node&)>>& blocks = {});

/// The key `classes`: DSCP of each class, served first first; entries may also be maps that say what NICs are to do with it, and
/// `qos`
/// is then declared.
Status ReadClasses(const std::string& source, const YAML::Node& node, std::vector<int32_t>& dscp,
                   std::optional<v1::QosDeclaration>& qos);
/// The key `qos`. It declares the classes too.
Status ReadQos(const std::string& source, const YAML::Node& node, std::optional<v1::QosDeclaration>& qos);
/// Of the file at `path` its key `classes` alone: what NICs and switches are to do with each, priority -1 and share 0 where only the DSCP is
/// said. Errors: as of ReadFile; kInvalidArgument where the key is wrong or missing, naming file, line and value.
[[nodiscard]] Result<std::vector<v1::QosClass>> ReadDeclaredClasses(const std::string& path);
/// Fills in classes of which only the DSCP is said, whatever the order of the keys. Without a declaration it does nothing.
void FinishQos(const std::vector<int32_t>& dscp, std::optional<v1::QosDeclaration>& qos);

}  // namespace weft::controller
