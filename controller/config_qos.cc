// The traffic classes in the controller's configuration file, and what NICs are to do with each.
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "controller/config_readers.h"
#include "formats/read_file.h"

namespace weft::controller {
namespace {

constexpr size_t kMostClasses = 8;

/// "60%".
Reader Share(int32_t& out) {
  return [&out](const std::string& value) -> Status {
    if (value.empty() || value.back() != '%' || !Number<int32_t>(out, 1, 100)(value.substr(0, value.size() - 1))) {
      return Fail(Code::kInvalidArgument, "expected whole percents, such as 60%");
    }
    return Ok();
  };
}

Status ReadClass(const std::string& source, const YAML::Node& node, v1::QosClass& entry, bool& declared) {
  entry.set_priority(-1);
  int32_t dscp = -1, priority = -1, share = 0;
  bool lossless = false;
  if (node.IsScalar() || !node.IsMap()) {
    const Status status = node.IsScalar() ? Number<int32_t>(dscp, 0, 63)(node.Scalar())
                                          : Fail(Code::kInvalidArgument, "expected a number from 0 to 63, or a map with dscp");
    if (!status) {
      return Fail(Code::kInvalidArgument, fmt::format("{}: classes: \"{}\": {}", At(source, node),
                                                      node.IsScalar() ? node.Scalar() : "",
                                                      status.error().message()));
    }
  } else {
    declared = true;
    WEFT_RETURN_IF_ERROR(ReadMap(source, node, "classes", {{"dscp", Number<int32_t>(dscp, 0, 63)},
                                                           {"priority", Number<int32_t>(priority, 0, 7)},
                                                           {"share", Share(share)},
                                                           {"lossless", Switch(lossless)}}));
    if (dscp < 0) return Fail(Code::kInvalidArgument,
                              At(source, node) + ": classes: dscp is missing, expected a number from 0 to 63");
    if (priority < 0 && (share > 0 || lossless)) {
      return Fail(Code::kInvalidArgument,
                  At(source, node) + ": classes: priority is missing, expected 0 to 7 where share or lossless is said");
    }
  }
  entry.set_dscp(dscp);
  entry.set_priority(priority);
  entry.set_share(share);
  entry.set_lossless(lossless);
  return Ok();
}

Status CheckShares(const std::string& source, const YAML::Node& node, const std::vector<v1::QosClass>& classes) {
  int32_t shares = 0;
  bool all = true;
  for (const v1::QosClass& entry : classes) {
    shares += entry.share();
    all = all && entry.share() > 0;
  }
  if (shares == 0 || (shares == 100 && all)) return Ok();
  return Fail(Code::kInvalidArgument,
              fmt::format("{}: classes: shares come to {} %, expected 100 and a share of each class, or none",
                                                  At(source, node), shares));
}

v1::QosDeclaration& Declared(std::optional<v1::QosDeclaration>& qos) {
  if (!qos) {
    qos.emplace();
    qos->set_roce_tos(-1);
  }
  return *qos;
}

}  // namespace

Status ReadClasses(const std::string& source, const YAML::Node& node, std::vector<int32_t>& dscp,
                   std::optional<v1::QosDeclaration>& qos) {
  if (!node.IsSequence() || node.size() < 1 || node.size() > kMostClasses) {
    return Fail(Code::kInvalidArgument, fmt::format("{}: classes: expected a list of 1 to {} DSCP values, the class that is "
                                                    "served first first", At(source, node), kMostClasses));
  }
  std::vector<int32_t> values;
  std::vector<v1::QosClass> classes;
  bool declared = false;
  for (const YAML::Node& item : node) {
    v1::QosClass& entry = classes.emplace_back();
    WEFT_RETURN_IF_ERROR(ReadClass(source, item, entry, declared));
    if (std::find(values.begin(), values.end(), entry.dscp()) != values.end()) {
      return Fail(Code::kInvalidArgument, fmt::format("{}: classes: DSCP {} is there twice", At(source, item), entry.dscp()));
    }
    values.push_back(entry.dscp());
  }
  WEFT_RETURN_IF_ERROR(CheckShares(source, node, classes));
  dscp = std::move(values);
  if (declared) {
    for (v1::QosClass& entry : classes) *Declared(qos).add_classes() = std::move(entry);
  }
  return Ok();
}

Status ReadQos(const std::string& source, const YAML::Node& node, std::optional<v1::QosDeclaration>& qos) {
  int32_t roce_tos = -1;
  int64_t mtu = 0;
  WEFT_RETURN_IF_ERROR(ReadMap(source, node, "qos", {{"roce_tos", Number<int32_t>(roce_tos, 0, 255)},
                                                     {"mtu", Number<int64_t>(mtu, 68, 65535)}}));
  Declared(qos).set_roce_tos(roce_tos);
  Declared(qos).set_mtu(mtu);
  return Ok();
}

void FinishQos(const std::vector<int32_t>& dscp, std::optional<v1::QosDeclaration>& qos) {
  if (!qos || qos->classes_size() > 0) return;
  for (const int32_t value : dscp) {
    v1::QosClass* entry = qos->add_classes();
    entry->set_dscp(value);
    entry->set_priority(-1);
  }
}

Result<std::vector<v1::QosClass>> ReadDeclaredClasses(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, formats::ReadFile(path));
  std::vector<int32_t> dscp;
  std::optional<v1::QosDeclaration> qos;
  try {
    const YAML::Node root = YAML::Load(text);
    if (!root.IsMap() || !root["classes"]) {
      return Fail(Code::kInvalidArgument, path + ": classes: missing, expected a list such as classes: [26, 0]");
    }
    WEFT_RETURN_IF_ERROR(ReadClasses(path, root["classes"], dscp, qos));
  } catch (const YAML::Exception& error) {
    return Fail(Code::kInvalidArgument, fmt::format("{}:{}: {}", path, error.mark.line + 1, error.msg));
  }
  Declared(qos);
  FinishQos(dscp, qos);
  return std::vector<v1::QosClass>(qos->classes().begin(), qos->classes().end());
}

}  // namespace weft::controller
