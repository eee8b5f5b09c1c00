#include "agent/qos/rdma_port.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <functional>

namespace weft::agent {
namespace {

namespace fs = std::filesystem;
constexpr int kMostGids = 256;       // looked at
constexpr size_t kMostCounters = 64; // of one port

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<int64_t> Number(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end != text.data() ? std::optional(value) : std::nullopt;
}

/// Names in a folder, sorted; none if it is not there.
std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

/// In one write: what the kernel refuses it says there.
Status WriteFile(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const std::string what = fmt::format("write \"{}\" to \"{}\"", text, path);
  if (fd < 0) return Fail(ErrnoError(what, errno));
  const ssize_t wrote = ::write(fd, text.data(), text.size());
  const int error = errno;
  ::close(fd);
  return wrote == static_cast<ssize_t>(text.size()) ? Ok() : Fail(ErrnoError(what, error));
}

/// rdma_cm's folder of the device, made for as long as `use` takes if nobody has it.
template <typename T>
Result<T> InConfig(const QosRoots& roots, const std::string& device, int port,
                   const std::function<Result<T>(const std::string&)>& use) {
  if (::access(roots.rdma_cm.c_str(), F_OK) != 0) {
    return Fail(Code::kNotFound, fmt::format("\"{}\" is not there: configfs is not mounted or rdma_cm not loaded", roots.rdma_cm));
  }
  const std::string folder = roots.rdma_cm + "/" + device;
  const bool made = ::mkdir(folder.c_str(), 0755) == 0;
  if (!made && errno != EEXIST) return Fail(ErrnoError(fmt::format("make \"{}\"", folder), errno));
  Result<T> result = use(fmt::format("{}/ports/{}/default_roce_tos", folder, port));
  if (made) ::rmdir(folder.c_str());
  return result;
}

void ReadRoceTos(const QosRoots& roots, RdmaPort* port) {
  const auto tos = InConfig<int>(roots, port->device, port->port, [](const std::string& path) -> Result<int> {
    const auto value = Number(FirstLine(path));
    if (!value || *value < 0 || *value > 255) return Fail(Code::kNotFound,
                                                          fmt::format("\"{}\" holds no number from 0 to 255", path));
    return static_cast<int>(*value);
  });
  if (tos) port->roce_tos = *tos;
  else port->roce_tos_unreadable = tos.error().message();
}

void ReadGids(const std::string& folder, const std::string& interface, RdmaPort* port) {
  for (int i = 0; i < kMostGids; ++i) {
    const std::string type = FirstLine(fmt::format("{}/gid_attrs/types/{}", folder, i));
    if (type != "RoCE v2" || FirstLine(fmt::format("{}/gid_attrs/ndevs/{}", folder, i)) != interface) continue;
    if (const std::string gid = GidText(FirstLine(fmt::format("{}/gids/{}", folder, i))); !gid.empty()) {
      port->gids.push_back(fmt::format("{}: {}", i, gid));
    }
  }
}

/// "Global tclass=106".
std::optional<int> ForcedClass(const std::string& text) {
  constexpr std::string_view kKey = "Global tclass=";
  const auto value = text.starts_with(kKey) ? Number(text.substr(kKey.size())) : std::nullopt;
  return value && *value >= 0 && *value <= 255 ? std::optional(static_cast<int>(*value)) : std::nullopt;
}

std::string ForcedClassPath(const QosRoots& roots, const std::string& device, int port) {
  return fmt::format("{}/class/infiniband/{}/tc/{}/traffic_class", roots.sysfs, device, port);
}

}  // namespace

std::string GidText(const std::string& sysfs_text) {
  in6_addr address{};
  if (inet_pton(AF_INET6, sysfs_text.c_str(), &address) != 1 || IN6_IS_ADDR_UNSPECIFIED(&address)) return "";
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, &address, text, sizeof text);
  return text;
}

std::vector<RdmaPort> ReadRdmaPorts(const QosRoots& roots) {
  std::vector<RdmaPort> found;
  const std::string devices = roots.sysfs + "/class/infiniband";
  for (const std::string& device : NamesIn(devices)) {
    for (const std::string& number : NamesIn(fmt::format("{}/{}/ports", devices, device))) {
      const std::string folder = fmt::format("{}/{}/ports/{}", devices, device, number);
      const auto index = Number(number);
      if (!index || FirstLine(folder + "/link_layer") != "Ethernet") continue;
      RdmaPort port{.device = device, .port = static_cast<int>(*index), .interface = FirstLine(folder + "/gid_attrs/ndevs/0")};
      if (port.interface.empty()) continue;  // an Ethernet device that is gone or in another namespace
      ReadRoceTos(roots, &port);
      port.forced_class = ForcedClass(FirstLine(ForcedClassPath(roots, device, port.port)));
      ReadGids(folder, port.interface, &port);
      for (const std::string& name : NamesIn(folder + "/hw_counters")) {
        const auto value = name == "lifespan" ? std::nullopt : Number(FirstLine(folder + "/hw_counters/" + name));
        if (value && port.counters.size() < kMostCounters) port.counters[name] = *value;
      }
      found.push_back(std::move(port));
    }
  }
  return found;
}

Status SetRoceTos(const QosRoots& roots, const std::string& device, int port, int tos) {
  return InConfig<void>(roots, device, port, [tos](const std::string& path) { return WriteFile(path, std::to_string(tos)); });
}

Status SetForcedClass(const QosRoots& roots, const std::string& device, int port, int traffic_class) {
  return WriteFile(ForcedClassPath(roots, device, port), std::to_string(traffic_class));
}

}  // namespace weft::agent
