#include "agent/qos/mender.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/unique_fd.h"

namespace weft::agent {
namespace {

using Json = nlohmann::ordered_json;
constexpr size_t kMostRecordBytes = 1 << 20;

/// A structure of the kernel as hexadecimal digits: it is put back as it came.
template <typename T>
std::string Hex(const T& value) {
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&value);
  std::string text;
  for (size_t i = 0; i < sizeof value; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

template <typename T>
std::optional<T> FromHex(const Json& object, const char* key) {
  if (!object.contains(key)) return std::nullopt;
  const auto text = object.at(key).get<std::string>();
  if (text.size() != 2 * sizeof(T)) throw std::invalid_argument(fmt::format("\"{}\" has {} digits, expected {}", key, text.size(),
                                                                            2 * sizeof(T)));
  T value;
  for (size_t i = 0; i < sizeof value; ++i) {
    reinterpret_cast<unsigned char*>(&value)[i] = static_cast<unsigned char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return value;
}

Json NumbersJson(const std::vector<PortChange::Number>& numbers) {
  Json list = Json::array();
  for (const PortChange::Number& number : numbers) list.push_back({{"device", number.device}, {"port", number.port},
                                                                   {"value", number.value}});
  return list;
}

std::vector<PortChange::Number> NumbersFrom(const Json& list) {
  std::vector<PortChange::Number> numbers;
  for (const Json& entry : list) {
    numbers.push_back({entry.at("device").get<std::string>(), entry.at("port").get<int>(), entry.at("value").get<int>()});
  }
  return numbers;
}

Json DcbJson(const DcbState& dcb) {
  Json apps = Json::array();
  for (const DcbApp& app : dcb.apps) apps.push_back({app.selector, app.priority, app.protocol});
  Json json = {{"apps", apps}};
  if (dcb.ets) json["ets"] = Hex(*dcb.ets);
  if (dcb.pfc) json["pfc"] = Hex(*dcb.pfc);
  if (dcb.trust) json["trust"] = *dcb.trust;
  return json;
}

DcbState DcbFrom(const Json& json) {
  DcbState dcb;
  for (const Json& app : json.at("apps")) dcb.apps.insert({app.at(0).get<uint8_t>(), app.at(1).get<uint8_t>(),
                                                           app.at(2).get<uint16_t>()});
  dcb.ets = FromHex<ieee_ets>(json, "ets");
  dcb.pfc = FromHex<ieee_pfc>(json, "pfc");
  if (json.contains("trust")) dcb.trust = json.at("trust").get<std::vector<uint8_t>>();
  return dcb;
}

PortBefore BeforeOf(const PortSettings& port) {
  PortBefore before{.dcb = port.dcb, .roce_tos = {}, .forced_class = {}};
  for (const RdmaPort& rdma : port.rdma) {
    if (rdma.roce_tos) before.roce_tos.push_back({rdma.device, rdma.port, *rdma.roce_tos});
    if (rdma.forced_class) before.forced_class.push_back({rdma.device, rdma.port, *rdma.forced_class});
  }
  return before;
}

/// What leads from `port` as it is now to what was there before. Devices that are gone stay out.
PortChange ChangeBack(const PortBefore& before, const PortSettings& port) {
  PortChange change;
  if (before.dcb && port.dcb) change.dcb = ChangeTo(*before.dcb, *port.dcb);
  const PortBefore now = BeforeOf(port);
  const auto add = [](const std::vector<PortChange::Number>& then, const std::vector<PortChange::Number>& present,
                      std::vector<PortChange::Number>* to) {
    for (const PortChange::Number& number : then) {
      const bool other = std::ranges::any_of(present, [&](const PortChange::Number& p) {
        return p.device == number.device && p.port == number.port && p.value != number.value;
      });
      if (other) to->push_back(number);
    }
  };
  add(before.roce_tos, now.roce_tos, &change.roce_tos);
  add(before.forced_class, now.forced_class, &change.forced_class);
  return change;
}

Status WriteWhole(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".new";
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const auto failed = [&] { return Fail(ErrnoError(fmt::format("write \"{}\"", path), errno)); };
  if (!fd) return failed();
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(fd.get(), text.data() + done, text.size() - done);
    if (wrote < 0) return failed();
    done += static_cast<size_t>(wrote);
  }
  if (::fsync(fd.get()) != 0 || ::rename(temporary.c_str(), path.c_str()) != 0) return failed();
  return Ok();
}

}  // namespace

std::string RecordText(const std::map<std::string, PortBefore>& before) {
  Json ports = Json::object();
  for (const auto& [interface, entry] : before) {
    Json json = {{"roce_tos", NumbersJson(entry.roce_tos)}, {"forced_class", NumbersJson(entry.forced_class)}};
    if (entry.dcb) json["dcb"] = DcbJson(*entry.dcb);
    ports[interface] = json;
  }
  return Json{{"version", 1}, {"ports", ports}}.dump(1) + "\n";
}

Result<std::map<std::string, PortBefore>> ParseRecord(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    if (json.at("version").get<int>() != 1) return Fail(Code::kDataLoss, "version is not 1");
    std::map<std::string, PortBefore> before;
    for (const auto& [interface, entry] : json.at("ports").items()) {
      PortBefore& port = before[interface];
      if (entry.contains("dcb")) port.dcb = DcbFrom(entry.at("dcb"));
      port.roce_tos = NumbersFrom(entry.at("roce_tos"));
      port.forced_class = NumbersFrom(entry.at("forced_class"));
    }
    return before;
  } catch (const std::exception& error) {  // of the JSON library, and std::stoi's
    return Fail(Code::kDataLoss, error.what());
  }
}

QosMender::QosMender(std::string record_path, QosWriters writers) : path_(std::move(record_path)), writers_(std::move(writers)) {
  std::ifstream file(path_);
  if (!file) return;
  std::string text(kMostRecordBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  Result<std::map<std::string, PortBefore>> before = ParseRecord(text);
  if (before) before_ = std::move(*before);
  else problem_ = fmt::format("record \"{}\" of what was there before: {}", path_, before.error().message());
}

Status QosMender::Keep(const std::map<std::string, PortBefore>& before) {
  if (!before.empty()) return WriteWhole(path_, RecordText(before));
  if (::unlink(path_.c_str()) != 0 && errno != ENOENT) return Fail(ErrnoError(fmt::format("remove \"{}\"", path_), errno));
  return Ok();
}

/// `undo` gets what leads back from what was set, also when a part fails.
Status QosMender::Write(const std::string& interface, const PortChange& change, PortChange* undo, const PortSettings& port) {
  const PortBefore now = BeforeOf(port);
  if (!change.dcb.empty()) {
    undo->dcb = {.add = change.dcb.remove, .remove = change.dcb.add, .ets = {}, .pfc = {}, .trust = {}};
    if (change.dcb.ets) undo->dcb.ets = port.dcb->ets;
    if (change.dcb.pfc) undo->dcb.pfc = port.dcb->pfc;
    if (change.dcb.trust) undo->dcb.trust = port.dcb->trust;
    WEFT_RETURN_IF_ERROR(writers_.dcb(interface, change.dcb));
  }
  const auto set = [](const std::vector<PortChange::Number>& numbers, const std::vector<PortChange::Number>& present,
                      const auto& writer,
                      std::vector<PortChange::Number>* back) -> Status {
    for (const PortChange::Number& number : numbers) {
      for (const PortChange::Number& p : present) {
        if (p.device == number.device && p.port == number.port) back->push_back(p);
      }
      WEFT_RETURN_IF_ERROR(writer(number));
    }
    return Ok();
  };
  WEFT_RETURN_IF_ERROR(set(change.roce_tos, now.roce_tos, writers_.roce_tos, &undo->roce_tos));
  return set(change.forced_class, now.forced_class, writers_.forced_class, &undo->forced_class);
}

Status QosMender::Apply(const PortSettings& port, const PortChange& change) {
  if (!problem_.empty()) return Fail(Code::kFailedPrecondition, problem_);
  if (change.empty()) return Ok();
  if (!before_.contains(port.interface)) {
    std::map<std::string, PortBefore> before = before_;
    before[port.interface] = BeforeOf(port);
    if (const Status kept = Keep(before); !kept) return Fail(Code::kFailedPrecondition,
                                                             "nothing is set: " + kept.error().message());
    before_ = std::move(before);
  }
  PortChange undo;
  const Status status = Write(port.interface, change, &undo, port);
  if (status) return Ok();
  PortChange unused;
  const Status undone = Write(port.interface, undo, &unused, port);
  const std::string then = undone ? "; undone" : "; and what was set could not be undone: " + undone.error().message();
  return Fail(status.error().code(), status.error().message() + then);
}

Status QosMender::Revert(const PortSettings& port, std::vector<std::string>* done) {
  if (!problem_.empty()) return Fail(Code::kFailedPrecondition, problem_);
  const auto found = before_.find(port.interface);
  if (found == before_.end()) return Ok();
  const PortChange change = ChangeBack(found->second, port);
  PortChange unused;
  WEFT_RETURN_IF_ERROR(Write(port.interface, change, &unused, port));
  for (const PortChange::Number& number : change.roce_tos) {
    done->push_back(fmt::format("{}: roce-tos of {} port {}: {}, as before", port.interface, number.device, number.port,
                                number.value));
  }
  for (const PortChange::Number& number : change.forced_class) {
    done->push_back(fmt::format("{}: forced-class of {} port {}: {}, as before", port.interface, number.device, number.port,
                                number.value));
  }
  if (!change.dcb.empty()) done->push_back(fmt::format("{}: DCB settings as before", port.interface));
  std::map<std::string, PortBefore> before = before_;
  before.erase(port.interface);
  WEFT_RETURN_IF_ERROR(Keep(before));
  before_ = std::move(before);
  return Ok();
}

}  // namespace weft::agent
